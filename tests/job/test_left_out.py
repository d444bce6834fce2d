"""Rows that leave out a value go on with their marks, or are bad records: never rows with a null."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from tidegauge.errors.leftout import LeftOutHere
from tidegauge.job.decoding import decoded
from tidegauge.job.leftout import carried_by, shown
from tidegauge.job.plan import Changelog, Filter, OutputPlan, Select, Step
from tidegauge.job.report import Report
from tidegauge.leftout import LEFT, Mark
from tidegauge.sinks import DeltaSink, ParquetSink
from tidegauge.sources.protocol import BadRecord, OnBadRecord

COLUMNS = pa.schema([("id", pa.int64()), ("doc", pa.string()), ("_sequence", pa.int64()), ("_op", pa.string())])
MARK = Mark(("doc",), ("id",))


@dataclass(frozen=True)
class Piece:
    epoch: int = 3
    partition: str = "wal"
    lower: int = 0
    upper: int = 9
    weight: int = 1


@dataclass(frozen=True)
class Given:
    """A source, and what a task reads of it: two updates, of which the second one leaves out a value."""

    collect: bool = False
    lacking: bool = False
    whole: bool = False
    name: str = "db"
    schema: pa.Schema = COLUMNS

    @property
    def source(self) -> Any:
        return self

    @property
    def splits(self) -> list[Any]:
        return [Piece()]

    def read(self, _split: Any, bad: OnBadRecord) -> Iterator[pa.RecordBatch]:
        bad(BadRecord("wal", 7, b"raw", "TG-0375", "left out", left_out=True))
        rows = [{"id": 1, "doc": "a", "_sequence": 1, "_op": "update", LEFT: None}]
        rows += [{"id": 2, "doc": None, "_sequence": 2, "_op": "update", LEFT: MARK.encode()}]
        yield pa.RecordBatch.from_pylist(rows, schema=COLUMNS.append(pa.field(LEFT, pa.string())))


def test_marks_go_on_where_no_change_can_have_been_passed_over() -> None:
    report = Report()
    [(_, _, rows)] = decoded(Given(), report)
    assert rows.column(LEFT).to_pylist() == [None, MARK.encode()]
    assert report.failures == []


def test_where_bad_records_are_collected_the_change_is_one_and_makes_no_row() -> None:
    found = {channel: rows.to_pylist() for channel, _, rows in decoded(Given(collect=True), Report())}
    assert [row["id"] for row in found["rows"]] == [1]
    assert LEFT not in found["rows"][0]
    assert [row["code"] for row in found["errors"]] == ["TG-0375"]


def test_where_some_records_are_skipped_the_change_ends_the_source() -> None:
    report = Report()
    assert list(decoded(Given(lacking=True), report)) == []
    [failure] = report.failures
    assert failure.epoch == 3


def plan(*steps: Step, sink: Any = None, **options: Any) -> OutputPlan:
    kept = sink or DeltaSink("/lake/t", envelope="upsert", key="id", order="_sequence")
    return OutputPlan("out", "db", "rows", steps, kept, **options)


@pytest.mark.parametrize(
    ("mine", "columns"),
    [
        (plan(), ("doc",)),
        (plan(Select(("*",))), ("doc",)),
        (plan(evolution="add"), ("doc",)),
        (plan(Select(("id", "`doc` AS `a text`", "doc", "_sequence"))), ("a text", "doc")),
        (plan(Select(("id", "_sequence")), Changelog("op"), sink=ParquetSink("/lake/log")), ()),
    ],
)
def test_an_output_that_shows_columns_takes_the_row_under_its_own_names(
    mine: OutputPlan, columns: tuple[str, ...]
) -> None:
    [said] = carried_by(mine, COLUMNS).marks(pa.array([MARK.encode()]), 3).to_pylist()
    assert (Mark.decode(said).columns if said else ()) == columns


@pytest.mark.parametrize(
    "mine",
    [
        plan(Filter("id > 1")),
        plan(Select(("id", "upper(doc) AS doc", "_sequence"))),
        plan(sink=ParquetSink("/lake/log")),
        plan(sink=DeltaSink("/lake/t", envelope="upsert", key="_sequence", order="_sequence")),
        plan(sink=DeltaSink("/lake/t", envelope="upsert", key="id", order="doc")),
        plan(sink=DeltaSink("/lake/t", envelope="upsert", key="id", order="_sequence", partition_by="doc")),
    ],
)
def test_an_output_that_cannot_know_the_value_refuses_the_row(mine: OutputPlan) -> None:
    with pytest.raises(LeftOutHere):
        carried_by(mine, COLUMNS).marks(pa.array([MARK.encode()]), 3)


def test_what_a_column_is_called_is_followed_through_the_steps() -> None:
    steps = (Select(("id", "doc AS a")), Select(("a AS b", "id AS doc")), Changelog("what"))
    assert shown(steps, COLUMNS) == {"b": "doc", "doc": "id", "what": "_op"}
    assert shown((Select(("doc || 'x' AS doc",)),), COLUMNS) is None
