"""Delta tables in an object store: every law of sinks, on a real server."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.s3 import Lake
from tests.sinks.keyed.test_marked_rows import AFTER, THREE, filled, held, rows, vectored

from tidegauge.errors.sinks import DeletedRows
from tidegauge.objects.path import ObjectPath
from tidegauge.sinks import DeltaSink, Sink, vectors
from tidegauge.sinks.delta import bykey
from tidegauge.sinks.keyed.planning import Sizes
from tidegauge.testing.kit import check_sink


def delta_rows(address: str) -> list[dict[str, Any]]:
    """What delta-rs reads of a table, nothing where there is none."""
    if not DeltaTable.is_deltatable(address):
        return []
    found: list[dict[str, Any]] = DeltaTable(address).to_pyarrow_table().to_pylist()
    return found


@dataclass
class LakeBench:
    """A table at an address of its own."""

    folder: Path
    lake: Lake
    sink: Any = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.lake.at(f"{uuid.uuid4().hex}/orders")
        self.sink = DeltaSink(self.path)

    def rows(self) -> list[dict[str, Any]]:
        return delta_rows(self.path)

    def remove(self) -> None:
        ObjectPath.of(self.path).clear()

    def ways(self) -> Sequence[Sink]:
        return [DeltaSink(f"{self.path}/"), DeltaSink(self.path.replace("s3://", "s3a://"))]

    def elsewhere(self) -> Sink:
        return DeltaSink(f"{self.path}-2")


@pytest.mark.long
def test_a_table_in_a_store_holds_every_law(lake: Lake) -> None:
    report = check_sink(lambda folder: LakeBench(folder, lake), crashes=20, deadline=240)
    report.require()
    untried = {finding.name for finding in report.findings if finding.untried}
    assert untried == {"sweeping clears the litter of drivers that died", "a layout changes no rows"}


def test_rows_are_marked_deleted_in_a_store_as_on_a_disk(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bykey, "SIZES", Sizes(few_rows=0, most_dead=0.9))
    monkeypatch.setattr(vectors, "_INLINE", 0)
    path = lake.at(f"{uuid.uuid4().hex}/users")
    _, table = filled(path, *THREE)
    assert rows(path) == AFTER
    assert len(vectored(path)) == 2
    assert sorted((row["id"], row["n"]) for row in held(table, as_of=2)) == AFTER
    ObjectPath.of(f"{path}/_vectors").clear()
    with pytest.raises(DeletedRows, match="not there"):
        list(held(table, as_of=2))
