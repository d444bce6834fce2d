"""Rows with an operation in a flow: from files to sinks that apply them, or that take them as plain data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegauge as tg
from tidegauge.errors.engine import UnknownOperation
from tidegauge.errors.flow import InvalidArgument, OperationColumnUnfit, OperationsNotTaken

ORDERS = tg.Json("id long, amount double, _op string")
DONE = [
    {"id": 1, "amount": 50.0, "_op": "insert"},
    {"id": 2, "amount": 5.0, "_op": "insert"},
    {"id": 1, "amount": 50.0, "_op": "before"},
    {"id": 1, "amount": 7.0, "_op": "update"},
    {"id": 2, "_op": "delete"},
]


def lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def flow_of(root: Path, text: str, *, format: Any = ORDERS) -> tuple[tg.Dataflow, tg.RowStream]:
    (root / "orders.jsonl").write_text(text)
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db", tick=0.02)
    return flow, flow.source("orders", tg.FileSource(str(root / "orders.jsonl"), format=format))


def run(flow: tg.Dataflow) -> int:
    return flow.run("caught-up", engine=tg.LocalEngine(threads=0)).published


def test_a_changelog_makes_plain_data_that_any_table_takes_and_that_reads_as_any_other(tmp_path: Path) -> None:
    flow, orders = flow_of(tmp_path, lines(DONE))
    flow.sink("all", orders.changelog("op"), tg.DeltaSink(str(tmp_path / "all")))
    large = orders.filter("amount > 10").select("id").changelog("what")
    flow.sink("large", large, tg.ParquetSink(str(tmp_path / "large")))
    run(flow)
    found = tg.read_arrow(flow, "all")
    assert found.column_names == ["id", "amount", "op", "_epoch"]
    assert found.drop_columns(["_epoch"]).to_pylist() == [
        {"id": row["id"], "amount": row.get("amount"), "op": row["_op"]} for row in DONE
    ]
    assert [(row["id"], row["what"]) for row in tg.read_arrow(flow, "large").to_pylist()] == [
        (1, "insert"),
        (1, "before"),
        (1, "delete"),
        (2, "delete"),
    ]
    assert {output.name: output.state for output in tg.status(flow).outputs} == {"all": "live", "large": "live"}
    assert tg.explain(flow, 0).epoch == 0


@pytest.mark.parametrize("sink", [tg.DeltaSink, tg.ParquetSink, lambda path: tg.KafkaSink("here:9092", topic="t")])
def test_a_sink_that_only_appends_refuses_operations_when_it_is_declared(tmp_path: Path, sink: Any) -> None:
    flow, orders = flow_of(tmp_path, lines(DONE))
    with pytest.raises(
        OperationsNotTaken, match=r"TG-0122: the rows of output 'orders'.*'_op'(?s:.*)changelog\('op'\)"
    ):
        flow.sink("orders", orders.filter("amount > 1"), sink(str(tmp_path / "orders")))
    assert flow.outputs == {}
    flow.sink("bad", orders.errors, tg.DeltaSink(str(tmp_path / "bad")))


@pytest.mark.parametrize("step", ["inferred", "made"])
def test_it_refuses_them_when_it_meets_them_otherwise(tmp_path: Path, step: str) -> None:
    plain = lines({("_op" if step == "inferred" else "op"): row["_op"], "id": row["id"]} for row in DONE)
    flow, orders = flow_of(tmp_path, plain, format=tg.Json())
    flow.sink(
        "ids",
        orders.select("id") if step == "inferred" else orders.select("id", "op AS _op"),
        tg.DeltaSink(str(tmp_path / "ids")),
    )
    flow.sink("log", orders.changelog("op") if step == "inferred" else orders, tg.DeltaSink(str(tmp_path / "log")))
    with pytest.raises(OperationsNotTaken, match=r"output 'ids'"):
        run(flow)
    assert tg.read_arrow(flow, "log").num_rows == len(DONE)


WRONG: list[dict[str, Any]] = [{"id": 3, "_op": "upsert"}, {"id": 4, "amount": 1.5}]
MIXED = lines([DONE[0], WRONG[0], DONE[1], WRONG[1]])


def test_a_record_without_an_operation_is_collected_with_its_place_and_its_bytes(tmp_path: Path) -> None:
    flow, orders = flow_of(tmp_path, MIXED)
    flow.sink("orders", orders.changelog("op"), tg.DeltaSink(str(tmp_path / "orders")))
    flow.sink("bad", orders.errors, tg.DeltaSink(str(tmp_path / "bad")))
    run(flow)
    assert tg.read_arrow(flow, "orders")["id"].to_pylist() == [1, 2]
    bad = tg.read_arrow(flow, "bad").to_pylist()
    assert [row["raw"] for row in bad] == [json.dumps(row).encode() for row in WRONG]
    assert [row["position"] for row in bad] == [MIXED.index(json.dumps(row)) for row in WRONG]
    assert [(row["code"], row["message"]) for row in bad] == [
        ("TG-0520", "column _op: 'upsert' is none of insert, update, before and delete"),
        ("TG-0520", "column _op: None is none of insert, update, before and delete"),
    ]


def test_where_such_records_are_not_collected_the_source_fails_and_collecting_them_mends_it(tmp_path: Path) -> None:
    flow, orders = flow_of(tmp_path, MIXED)
    flow.sink("orders", orders.changelog("op"), tg.DeltaSink(str(tmp_path / "orders")))
    with pytest.raises(
        UnknownOperation, match=r"TG-0520: the record at position \d+ of .*'upsert' is none"
    ) as caught:
        run(flow)
    assert caught.value.evidence["position"] == MIXED.index(json.dumps(WRONG[0]))
    flow.sink("bad", orders.errors, tg.DeltaSink(str(tmp_path / "bad")))
    run(flow)
    assert tg.read_arrow(flow, "orders")["id"].to_pylist() == [1, 2]


def test_a_row_of_a_parquet_file_is_known_by_its_number(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3], "_op": ["insert", "c", "insert"]}), tmp_path / "orders.parquet")
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db", tick=0.02)
    orders = flow.source("orders", tg.FileSource(str(tmp_path / "*.parquet"), format=tg.Parquet()))
    flow.sink("orders", orders.changelog("op"), tg.DeltaSink(str(tmp_path / "orders")))
    flow.sink("bad", orders.errors, tg.DeltaSink(str(tmp_path / "bad")))
    run(flow)
    assert tg.read_arrow(flow, "orders")["id"].to_pylist() == [1, 3]
    [bad] = tg.read_arrow(flow, "bad").to_pylist()
    assert (bad["position"], bad["raw"]) == (1, b"")


@pytest.mark.parametrize("columns", ["id long, _op int", "id long, _OP string"])
def test_a_column_that_cannot_be_operations_is_refused_by_its_source(columns: str) -> None:
    with pytest.raises(OperationColumnUnfit, match="TG-0121"):
        tg.GeneratorSource(10, columns=columns)


@pytest.mark.parametrize("column", ["", "_op", "_OP"])
def test_a_changelog_needs_another_name(tmp_path: Path, column: str) -> None:
    _, orders = flow_of(tmp_path, "")
    with pytest.raises(InvalidArgument, match="column"):
        orders.changelog(column)
