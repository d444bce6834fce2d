"""Rows found by the values of their columns: every type that is compared, nothing evaluated, each with its origin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegauge as tg
from tidegauge.errors.command import IncomparableValue, NotPublished
from tidegauge.errors.flow import UnknownColumn, UnknownName
from tidegauge.looking.read import trace, typed

ENGINE = tg.LocalEngine(threads=0)
COLUMNS = (
    "id long, small byte, ratio float, amount decimal(10,2), good boolean, user string, raw binary, day date, "
    "at timestamp, local timestamp_ntz, tags array<string>, home struct<street:string>"
)
ROW: dict[str, Any] = {
    "id": 7,
    "small": -3,
    "ratio": 0.1,
    "amount": "1.50",
    "good": True,
    "user": "ada' OR '1'='1",
    "raw": "AQI=",
    "day": "2026-11-20",
    "at": "2026-11-20T17:00:00.5Z",
    "local": "2026-11-20T17:00:00",
    "tags": ["a"],
    "home": {"street": "x"},
}


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> tg.Dataflow:
    """25 rows of two epochs, the first of every type, the others of nulls but for their numbers."""
    root = tmp_path_factory.mktemp("shop")
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db")
    orders = flow.source("orders", tg.FileSource(f"{root}/in/*", format=tg.Json(COLUMNS), metadata=True))
    flow.sink("delta", orders, tg.DeltaSink(f"{root}/delta"))
    flow.sink("parquet", orders, tg.ParquetSink(f"{root}/parquet"))
    (root / "in").mkdir()
    with (root / "in" / "a.jsonl").open("a") as file:
        file.write(json.dumps(ROW) + "\n")
        file.flush()
        flow.run(until="caught-up", engine=ENGINE)
        file.writelines(json.dumps({"id": n, "good": False}) + "\n" for n in range(100, 124))
        file.flush()
        flow.run(until="caught-up", engine=ENGINE)
    return flow


def ids(flow: tg.Dataflow, output: str = "delta", **values: str) -> list[int]:
    return sorted(one.row["id"] for one in trace(flow, output, values, limit=50).rows)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("id", "7"),
        ("small", "-3"),
        ("ratio", "0.1"),
        ("amount", "1.5"),
        ("amount", "1.50"),
        ("good", "true"),
        ("user", "ada' OR '1'='1"),
        ("day", "2026-11-20"),
        ("at", "2026-11-20T17:00:00.5"),
        ("at", "2026-11-20 18:00:00.5+01:00"),
        ("local", "2026-11-20 17:00"),
        ("_epoch", "0"),
        ("_offset", "0"),
    ],
)
@pytest.mark.parametrize("output", ["delta", "parquet"])
def test_a_row_is_found_by_a_value_of_each_type(flow: tg.Dataflow, output: str, column: str, text: str) -> None:
    [found] = trace(flow, output, {column: text}, limit=20).rows
    assert found.row["id"] == 7
    assert found.origin is not None
    assert found.origin == tg.origin(flow, output, found.row)
    assert found.origin.exact


def test_bytes_are_found_by_their_text(flow: tg.Dataflow) -> None:
    [kept] = {row["raw"] for row in tg.read_arrow(flow, "delta").to_pylist() if row["raw"] is not None}
    assert ids(flow, raw=kept.decode()) == [7]


def test_several_columns_are_all_equal(flow: tg.Dataflow) -> None:
    assert ids(flow, id="7", good="true") == [7]
    assert ids(flow, id="7", good="false") == []
    assert ids(flow, user="") == []  # null is not the empty text


def test_no_more_rows_are_shown_than_asked_for_and_that_there_are_more_is_said(flow: tg.Dataflow) -> None:
    for limit, shown, more in ((20, 20, True), (24, 24, False), (1, 1, True)):
        found = trace(flow, "delta", {"good": "false"}, limit=limit)
        assert (len(found.rows), found.more, found.epoch) == (shown, more, 1)
    assert ids(flow, good="false") == list(range(100, 124))


@pytest.mark.parametrize(
    ("column", "text", "said"),
    [
        ("id", "seven", "parse"),
        ("id", "", "parse"),
        ("id", "9" * 5000, "parse"),
        ("id", "1.5", "parse"),
        ("id", "1 OR 1=1", "parse"),
        ("small", "300", "parse"),
        ("ratio", "nan", "no finite number"),
        ("ratio", "1e400", "no finite number"),
        ("amount", "1.555", "data loss"),
        ("amount", "1e99999999", "type decimal"),
        ("good", "maybe", "parse"),
        ("day", "yesterday", "parse"),
        ("at", "17:00", "isoformat"),
        ("at", "\0", "isoformat"),
        ("local", "2026-11-20T17:00Z", "no zone"),
        ("user", "\udcff", "surrogate"),
        ("tags", "a", "not compared"),
        ("home", "x", "not compared"),
    ],
)
def test_a_value_that_no_row_can_have_is_refused(flow: tg.Dataflow, column: str, text: str, said: str) -> None:
    with pytest.raises(IncomparableValue, match=said) as caught:
        trace(flow, "delta", {column: text}, limit=20)
    assert len(str(caught.value)) < 700
    assert caught.value.evidence["column"] == column


def test_columns_and_outputs_that_are_not_there_are_named_errors(flow: tg.Dataflow) -> None:
    for column in ("idd", "ID", "home.street", "", "\0", "x" * 10**6):
        with pytest.raises(UnknownColumn) as caught:
            trace(flow, "delta", {column: "7"}, limit=20)
        assert len(str(caught.value)) < 700
    with pytest.raises(UnknownName):
        trace(flow, "deltas", {"id": "7"}, limit=20)


def test_a_row_that_is_not_of_this_life_is_shown_with_what_is_wrong(tmp_path: Path) -> None:
    flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
    visits = flow.source("visits", tg.GeneratorSource(3, columns="id long", metadata=True))
    flow.sink("visits", visits, tg.ParquetSink(f"{tmp_path}/visits"))
    flow.run(engine=ENGINE)
    import pyarrow.parquet as pq

    [file] = (tmp_path / "visits").glob("from*/*.parquet")
    rows = pq.read_table(file)
    place = rows.schema.get_field_index("_offset")
    pq.write_table(rows.set_column(place, "_offset", pa.array([0, 1, 99])), file)
    found = trace(flow, "visits", {"_epoch": "0"}, limit=20).rows
    assert [one.error is None for one in found] == [one.origin is not None for one in found] == [True, True, False]
    assert found[2].error is not None
    assert found[2].error.code == "TG-0614"


def test_of_an_output_that_shows_nothing_yet_there_is_nothing_to_trace(tmp_path: Path) -> None:
    def made(*, late: bool) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
        visits = flow.source("visits", tg.GeneratorSource(3, columns="id long"))
        flow.sink("visits", visits.map_batches(lambda batch: batch.slice(0, 0)), tg.ParquetSink(f"{tmp_path}/visits"))
        if late:
            flow.sink("late", visits, tg.ParquetSink(f"{tmp_path}/late"))
        return flow

    made(late=False).run(engine=ENGINE)
    assert trace(made(late=False), "visits", {"id": "1"}, limit=20).rows == ()
    with pytest.raises(NotPublished):
        trace(made(late=True), "late", {"id": "1"}, limit=20)


def test_a_value_has_the_type_of_its_column() -> None:
    for kind, text in ((pa.int64(), "5"), (pa.string(), "5"), (pa.decimal128(5, 1), "5"), (pa.bool_(), "1")):
        assert typed(pa.field("x", kind), text).type == kind
