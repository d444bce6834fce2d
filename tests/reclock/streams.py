"""What the tests of the streaming operator share: the definition, random records, and a source moved by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from tidegauge.dataflow import INT, PARTITIONED, CapabilitySet, Messages, Order, Worker
from tidegauge.reclock.bindings import Binding
from tidegauge.reclock.places import Layout, Pairs
from tidegauge.reclock.pushed import PartitionedRecords
from tidegauge.reclock.room import Room
from tidegauge.reclock.stream import reclock_stream
from tidegauge.remap.frontier import GAUGE, Frontier
from tidegauge.testing.strategies import RemapHistory

Place: TypeAlias = tuple[str, int]

PARTITIONS = ("p0", "p1", "p2", "p3", "never")
END = 13
"""Behind every position that a record has here."""


def entered(history: RemapHistory, upper: int, place: Place) -> int | None:
    """The definition: the first epoch below `upper` whose R is beyond the record."""
    return next((epoch for epoch in range(upper) if history.has(epoch, *place)), None)


def reached(history: RemapHistory, upper: int, lows: dict[str, int] | None) -> int:
    """The definition of the frontier: the first epoch that a record from `lows` on may enter; None: there is none."""
    for epoch in range(upper):
        frontier = history.frontier_at(epoch)
        if lows is not None and (frontier.sealed or any(frontier[p] > lows.get(p, 0) for p in PARTITIONS)):
            return epoch
    return upper


def records() -> st.SearchStrategy[list[Place]]:
    """Records of few partitions or of many, in the sequence in which they come, some at one place."""
    return st.sampled_from([1, 2, len(PARTITIONS)]).flatmap(
        lambda many: st.lists(st.tuples(st.sampled_from(PARTITIONS[:many]), st.integers(0, END - 2)), max_size=40)
    )


def lows_of(places: list[Place]) -> dict[str, int]:
    """How far a reader can say that it is, which has yet to give these records."""
    return {p: min((n for q, n in places if q == p), default=END) for p in PARTITIONS}


def arrow(places: list[Place], *, dictionary: bool = False) -> pa.RecordBatch:
    """Records as Arrow rows, numbered in their sequence."""
    names = pa.array([p for p, _ in places], pa.string())
    return pa.record_batch(
        {
            "row": pa.array(range(len(places)), pa.int64()),
            "_partition": names.dictionary_encode() if dictionary else names,
            "_offset": pa.array([n for _, n in places], pa.int64()),
        }
    )


def places_of(batch: Any) -> list[Place]:
    """The places of the records of a batch of either layout."""
    if isinstance(batch, pa.RecordBatch):
        return list(zip(batch["_partition"].to_pylist(), batch["_offset"].to_pylist(), strict=True))
    return [place for _, place in batch]


def pairs(places: list[Place]) -> list[tuple[Any, tuple[str | int, int]]]:
    return [(f"{p}@{n}", (p, n)) for p, n in places]


@dataclass
class Rig:
    """A source and its remap operator moved by hand, in one worker, and what comes out."""

    order: Order[Any] = GAUGE
    as_of: int = 0
    limit: int = 1000
    layout: Layout[Any] = field(default_factory=Pairs)

    def __post_init__(self) -> None:
        self.worker = Worker(lambda: 0.0, validate=True)
        self.room = Room(self.limit)
        self.records: PartitionedRecords[Any] = PartitionedRecords("s", self.layout, order=self.order)
        with self.worker.dataflow("source", order=self.order) as scope:
            self.reader, held, stream = scope.unordered_input("reader")
            arrivals = stream.capture()
        self.held = CapabilitySet([held])
        with self.worker.dataflow("flow", order=INT) as scope:
            self.remap, bound = scope.input("remap")
            scope.input("another source")  # with which the flow goes on when this one has ended
            output = reclock_stream(bound, arrivals, self.records, self.room, as_of=self.as_of)
            self.heard, self.probe = output.capture(), output.probe()

    def give(self, *places: Place) -> Rig:
        """Let records come."""
        self.reader.session(self.held).give(pairs(list(places)))
        return self

    def reach(self, positions: dict[str, int]) -> Rig:
        """Let the source go on to a frontier."""
        self.held.downgrade(PARTITIONED.frontier(positions) if self.order == PARTITIONED else [Frontier(positions)])
        return self

    def end(self) -> Rig:
        """Let the source come to its end."""
        self.held.drop()
        return self

    def bind(self, epoch: int, positions: Mapping[str, int], *, sealed: bool = False) -> Rig:
        """Bind an epoch, and make it final."""
        self.remap.send([Binding(epoch, Frontier(positions, sealed=sealed))])
        return self.advance(epoch + 1)

    def advance(self, upper: int) -> Rig:
        """Make the epochs below `upper` final."""
        self.remap.advance_to(upper)
        return self

    def out(self) -> list[tuple[int, Place]]:
        """Return what has come out since the last call, sorted."""
        self.worker.settle()
        events = [event for event in self.heard.drain() if isinstance(event, Messages)]
        assert all(len(event.stamp) == 1 for event in events)
        return sorted((event.stamp[0], place) for event in events for place in places_of(event.batch))

    def frontier(self) -> int | None:
        """Return the frontier of the output, None when it has ended."""
        self.worker.settle()
        return next(iter(self.probe.frontier().elements()), None)
