"""A topic of Debezium's changes: what each epoch did to the row of each key."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.changes import HISTORIES, Row, history, view
from tests.sinks.kafka.test_operations_to_topics import COLUMNS, ONE, placed

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.kafkasink import ColumnUnfit, KeyMissing, LastUndecided
from tidegauge.sinks.kafka.debezium import ORDER, paired
from tidegauge.sinks.kafka.messages import MessageLayout
from tidegauge.testing import Endpoint

LAYOUT = MessageLayout("t", key="id", value=("id", "n", "user"), envelope="debezium", order="_offset")


def changes(rows: Sequence[Row], layout: MessageLayout = LAYOUT) -> dict[str, Any]:
    """Return the changes of one epoch that are sent, by their keys."""
    messages = layout.encode(pa.RecordBatch.from_pylist(list(rows), schema=COLUMNS))
    table = pa.Table.from_batches([messages])
    sent = paired(table, ordered=ORDER in table.column_names, topic="t", epoch=0).to_pylist()
    assert len({message["key"] for message in sent}) == len(sent)
    return {str(json.loads(message["key"])["id"]): json.loads(message["value"]) for message in sent}


@given(rows=HISTORIES, cut=st.integers(0, 60), seed=st.integers(0, 1 << 32))
@example(rows=[], cut=0, seed=0)
def test_whatever_the_order_of_tasks_an_epoch_tells_of_each_key_the_row_before_and_after(
    rows: list[Row], cut: int, seed: int
) -> None:
    old, new = view(rows[:cut]), view(rows)
    epoch = placed(rows[cut:])
    random.Random(seed).shuffle(epoch)
    told = changes(epoch)
    for key in {row["id"] for row in rows[cut:]}:
        change = told.pop(str(key), None)
        if change is None:
            assert key not in old
            assert key not in new
            continue
        assert change["after"] == new.get(key)
        bare = {"id": key, "n": None, "user": None}  # of a delete that knew the key alone
        assert change["before"] in (None, old.get(key), bare)
        assert change["op"] == ("d" if key not in new else "u" if key in old else "c")
    assert told == {}


@pytest.mark.parametrize(
    ("rows", "change"),
    [
        ([("insert", 1)], {"before": None, "after": 1, "op": "c"}),
        ([("update", 1)], {"before": None, "after": 1, "op": "u"}),
        ([("before", 1), ("update", 2)], {"before": 1, "after": 2, "op": "u"}),
        ([("before", 1), ("update", 2), ("before", 2), ("update", 3)], {"before": 1, "after": 3, "op": "u"}),
        ([("delete", 1), ("insert", 2)], {"before": 1, "after": 2, "op": "u"}),
        ([("before", 1), ("delete", None)], {"before": 1, "after": None, "op": "d"}),
        ([("insert", 1), ("before", 1), ("update", 2)], {"before": None, "after": 2, "op": "c"}),
        ([("insert", 1), ("delete", 1)], None),
        ([("before", 1)], None),
    ],
)
def test_t67_of_several_operations_on_a_key_the_first_tells_before_and_the_last_after(
    rows: list[tuple[str, int | None]], change: Any
) -> None:
    layout = MessageLayout("t", key="id", value=("n",), envelope="debezium", order="_offset")
    told = changes(placed([ONE | {"_op": op, "n": n} for op, n in rows]), layout)
    for part in ("before", "after"):
        for one in told.values():
            one[part] = None if one[part] is None else one[part]["n"]
    assert told == ({} if change is None else {"1": change})


@pytest.mark.parametrize(
    "other",
    [{"_op": "delete"}, {"_op": "delete", "_partition": "p1", "_offset": 6}, {"_op": "update", "_offset": None}],
)
def test_operations_on_one_key_that_nothing_orders_are_refused(other: Row) -> None:
    unordered = [ONE | {"_offset": None}, ONE | {"_offset": None, "_op": "update"}]
    for rows in ([ONE, ONE | other, ONE | {"_offset": None}], [ONE | other, ONE | {"_offset": None}, ONE], unordered):
        with pytest.raises(LastUndecided, match=r"\{\"id\":1\}"):
            changes([*rows, ONE | {"id": 2, "_offset": 9}])


def test_an_old_row_needs_no_order_of_its_own() -> None:
    layout = MessageLayout("t", key="id", value=("n",), envelope="debezium")
    rows = [ONE | {"_op": "update", "n": 2}, ONE | {"_op": "before"}]
    assert changes(rows, layout) == {"1": {"before": {"n": 1}, "after": {"n": 2}, "op": "u"}}


def test_what_cannot_be_a_change_is_refused_before_anything_runs() -> None:
    with pytest.raises(ColumnUnfit, match="'_op'"):
        LAYOUT.check(pa.schema([field for field in COLUMNS if field.name != "_op"]))
    with pytest.raises(KeyMissing):
        changes([ONE | {"id": None}])
    for wrong in ({"key": None}, {"value": "user"}, {"deleted": "gone"}):
        with pytest.raises(InvalidArgument):
            tg.KafkaSink("b:1", topic="t", **({"key": "id", "envelope": "debezium"} | wrong))


def test_a_table_goes_through_a_topic_of_changes_and_is_the_same_at_the_other_end(
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
        envelope="debezium",
        order="_offset",
        staging=str(tmp_path / "staging"),
    )
    flow.sink("orders", orders, sink)
    other = tg.Dataflow("other", store=f"sqlite:///{tmp_path}/other.db", tick=0.02)
    row, key = tg.Json("n long, user string"), tg.Json("id long")
    source = tg.KafkaSource(
        kafka_broker.servers, topic=topic, format=row, envelope="debezium", key=key, metadata=True
    )
    table = tg.DeltaSink(str(tmp_path / "table"), envelope="upsert", key="id", order="_offset")
    other.sink("orders", other.source("orders", source), table)
    for first in range(0, len(rows), 50):
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows[first : first + 50])
        flow.run("caught-up", engine=tg.LocalEngine(threads=2))
        other.run("caught-up", engine="local")
        held = tg.read_arrow(other, "orders").select(["id", "n", "user"]).to_pylist()
        assert {row["id"]: row for row in held} == view(rows[: first + 50])
