"""Which epoch a record of a partitioned source falls into, by the bindings that records may still fall into.

A *track* is one partition's: at `epochs[i]` it was bound up to `positions[i]`, and both ascend. So the record at `n`
is of the epoch of the first position above `n`, one binary search. A binding is *open* until the frontier of the
source has passed it; then nothing falls into it any more, and it is forgotten.

Invariants. A track is the partition's part of the remap table, without a front that was passed. The first open epoch
of all tracks is the first epoch that may still get a record by the bindings so far; once the source is sealed, that
of the seal counts too, until nothing at all may come.

Memory: 16 bytes an open binding, and for each partition that was ever bound where it stands.

>>> tracks = Tracks("orders", GAUGE)
>>> tracks.bind(0, Frontier({"p0": 5})), tracks.bind(1, Frontier({"p0": 9, "p1": 2}))
(['p0'], ['p0', 'p1'])
>>> tracks.between("p0", 4, 8)
(array([5]), array([0, 1]))
>>> tracks.advance([Frontier({"p0": 5})]); tracks.first(), tracks.open
(1, 2)
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tidegauge.dataflow import PARTITIONED, Order
from tidegauge.dataflow.order.partitioned import PartitionedTime, before
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.reclock import RecordBehindFrontier
from tidegauge.errors.store import FrontierRegressed
from tidegauge.reclock.places import Ints
from tidegauge.remap.frontier import GAUGE, Frontier
from tidegauge.remap.table import LARGEST

__all__ = ["UNBOUND", "Tracks", "lows_of_gauge", "lows_of_intervals"]

UNBOUND: Final = LARGEST
"""Stands for no epoch: it sorts behind all of them, and none is as large."""


@dataclass(slots=True)
class _Track:
    """One partition. Bindings before `head` are gone, up to the position `passed`; bound: where it stands now."""

    epochs: array[int] = field(default_factory=lambda: array("q"))
    positions: array[int] = field(default_factory=lambda: array("q"))
    head: int = 0
    bound: int = 0
    passed: int = 0

    def __len__(self) -> int:
        return len(self.positions) - self.head

    def bind(self, epoch: int, position: int) -> None:
        """Bind it further on."""
        self.bound = position
        if len(self) and self.epochs[-1] == epoch:
            self.positions[-1] = position
        else:
            self.epochs.append(epoch)
            self.positions.append(position)

    def forget(self, low: int) -> None:
        """Forget what no record from `low` on falls into; give the memory back when that was most of it."""
        head = bisect_right(self.positions, low, lo=self.head)
        if head > self.head:
            self.passed = self.positions[head - 1]
            self.head = head
            if 2 * head >= len(self.positions):
                del self.positions[:head], self.epochs[:head]
                self.head = 0

    def between(self, low: int, high: int, beyond: int) -> tuple[Ints, Ints]:
        """As `Tracks.between`. beyond: the epoch of positions behind the last binding."""
        first = bisect_right(self.positions, low, lo=self.head)
        last = bisect_right(self.positions, high, lo=first)
        epochs = self.epochs[first : last + 1]
        if last == len(self.positions):
            if epochs and epochs[-1] == beyond:
                last -= 1  # sealed in the epoch that it moved in last: no bound
            else:
                epochs.append(beyond)
        return np.array(self.positions[first:last], np.int64), np.array(epochs, np.int64)


class Tracks:
    """One source's tracks. order: of its scope, GAUGE or PARTITIONED. Raises InvalidArgument for another."""

    def __init__(self, source: str, order: Order[Any]) -> None:
        if order not in (GAUGE, PARTITIONED):
            raise InvalidArgument(parameter="order", value=repr(order), expected="GAUGE or PARTITIONED")
        self.source: Final = source
        self.sealed_at: int | None = None
        self._lows: Final[Callable[[Sequence[Any], Collection[str]], dict[str, int]]] = (
            lows_of_gauge if order == GAUGE else lows_of_intervals
        )
        self._tracks: Final[dict[str, _Track]] = {}
        self._open: Final[dict[str, _Track]] = {}
        self._newest = -1
        self._ended = False

    @property
    def open(self) -> int:
        """How many open bindings are kept."""
        return sum(map(len, self._open.values()))

    def bound(self, partition: str) -> int:
        """Return where a partition stands now."""
        track = self._tracks.get(partition)
        return 0 if track is None else track.bound

    def bind(self, epoch: int, frontier: Frontier) -> list[str]:
        """Take in that the source stands at `frontier` at an epoch not before the newest; return what moved by it.

        What the frontier does not name has not moved. Of several frontiers for one epoch the furthest positions
        count. Raises FrontierRegressed.
        """
        ended = self.sealed_at is not None and epoch > self.sealed_at
        moved = []
        for partition, position in frontier.items():
            bound = self.bound(partition)
            if position > bound and not ended:
                track = self._tracks.setdefault(partition, _Track())
                track.bind(epoch, position)
                self._open[partition] = track
                moved.append(partition)
            elif position != bound and (ended or epoch > self._newest):
                detail = f"partition {partition!r} from {bound}{' sealed' * ended} to {position}, epoch {epoch}"
                raise FrontierRegressed(source=self.source, detail=detail)
        if frontier.sealed and self.sealed_at is None:
            self.sealed_at = epoch
        self._newest = epoch
        return moved

    def between(self, partition: str, low: int, high: int) -> tuple[Ints, Ints]:
        """Return what the records from `low` to `high` are told apart by: bounds, and the epochs around these.

        A record is of `epochs[i]` when `i` of the bounds are at or before it; epochs ascend, `UNBOUND` where there is
        none so far. Raises RecordBehindFrontier when `low` is before a binding that is forgotten.
        """
        beyond = UNBOUND if self.sealed_at is None else self.sealed_at
        track = self._tracks.get(partition)
        if track is None:
            return np.array([], np.int64), np.array([beyond], np.int64)
        if low < track.passed:
            raise RecordBehindFrontier(
                source=self.source, partition=partition, position=int(low), passed=track.passed
            )
        return track.between(low, high, beyond)

    def advance(self, frontier: Sequence[Any]) -> None:
        """Take in the frontier of the source, as elements of its order; forget the bindings that it has passed."""
        self._ended = not frontier
        lows = self._lows(frontier, self._open)
        for partition, track in list(self._open.items()):
            track.forget(lows.get(partition, LARGEST))
            if not len(track):
                del self._open[partition]

    def first(self) -> int | None:
        """Return the first epoch that may still get records by the bindings so far, None when none may."""
        epochs = [track.epochs[track.head] for track in self._open.values()]
        if self.sealed_at is not None and not self._ended:
            epochs.append(self.sealed_at)
        return min(epochs, default=None)


