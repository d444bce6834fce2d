"""Rows in the memory of the driver's process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import OUTPUT, SCHEMA, stage, write_id

import tidegauge as tg
from tidegauge.errors.foreach import RowsInOtherProcess
from tidegauge.errors.sinks import OutputIsNoTable
from tidegauge.sinks import MemorySink, Sink
from tidegauge.testing.kit import check_sink


class MemoryBench:
    """A sink that stages in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.sink = MemorySink(staging=str(folder / "staging"))

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.sink.table().to_pylist()
        return found

    def ways(self) -> Sequence[Sink]:
        return [pickle.loads(pickle.dumps(self.sink))]

    def elsewhere(self) -> Sink:
        return MemorySink(staging=self.sink.staging)


def test_memory_holds_every_law_of_a_process_that_does_not_die() -> None:
    report = check_sink(MemoryBench, crashes=0, deadline=120)
    report.require()
    assert {finding.name for finding in report.findings if finding.untried} == {
        "a table that is gone is noticed",
        "a crash leaves all or nothing",
        "files are taken out in whole or not at all",
        "a layout changes no rows",
    }


def test_rows_come_in_the_order_of_epochs_with_the_columns_of_the_first_commit(tmp_path: Path) -> None:
    sink = MemorySink(staging=str(tmp_path))
    assert sink.table().to_pylist() == []
    table = sink.open(OUTPUT)
    table.commit(0, 3, SCHEMA, stage(sink, [2, 0]), write=write_id())
    turned = pa.schema([SCHEMA.field(name) for name in ("_epoch", "user", "amount")])
    stager = sink.stage(turned, job="1" * 32, task=0)
    stager.write(pa.record_batch({"_epoch": [3], "user": ["bob"], "amount": [2.0]}, schema=turned))
    table.commit(3, 4, turned, stager.close(), write=write_id())
    assert sink.table().schema == SCHEMA
    assert sink.table()["_epoch"].to_pylist() == [0, 2, 3]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(OutputIsNoTable):
        table.uris(table.files())


def test_a_copy_has_no_rows_and_says_where_they_are() -> None:
    sink = MemorySink()
    for one in (pickle.loads(pickle.dumps(sink)), copy.deepcopy(sink)):
        assert one == sink
        for ask in (one.table, lambda: one.open(OUTPUT)):  # noqa: B023
            with pytest.raises(RowsInOtherProcess, match=sink.name):
                ask()
    assert MemorySink() != sink
    assert isinstance(tg.MemorySink(), Sink)
