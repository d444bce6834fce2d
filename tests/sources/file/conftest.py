"""A driver that does what a flow does with a source, without the flow: probe, bind durably, plan, read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.findings import Findings
from tidegauge.sources import FileSource
from tidegauge.sources.protocol import BadRecord

LATER = datetime(2100, 1, 1, tzinfo=UTC)
"""A time at which every file has settled."""


@dataclass
class Driver:
    source: FileSource
    bound: Bound = field(default_factory=Bound)
    epochs: list[list[Slice]] = field(default_factory=list)
    last: Observation | None = None
    read_up_to: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)
    findings: Findings | None = None
    """What others have found already in the look that the next probe is part of."""

    def probe(self, now: datetime = LATER) -> Observation:
        """Probe as a driver does that was started just now: from the disk and what was stored, as JSON."""
        source = pickle.loads(pickle.dumps(self.source))
        details = json.loads(json.dumps({k: dict(v) for k, v in self.bound.details.items()}))
        found, self.findings = self.findings, None  # the next look begins later
        self.last = source.probe(replace(self.bound, details=details, findings=found), now=now)
        assert self.last.upper.follows(self.bound.frontier)
        assert self.last.upper.less_equal(self.last.end)
        return self.last

    def bind(self, probe: Observation) -> list[Slice]:
        """Bind what a probe admitted to a new epoch; an idle probe binds nothing and stores nothing."""
        if probe.upper == self.bound.frontier:
            return []
        ranges = probe.upper.since(self.bound.frontier)
        slices = [Slice("s", len(self.epochs), key, low, high) for key, (low, high) in ranges.items()]
        self.epochs.append(slices)
        self.bound = Bound(
            frontier=probe.upper,
            details={**self.bound.details, **probe.details},
            schema=probe.schema if self.bound.schema is None else self.bound.schema,
        )
        return slices

    def tick(self, now: datetime = LATER) -> list[Slice]:
        return self.bind(self.probe(now))

    def plan(self, slices: list[Slice]) -> list[Any]:
        splits: list[Any] = pickle.loads(pickle.dumps(self.source.plan(slices, self.bound)))
        for piece in slices:
            own = [(s.lower, s.upper) for s in splits if (s.epoch, s.partition) == (piece.epoch, piece.partition)]
            assert own[0][0] == piece.lower
            assert own[-1][1] == piece.upper
            assert [b for _, b in own[:-1]] == [a for a, _ in own[1:]]
            assert all(a < b for a, b in own)
        return splits

    def rows_of(self, splits: list[Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for split in splits:
            for batch in self.source.read(split, self.bad.append):
                assert batch.schema.equals(split.schema)
                found += batch.to_pylist()
        return found

    def read_slices(self, slices: list[Slice]) -> list[dict[str, Any]]:
        return self.rows_of(self.plan(slices))

    def catch_up(self) -> list[dict[str, Any]]:
        """Read the epochs that are bound and not read yet, and return their rows."""
        new = self.read_slices([piece for epoch in self.epochs[self.read_up_to :] for piece in epoch])
        self.read_up_to = len(self.epochs)
        self.rows += new
        return new

    def detail(self, name: str) -> dict[str, Any]:
        """Return what is kept of the one file last known under this name."""
        [found] = [d for d in self.bound.details.values() if Path(str(d["path"])).name == name]
        return dict(found)

    def table(self) -> pa.Table:
        splits = self.plan([piece for epoch in self.epochs for piece in epoch])
        batches = [batch for split in splits for batch in self.source.read(split, self.bad.append)]
        return pa.Table.from_batches(batches, splits[0].schema)


@pytest.fixture
def drive() -> Callable[[FileSource], Any]:
    return Driver


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder
