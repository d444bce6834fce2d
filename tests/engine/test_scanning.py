"""A source that is scanned in Spark's tasks gives the rows of its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.elsewhere import Found
from tests.engine.reclocked import error_of_scan, flow_in, scanned_by_spark

import tidegauge as tg

pytestmark = pytest.mark.spark


@pytest.fixture
def expected(tmp_path: Path) -> list[list[Any]]:
    held = tg.read_arrow(flow_in(tmp_path / "expected"), "orders").to_pylist()
    return sorted([row["id"], row["_offset"], row["_epoch"]] for row in held if row["_epoch"])


def without_place(found: list[list[Any]]) -> list[list[Any]]:
    """A file's key is another one in each folder."""
    return [[id_, offset, epoch] for id_, _, offset, epoch in found]


def test_a_scan_in_tasks_gives_the_rows_of_the_table(classic: Any, tmp_path: Path, expected: list[list[Any]]) -> None:
    flow = flow_in(tmp_path)
    assert without_place(scanned_by_spark(classic, flow)) == expected
    assert "0.jsonl" in error_of_scan(classic, flow, tmp_path)


@pytest.mark.long
def test_a_scan_on_other_kinds_of_spark_gives_them_too(
    connect: Found, cluster: Found, expected: list[list[Any]]
) -> None:
    assert without_place(connect.scanned) == without_place(cluster.scanned) == expected
