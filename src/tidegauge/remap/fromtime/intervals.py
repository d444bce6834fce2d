"""From a frontier to the times of its partitions, known or not, and back.

In the order `PARTITIONED` a time is an interval of partitions and a position: a key by itself stands where it is, and
the intervals between the known keys are all partitions that may still appear, at 0. A `Frontier` says the same with
less: a partition that it does not name is at 0. So a partition that appears is a key split off its interval there,
and nothing but a new name here.

Not all antichains are frontiers. Endlessly many partitions at another position than 0 are not, nor are some at
their end while others go on; both are refused. A bounded interval of integers is its partitions, each where it is.

Let `F` be a frontier that is not sealed, and `A` the times of it. Invariants:

    positions_of(A) == F,  and  F.less_equal(G)  iff  each time of G is at or beyond some time of F

A sealed frontier has no times: nothing more will come.

>>> times = times_of({3: 5, 7: 2}); times
(((..3), 0), ({3}, 5), ((3..7), 0), ({7}, 2), ((7..), 0))
>>> positions_of(times, int)
{3: 5, 7: 2}
>>> from tidegauge.dataflow.order import after
>>> two, four = before(2), after(4)
>>> positions_of([(Interval(FIRST, two), 0), (Interval(two, four), 9), (Interval(four, LAST), 0)], int)
{2: 9, 3: 9, 4: 9}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidegauge.dataflow.order import FIRST, LAST, PARTITIONED, Cut, Interval, PartitionedTime, before
from tidegauge.dataflow.order.partitioned import Key

__all__ = ["WIDEST", "positions_of", "times_of"]

WIDEST: Final = 2**16
"""Partitions that one interval of integers may stand for."""


def times_of(positions: Mapping[Key, int]) -> tuple[PartitionedTime, ...]:
    """Return the antichain of a frontier that is not sealed, in sort order.

    Between two neighbouring integers there is nothing that could appear: that interval is left out.

    >>> times_of({3: 5, 4: 2})
    (((..3), 0), ({3}, 5), ({4}, 2), ((4..), 0))
    """
    return tuple(time for time in PARTITIONED.frontier(positions) if _holds_any(time[0]))


def positions_of(times: Iterable[PartitionedTime], key: type[str] | type[int]) -> dict[Any, int]:
    """Return the positions above 0 of an antichain that is not empty. Raises ValueError, which says why it is none.

    The intervals must cover all partitions, each once, with keys of the type `key`.
    """
    found: dict[Any, int] = {}
    reached = FIRST
    for interval, position in _sorted(times, key):
        if interval.lower < reached:
            raise ValueError(f"{interval!r} overlaps with the interval before it")
        _pass_over(reached, interval.lower)
        reached = interval.upper
        if position:
            found.update(dict.fromkeys(_keys(interval), position))
    _pass_over(reached, LAST)
    return found


def _sorted(times: Iterable[PartitionedTime], key: type) -> list[PartitionedTime]:
    """Return times in the order of their intervals, with one cut for all at the same place, and no empty ones."""
    found: list[PartitionedTime] = []
    for time in times:
        if not PARTITIONED.has(time) or any(len(cut) == 3 and type(cut[1]) is not key for cut in time[0]):
            raise ValueError(f"{time!r} is no interval of partitions of type {key.__name__} with a position")
        if _holds_any(time[0]):
            found.append((Interval(_cut(time[0].lower), _cut(time[0].upper)), time[1]))
    return sorted(found, key=lambda time: time[0])


def _cut(cut: Cut) -> Cut:
    """Return the one cut that stands for all between the same two integers: the one before the second of them.

    >>> _cut((1, 3, 1)), _cut((1, 3, 0)), _cut((1, "tea", 1))
    ((1, 4, 0), (1, 3, 0), (1, 'tea', 1))
    """
    return before(cut[1] + 1) if len(cut) == 3 and isinstance(cut[1], int) and cut[2] else cut


def _holds_any(interval: Interval) -> bool:
    return bool(_cut(interval.lower) < _cut(interval.upper))


def _pass_over(lower: Cut, upper: Cut) -> None:
    if lower < upper:
        raise ValueError(f"the partitions {Interval(lower, upper)!r} have ended, and others go on")


def _keys(interval: Interval) -> Iterable[Key]:
    """Return the keys of an interval that are all of them known."""
    if interval.single:
        return (interval.lower[1],)
    if not all(len(cut) == 3 and isinstance(cut[1], int) for cut in interval):
        raise ValueError(f"the partitions {interval!r} are not all known, and so must be at 0")
    first, end = interval.lower[1], interval.upper[1]
    if end - first > WIDEST:
        raise ValueError(f"{interval!r} has more than {WIDEST} partitions")
    return range(first, end)
