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

from tidegauge.objects.path import ObjectPath
from tidegauge.sinks import DeltaSink, Sink
from tidegauge.testing.kit import check_sink


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
        if not DeltaTable.is_deltatable(self.path):
            return []
        found: list[dict[str, Any]] = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return found

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
    assert untried == {"sweeping clears the litter of drivers that died"}