def lows_of_gauge(frontier: Sequence[Frontier], partitions: Collection[str]) -> dict[str, int]:
    """Return the first position that may still come of each partition; none for those that are done.

    A reading lets come whatever no partition has gone back for: so the least position of all readings counts. A
    sealed one lets no position come.

    >>> lows_of_gauge([Frontier({"p0": 5, "p1": 2}), Frontier({"p0": 3, "p1": 7})], ["p0", "p1", "p2"])
    {'p0': 3, 'p1': 2, 'p2': 0}
    """
    readings = [reading for reading in frontier if not reading.sealed]
    return {partition: min(r[partition] for r in readings) for partition in partitions} if readings else {}


def lows_of_intervals(frontier: Iterable[PartitionedTime], partitions: Collection[str]) -> dict[str, int]:
    """Return the same for the order PARTITIONED: the least position of all intervals that a partition is in.

    O((k + n) log k) for k partitions and n elements that do not overlap, as those of a frontier mostly do not. Raises
    InvalidArgument for intervals between keys that are no texts.

    >>> lows_of_intervals(PARTITIONED.frontier({"p1": 4}), ["p0", "p1"]), lows_of_intervals([], ["p0"])
    ({'p0': 0, 'p1': 4}, {})
    """
    keys = sorted(partitions)
    cuts = [before(key) for key in keys]
    lows: dict[str, int] = {}
    for interval, position in frontier:
        try:
            within = keys[bisect_left(cuts, interval.lower) : bisect_left(cuts, interval.upper)]
        except TypeError:
            raise InvalidArgument(
                parameter="frontier", value=repr(interval), expected="intervals between partitions that are texts"
            ) from None
        for key in within:
            if position < lows.get(key, LARGEST):
                lows[key] = position
    return lows
