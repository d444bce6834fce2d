"""Spark reads a Parquet table whose driver was killed while it replaced all rows: the folder, and its files."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.forked import end_of
from tests.sinks import dying
from tests.sinks.conftest import KINDS, table_bench

pytestmark = pytest.mark.spark

COLUMNS = "user string, amount double, _epoch long"
OLD, NEW = [("ada", epoch) for epoch in range(3)], [("new", epoch) for epoch in range(4)]
LISTED = [OLD] * 4 + [OLD, OLD[:2], OLD[:2], OLD[:1], OLD[:1], [], [], NEW]
"""What the folder shows after a death at each instant around a rename: of a staged file, of the swap, of three files
that go out of sight, and of the new rows, which come into it."""


@pytest.mark.parametrize(
    "dies", [pytest.param(n, marks=() if n == 8 else pytest.mark.long) for n in range(1, len(LISTED) + 1)]
)
def test_spark_sees_no_row_twice_and_tidegauge_names_the_files_of_one_edition(
    classic: Any, tmp_path: Path, dies: int
) -> None:
    bench = table_bench(KINDS["parquet"], str(tmp_path / "t"))
    table = bench.open()
    for epoch in range(3):
        bench.commit(table, epoch, epoch + 1)

    def read(*paths: str) -> list[tuple[str, int]]:
        frame = classic.read.schema(COLUMNS).parquet(*paths)
        assert frame.columns[:3] == ["user", "amount", "_epoch"]
        return sorted((row["user"], row["_epoch"]) for row in frame.collect())

    assert end_of(dying.swap, "parquet", bench.path, dies, 4) == -signal.SIGKILL
    now = NEW if dies > 3 else OLD
    table = bench.open()
    assert read(*table.uris(table.files())) == now
    assert read(bench.path) == LISTED[dies - 1]
    table.sweep(lambda: None)
    assert read(bench.path) == read(*table.uris(table.files())) == now
    inferred = classic.read.parquet(bench.path)
    assert dict(inferred.dtypes)["from_epoch"] == "int"
    assert inferred.count() == len(now)
