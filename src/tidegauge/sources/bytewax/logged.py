"""`BytewaxLogSource`: what a bytewax dataflow has written to a `LogSink`, each row once.

    flow.source("clicks", tg.BytewaxLogSource("log", recovery="recovery", columns="user string, n long"))

A run publishes the pieces of the log after which bytewax resumes by its recovery store, and binds them then, as the
batches of a `BatchSource` (`log` says why). Tasks, `status`, late outputs and scans read the published ones.

Invariant: a row is bound when bytewax can no longer take it back, and never before.

>>> source = BytewaxLogSource("/lake/log", recovery="/lake/recovery", columns="n long")
>>> source.unit, source.describe()["recovery"]
('pieces', '/lake/recovery')
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegauge.env import Env, Spawn
from tidegauge.errors.bytewax import LogBehind, RecoveryBehind
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.abilities import Attendant
from tidegauge.sources.batches.manifest import root_at
from tidegauge.sources.batches.source import BatchSource, BatchSplit
from tidegauge.sources.bytewax.log import LogEnd, LogNote, note_in, publish, published_in, sealed_in
from tidegauge.sources.bytewax.recovery import resumed_from
from tidegauge.sources.protocol import OnBadRecord, Split

__all__ = ["BytewaxLogSource"]


@dataclass(frozen=True)
class BytewaxLogSource:
    """What a dataflow of bytewax writes to a `tidegauge.bytewax.LogSink`.

    Args:
        path: the folder of the sink, on a file system that the dataflow, the flow and its tasks see.
        recovery: the folder of bytewax's recovery store, with all of its files. The driver reads it.
        columns: those of the sink: a DDL string or an Arrow schema.
        max_records_per_epoch: how many rows an epoch takes at most; at least one piece.

    Raises `InvalidArgument`, `InvalidSchema`, `ReservedColumn`, `BatchesElsewhere`.
    """

    path: str | os.PathLike[str]
    _: KW_ONLY
    recovery: str | os.PathLike[str]
    columns: str | pa.Schema
    max_records_per_epoch: int = 10_000_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", root_at(self.path, where="BytewaxLogSource(path)"))
        object.__setattr__(self, "recovery", root_at(self.recovery, where="BytewaxLogSource(recovery)"))
        _ = self._batches

    @property
    def unit(self) -> str:
        """Positions count the pieces: a bytewax epoch that had rows for the partition."""
        return "pieces"

    @cached_property
    def _batches(self) -> BatchSource:
        return BatchSource(self.path, columns=self.columns, max_records_per_epoch=self.max_records_per_epoch)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._batches.schema

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {**self._batches.describe(), "kind": "bytewax-log", "recovery": self.recovery}

    def attended(self, env: Env, *, beside: Spawn) -> Attendant:  # noqa: ARG002
        """Return what publishes pieces during a run."""
        return _Publishing(self)

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Return how far the published pieces go. Only a run publishes."""
        seen = self._batches.probe(bound, now=now)
        logs = self.logs()
        if not logs:
            return replace(seen, note=f"waiting: no dataflow has written below {self.path}")
        waiting = sum(len(sealed_in(Path(self.path, part))) for part in logs)
        note = f"{waiting} pieces wait until bytewax's recovery store has them" if waiting else ""
        return replace(seen, note=note)

    def logs(self) -> Mapping[str, LogNote]:
        """Return the partitions that were begun, each with its writer."""
        try:
            parts = sorted(entry.name for entry in os.scandir(self.path) if entry.is_dir())
        except FileNotFoundError:
            return {}
        return {part: note for part in parts if (note := note_in(Path(self.path, part))) is not None}

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Return the files of these slices. Raises what says that one is not there as it was."""
        return self._batches.plan(slices, bound)

    def read(self, split: BatchSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Return the rows of a file."""
        return self._batches.read(split, on_bad_record)

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing: the log stays, for outputs that are yet to come."""


@dataclass(frozen=True, slots=True)
class _Publishing:
    """Publishes during a run."""

    source: BytewaxLogSource

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Publish what bytewax cannot take back, and look. Raises the errors TG-0987 to TG-0989, `BatchDamaged`."""
        source, logs = self.source, self.source.logs()
        known = {part: published_in(Path(source.path, part)) for part in logs}
        states = (
            resumed_from(Path(source.recovery), [(note.step, part) for part, note in logs.items()]) if logs else {}
        )
        for part, note in logs.items():
            _publish(Path(source.path, part), states.get((note.step, part)), known[part])
        return source.probe(bound, now=now)

    def close(self) -> None:
        """Do nothing: there is nothing under way."""


def _publish(folder: Path, state: str | None, known: int) -> None:
    """Publish up to the state of a partition. known: how many pieces were published before it was read."""
    if state is None:
        if known:
            raise RecoveryBehind(place=str(folder), held=known, kept=0)
        return
    if (end := LogEnd.of(state)) is None:
        raise LogBehind(place=str(folder), problem="bytewax's recovery store has the state of another sink")
    publish(folder, end, known=known)
