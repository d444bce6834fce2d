"""The records of a partitioned source that come by themselves: bound ones leave with their epoch, the rest waits.

A batch is placed by one search for each of its partitions (`tracks`). It leaves whole when all of it has one epoch,
as slices when its epochs ascend, and is put in order once when they do not, so that no epoch gets more than one piece
of it. Waiting records stay in runs, each of one partition and sorted by position, in a heap for each partition.
Records that leave at once keep their sequence within the epoch; waiting ones leave run by run.

Invariants. A record that waits is beyond every binding so far. So a new binding only ever takes from the front of the
runs, and old ones are never asked again: the work is O(log) for each run that is cut and for each piece that leaves.
What waits keeps at most four times its own size alive, because a rest that is less than a quarter of its batch is
copied out of it.

>>> from tidegauge.reclock.places import Pairs
>>> orders = PartitionedRecords("orders", Pairs())
>>> orders.bind(0, Frontier({"p0": 5}))
>>> orders.take([("tea", ("p0", 4)), ("salt", ("p0", 5)), ("oil", ("p1", 0))])
[(0, [('tea', ('p0', 4))])]
>>> orders.bind(1, Frontier({"p0": 9}))
>>> orders.release(), orders.waiting, orders.first()
([(1, [('salt', ('p0', 5))])], 1, 0)
>>> orders.advance([Frontier({"p0": 6})])
>>> orders.first()
1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np

from tidegauge.dataflow import Order
from tidegauge.reclock.places import B, Ints, Layout, Numbers, Places, narrow
from tidegauge.reclock.tracks import UNBOUND, Tracks
from tidegauge.remap.frontier import GAUGE, Frontier

__all__ = ["PartitionedRecords", "Stamped"]

T = TypeVar("T")

Stamped: TypeAlias = tuple[int, T]
"""An epoch, and records that belong to it."""


class _Run(Generic[B]):
    """Records of one partition that wait, sorted by position. size: of the batch whose memory they keep alive."""

    __slots__ = ("positions", "rows", "serial", "size")

    def __init__(self, serial: int, positions: Ints, rows: B, size: int) -> None:
        self.serial = serial
        self.positions = positions
        self.rows = rows
        self.size = size

    def __lt__(self, other: _Run[B]) -> bool:
        mine, others = self.positions[0], other.positions[0]
        return bool(mine < others) or (bool(mine == others) and self.serial < other.serial)


class PartitionedRecords(Generic[B]):
    """One source with partitions. It belongs to one thread.

    order: of the source's scope, GAUGE or PARTITIONED, with partitions that are texts. Raises InvalidArgument for
    another order.
    """

    def __init__(self, source: str, layout: Layout[B], *, order: Order[Any] = GAUGE) -> None:
        self.source: Final = source
        self.order: Final = order
        self.waiting = 0
        self._layout: Final = layout
        self._tracks: Final = Tracks(source, order)
        self._runs: Final[dict[str, list[_Run[B]]]] = {}
        self._moved: Final[set[str]] = set()
        self._serial = 0

    @property
    def open(self) -> int:
        """How many bindings are kept: those that records may still fall into."""
        return self._tracks.open

    def bind(self, epoch: int, frontier: Frontier) -> None:
        """Take in that the source stands at `frontier` at an epoch, which is not before the newest one.

        What the frontier does not name has not moved. Of several frontiers for one epoch the furthest positions
        count. Raises FrontierRegressed.
        """
        self._moved.update(self._tracks.bind(epoch, frontier))

    def take(self, batch: B) -> list[Stamped[B]]:
        """Return the pieces of a batch that have an epoch, by epoch, at most one for each; keep the rest.

        Raises RecordBehindFrontier and UnplacedRecords; then nothing has changed.
        """
        if not len(batch):
            return []
        places = self._layout.places(batch, self.source)
        if places.codes is None and _ascending(places.positions):
            bounds, epochs = self._tracks.between(places.partitions[0], places.positions[0], places.positions[-1])
            cuts = [0, *np.searchsorted(places.positions, bounds).tolist(), len(batch)]
            pieces = [(*cut, epoch) for cut, epoch in zip(pairwise(cuts), epochs.tolist(), strict=True)]
            rows = batch
        else:
            rows, places, pieces = self._in_order(batch, places)
        start, stop, last = pieces[-1]
        if last == UNBOUND:
            pieces.pop()
            if start < stop:
                self._keep(self._slice(rows, start, stop), places.slice(start, stop), len(batch))
        return [(epoch, self._slice(rows, start, stop)) for start, stop, epoch in pieces if start < stop]

    def release(self) -> list[Stamped[B]]:
        """Return what waited and has an epoch by the bindings since the last call."""
        placed: list[Stamped[B]] = []
        sealed = self._tracks.sealed_at is not None
        for partition in list(self._runs) if sealed else sorted(self._moved & self._runs.keys()):
            runs, bound = self._runs[partition], self._tracks.bound(partition)
            while runs and (sealed or runs[0].positions[0] < bound):
                placed += self._cut(partition, heappop(runs))
            if not runs:
                del self._runs[partition]
        self._moved.clear()
        return placed

    def forget(self) -> int:
        """Forget what waits; return how many records that was."""
        forgotten, self.waiting = self.waiting, 0
        self._runs.clear()
        return forgotten

    def advance(self, frontier: Sequence[Any]) -> None:
        """Take in the frontier of the source, as elements of its order; forget the bindings that it has passed."""
        self._tracks.advance(frontier)

    def first(self) -> int | None:
        """Return the first epoch that may still get records by the bindings so far, None when none may."""
        return self._tracks.first()

    def _in_order(self, batch: B, places: Places) -> tuple[B, Places, list[tuple[int, int, int]]]:
        """Return a batch with its places so that its epochs ascend, and the pieces `(start, stop, epoch)`."""
        found = []
        for partition, rows in _by_partition(places):
            positions = places.positions[rows]
            bounds, around = self._tracks.between(partition, positions.min(), positions.max())
            found.append((rows, around, np.searchsorted(bounds, positions, side="right")))
        epochs = np.unique(np.concatenate([around for _, around, _ in found]))
        ranks = narrow(np.zeros(len(batch), np.int64), len(epochs))
        for rows, around, at in found:
            ranks[rows] = np.searchsorted(epochs, around)[at]
        if not _ascending(ranks):
            order = np.argsort(ranks, kind="stable")
            batch, places, ranks = self._layout.take(batch, order), places.take(order), ranks[order]
        cuts = [0, *(np.flatnonzero(np.diff(ranks)) + 1).tolist(), len(ranks)]
        return batch, places, [(start, stop, int(epochs[ranks[start]])) for start, stop in pairwise(cuts)]

    def _keep(self, rows: B, places: Places, size: int) -> None:
        """Let records wait. size: of the batch that they are a part of."""
        for partition, part in _by_partition(places):
            order: Ints | None = None if isinstance(part, slice) else part
            positions = places.positions[part]
            if not _ascending(positions):
                sorting = np.argsort(positions, kind="stable")
                order, positions = sorting if order is None else order[sorting], positions[sorting]
            kept = rows if order is None else self._layout.take(rows, order)
            run = _Run(self._serial, positions, kept, size if order is None else len(positions))
            self._serial += 1
            self.waiting += len(positions)
            self._wait(partition, run)

    def _cut(self, partition: str, run: _Run[B]) -> list[Stamped[B]]:
        """Return the pieces of a run that have an epoch now; let the rest wait."""
        size = len(run.positions)
        bounds, epochs = self._tracks.between(partition, run.positions[0], run.positions[-1])
        cuts = [0, *np.searchsorted(run.positions, bounds).tolist(), size]
        placed: list[Stamped[B]] = []
        rest = size
        for (start, stop), epoch in zip(pairwise(cuts), epochs.tolist(), strict=True):
            if epoch == UNBOUND:
                rest = start
            elif start < stop:
                placed.append((epoch, self._slice(run.rows, start, stop)))
        self.waiting -= rest
        if rest < size:
            run.rows, run.positions = self._slice(run.rows, rest, size), run.positions[rest:]
            self._wait(partition, run)
        return placed

    def _wait(self, partition: str, run: _Run[B]) -> None:
        """Let a run wait, copied out of its batch when it is less than a quarter of it."""
        if 4 * len(run.positions) < run.size:
            run.size = len(run.positions)
            run.rows = self._layout.take(run.rows, np.arange(run.size))
            run.positions = run.positions.copy()
        heappush(self._runs.setdefault(partition, []), run)

    def _slice(self, rows: B, start: int, stop: int) -> B:
        return rows if stop - start == len(rows) else self._layout.slice(rows, start, stop)


def _by_partition(places: Places) -> Iterator[tuple[str, Any]]:
    """Yield each partition with what selects its records, in their sequence: a slice of all, or the rows."""
    if places.codes is None:
        yield places.partitions[0], slice(None)
        return
    order = np.argsort(places.codes, kind="stable")
    codes = places.codes[order]
    cuts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, stop in pairwise(cuts):
        yield places.partitions[codes[start]], order[start:stop]


def _ascending(numbers: Numbers) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())
