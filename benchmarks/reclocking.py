"""The streaming reclock operator: record batches are pushed, and leave with their epochs.

Batches of 10,000 rows, each with the next positions of all partitions, sorted by partition and position or shuffled;
an epoch is bound every 25,000 rows, so many batches are cut. Bindings are all there before the first batch (ahead),
or each comes ten batches after the last of its rows (behind), so that every row waits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figure
from benchmarks.room import Room
from tidegauge.dataflow import INT, Worker
from tidegauge.reclock.bindings import Binding
from tidegauge.reclock.places import ArrowRows
from tidegauge.reclock.pushed import PartitionedRecords
from tidegauge.reclock.room import Room as Waiting
from tidegauge.reclock.stream import reclock_stream
from tidegauge.remap.frontier import GAUGE, Frontier

__all__ = ["measure"]

_SEED: Final = 20261120
_BATCH: Final = 10_000
_EPOCH: Final = 25_000
_LAG: Final = 10
_REPETITIONS: Final = 5

Bound = Literal["ahead", "behind"]


@dataclass(frozen=True, slots=True)
class _Feed:
    """What is pushed: batches, and where the source is after each."""

    batches: list[pa.RecordBatch]
    frontiers: list[Frontier]

    @property
    def rows(self) -> int:
        return _BATCH * len(self.batches)


def _names(partitions: int) -> list[str]:
    return [f"p{i:05d}" for i in range(partitions)]


def _at(rows: int, partitions: int) -> Frontier:
    """Where the source is after so many rows."""
    return Frontier(dict.fromkeys(_names(partitions), rows // partitions))


def _feed(count: int, partitions: int, *, shuffled: bool) -> _Feed:
    chance = np.random.default_rng(_SEED)
    each = _BATCH // partitions
    names = pa.array(_names(partitions))
    batches = []
    for number in range(count):
        of = np.repeat(np.arange(partitions, dtype=np.int32), each)
        at = np.tile(number * each + np.arange(each), partitions)
        order = chance.permutation(_BATCH) if shuffled else np.arange(_BATCH)
        columns = {
            "user": pa.array([f"user-{row:015d}" for row in range(_BATCH)]),
            "amount": pa.array(chance.random(_BATCH)),
            "_partition": pa.DictionaryArray.from_arrays(pa.array(of[order]), names),
            "_offset": pa.array(at[order]),
        }
        batches.append(pa.record_batch(columns))
    return _Feed(batches, [_at(_BATCH * (number + 1), partitions) for number in range(count)])


def _run(feed: _Feed, partitions: int, bound: Bound) -> tuple[float, int]:
    """Push it all; return the rows a second, and how many rows waited at most."""
    bindings = [Binding(e, _at(_EPOCH * (e + 1), partitions)) for e in range(-(-feed.rows // _EPOCH))]
    worker = Worker(time.monotonic)
    with worker.dataflow("source", order=GAUGE) as scope:
        reader, pushed = scope.input("reader")
        arrivals = pushed.capture()
    left, waiting = 0, Waiting(feed.rows)

    def count(_stamp: Any, batch: pa.RecordBatch) -> None:
        nonlocal left
        left += len(batch)

    with worker.dataflow("flow", order=INT) as scope:
        remap, told = scope.input("remap")
        reclock_stream(told, arrivals, PartitionedRecords("pushed", ArrowRows()), waiting).inspect(count)

    def bind(until: int) -> None:
        """Bind the epochs that end within the first `until` rows; the last one ends behind them all."""
        while bindings and (until >= feed.rows or _EPOCH * (bindings[0].epoch + 1) <= until):
            binding = bindings.pop(0)
            remap.send([binding])
            remap.advance_to(binding.epoch + 1)
        worker.settle()

    most = 0
    begun = time.perf_counter()
    bind(feed.rows if bound == "ahead" else 0)
    for number, (batch, frontier) in enumerate(zip(feed.batches, feed.frontiers, strict=True), start=1):
        if waiting.reserve(len(batch)) < len(batch):
            raise AssertionError("there is no room")
        reader.send(batch)
        reader.advance_to(frontier)
        worker.settle()
        most = max(most, waiting.held)
        if bound == "behind":
            bind(_BATCH * (number - _LAG))
    bind(feed.rows)
    taken = time.perf_counter() - begun
    if left != feed.rows or waiting.held:
        raise AssertionError(f"{left} of {feed.rows} rows have left")
    return feed.rows / taken, most


def measure(room: Room) -> list[Figure]:
    """Measure eight ways of coming, in about half a minute."""
    count = room.size(100, 10)
    figures: list[Figure] = []
    ways: tuple[Bound, Bound] = ("ahead", "behind")
    for partitions in (1, 100):
        for shuffled in (False, True):
            feed = _feed(count, partitions, shuffled=shuffled)
            for bound in ways:
                order = "shuffled" if shuffled else "sorted"
                what = f"{partitions} partition{'s' * (partitions > 1)}, {order}, bindings {bound}"
                room.say(what)
                runs = [_run(feed, partitions, bound) for _ in range(_REPETITIONS)]
                note = f"{max(most for _, most in runs):,} rows waited at most"
                figures.append(Figure(f"pushed rows: {what}", "rows/s", tuple(speed for speed, _ in runs), note=note))
    return figures
