"""Rows with an operation in a topic of upserts: whoever keeps the last message of each key has the table."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.changes import HISTORIES, Row, history, kept, view
from tests.sinks.kafka.conftest import Bench, consumed, write_id

import tidegauge as tg
from tidegauge.errors.kafkasink import ColumnUnfit, LastUndecided
from tidegauge.sinks.kafka.messages import MessageLayout, lasts
from tidegauge.testing import Endpoint

Maker = Callable[..., Bench]
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int64()),
        ("user", pa.string()),
        ("_op", pa.string()),
        ("_partition", pa.string()),
        ("_offset", pa.int64()),
        ("_epoch", pa.int64()),
    ]
)
LAYOUT = MessageLayout("t", key="id", value=("n", "user"), envelope="upsert", order="_offset")


def placed(rows: Iterable[Row], *, epoch: int = 0, partition: str = "p0", first: int = 0) -> list[Row]:
    return [row | {"_partition": partition, "_offset": first + i, "_epoch": epoch} for i, row in enumerate(rows)]


def decided(rows: list[Row]) -> dict[bytes, Any]:
    """Return the messages of one epoch that are sent, as the driver chooses them among those of all tasks."""
    messages = LAYOUT.encode(pa.RecordBatch.from_pylist(rows, schema=COLUMNS))
    table = pa.Table.from_batches([messages])
    last = lasts(table, ordered=True, topic="t", epoch=0, exact=True)
    sent = (table if last is None else table.filter(last)).to_pylist()
    assert len({message["key"] for message in sent}) == len(sent)
    return {message["key"]: message["value"] for message in sent}


@given(rows=HISTORIES, seed=st.integers(0, 1 << 32))
def test_whatever_the_order_of_tasks_the_last_operation_of_a_key_is_sent(rows: list[Row], seed: int) -> None:
    shuffled = placed(rows)
    random.Random(seed).shuffle(shuffled)
    sent = decided(shuffled)
    assert set(sent) == {str(row["id"]).encode() for row in rows}
    assert {key: json.loads(value) for key, value in sent.items() if value is not None} == {
        str(key).encode(): {"n": row["n"], "user": row["user"]} for key, row in view(rows).items()
    }


ONE = {"id": 1, "n": 1, "user": "a", "_op": "insert", "_partition": "p0", "_offset": 5, "_epoch": 0}


@pytest.mark.parametrize(
    "other",
    [
        {"_op": "delete"},
        {"_op": "delete", "_partition": "p1", "_offset": 6},
        {"_op": "delete", "_partition": "p1", "_offset": 4},
        {"_op": "delete", "_partition": None, "_offset": 6},
    ],
)
def test_operations_on_one_key_that_nothing_orders_are_refused(other: Row) -> None:
    for rows in ([ONE, ONE | other], [ONE | other, ONE]):
        with pytest.raises(LastUndecided, match="b'1'"):
            decided([*rows, ONE | {"id": 2, "_offset": 9}])


def test_a_tie_behind_which_another_operation_stands_decides_nothing() -> None:
    rows = [ONE, ONE | {"_op": "delete"}, ONE | {"_op": "update", "n": 2, "_offset": 7}]
    assert decided(rows) == {b"1": b'{"n":2,"user":"a"}'}
    assert decided([ONE, ONE | {"_op": "before"}]) == {b"1": b'{"n":1,"user":"a"}'}, "it is no message"
    assert decided([ONE, ONE | {"id": 2, "_partition": "p1"}]).keys() == {b"1", b"2"}


def test_an_operation_is_no_part_of_a_value_that_is_not_asked_for_it() -> None:
    rows = pa.RecordBatch.from_pylist([ONE], schema=COLUMNS)
    [value] = MessageLayout("t", key="id", envelope="upsert").encode(rows)["value"].to_pylist()
    assert json.loads(value) == {"id": 1, "n": 1, "user": "a", "_partition": "p0", "_offset": 5}


def test_an_offset_without_its_partition_orders_no_operations() -> None:
    with pytest.raises(ColumnUnfit, match="'_partition'"):
        LAYOUT.check(COLUMNS.remove(COLUMNS.get_field_index("_partition")))
    plain = pa.schema([field for field in COLUMNS if field.name not in {"_op", "_partition"}])
    LAYOUT.check(plain)


def test_operations_of_several_tasks_and_epochs_make_their_table_in_a_topic(make_bench: Maker) -> None:
    bench = make_bench(key="id", value=["n", "user"], envelope="upsert", order="_offset")
    rows, table, epochs = history(7, size=240), bench.open(), 4
    for epoch in range(epochs):
        part = placed(rows[epoch * 60 : (epoch + 1) * 60], epoch=epoch, first=epoch * 60)
        tasks = [pa.RecordBatch.from_pylist(part[half::2], schema=COLUMNS) for half in (1, 0)]
        files = [file for task, batch in enumerate(tasks) for file in bench.stage_rows(batch, task=task)]
        table.commit(epoch, epoch + 1, COLUMNS, files, write=write_id())
    for epoch in range(epochs):
        held = {}
        for message in bench.messages():
            if message.epoch <= epoch:
                held[message.key] = message.row
        assert {key: row for key, row in held.items() if row is not None} == {
            str(key).encode(): {"n": row["n"], "user": row["user"]}
            for key, row in view(rows[: (epoch + 1) * 60]).items()
        }


def test_a_filtered_table_arrives_in_a_topic(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    rows, path, topic = history(11, size=150), tmp_path / "orders.jsonl", make_topic()
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.02)
    columns = tg.Json("id long, n long, user string, _op string")
    orders = flow.source("orders", tg.FileSource(str(path), format=columns, metadata=True))
    sink = tg.KafkaSink(
        kafka_broker.servers,
        topic=topic,
        key="id",
        value=["n", "user"],
        envelope="upsert",
        order="_offset",
        staging=str(tmp_path / "staging"),
    )
    flow.sink("large", orders.filter("n > 2"), sink)
    for first in range(0, len(rows), 50):
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows[first : first + 50])
        flow.run("caught-up", engine=tg.LocalEngine(threads=2))
    held = {message.key: message.row for message in consumed(kafka_broker.servers, topic)}
    wanted = view(kept(rows, lambda row: None if row["n"] is None else row["n"] > 2))
    assert {key: row for key, row in held.items() if row is not None} == {
        str(key).encode(): {"n": row["n"], "user": row["user"]} for key, row in wanted.items()
    }
