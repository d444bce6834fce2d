"""Times of a source that has partitions, and may have more of them tomorrow: `(interval of partitions, position)`.

`a` is before `b` when its interval encloses that of `b` and its position is at most that of `b`. So the minimum is
all partitions at 0, and times of different partitions do not compare. *All partitions not seen yet* are intervals
with a position of their own, 0. They are what lets one partition go on while others may still turn up: who holds the
minimum splits a partition off it, goes on with that one, and keeps the intervals before and after it.

A frontier with `k` known partitions has `2k + 1` elements: each partition at its next position (law 6), and the gaps
between them at 0.

>>> first = PARTITIONED.frontier({"salt": 3, "tea": 5})
>>> first
(((..'salt'), 0), ({'salt'}, 3), (('salt'..'tea'), 0), ({'tea'}, 5), (('tea'..), 0))
>>> PARTITIONED.mapping(first), PARTITIONED.position(first, "tea"), PARTITIONED.position(first, "pepper")
({'salt': 3, 'tea': 5}, 5, 0)

An interval lies between two *cuts* of the line of all keys. A cut lies between keys, never on one: before a key,
after it, or before or after all there are. An interval with cuts for bounds needs neither a first and a last key (as
inclusive bounds do for "all the others"), nor the key next to a given one (as splitting at a key does with them):
strings have neither. The price is an interval between the neighbours 3 and 4 that no integer is in; nothing ever
comes of it.

>>> ALL.contains("tea"), Interval(after(3), LAST), only("tea"), Interval(before(2), after(6))
(True, (3..), {'tea'}, [2..6])

Invariant: `mapping(frontier(positions)) == positions`. Intervals are not empty: `lower < upper`. Cuts sort by
Python's `<`, like places on a line; keys only have to sort among themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import le
from typing import Any, Final, NamedTuple, TypeAlias

from tidegauge.dataflow.order.numbers import INT, amount
from tidegauge.dataflow.order.protocol import Summary, advance, compose, summary_less_equal
from tidegauge.dataflow.order.search import Finding
from tidegauge.errors.dataflow import InvalidSummary, InvalidTime

__all__ = [
    "ALL",
    "FIRST",
    "LAST",
    "PARTITIONED",
    "Cut",
    "Interval",
    "Key",
    "Partitioned",
    "PartitionedTime",
    "after",
    "before",
    "only",
]

Key: TypeAlias = Any
"""A partition's name: hashable, and Python's `<` is a total order among the keys of one source."""
Cut: TypeAlias = tuple[Any, ...]
"""A place between keys, as a tuple that sorts where it lies."""

FIRST: Final[Cut] = (0,)
LAST: Final[Cut] = (2,)


def before(key: Key) -> Cut:
    """Return the cut just before a key.

    >>> FIRST < before(-5) < before(3)
    True
    """
    return (1, key, 0)


def after(key: Key) -> Cut:
    """Return the cut just after a key.

    >>> before(3) < after(3) < before(4) < LAST
    True
    """
    return (1, key, 1)


class Interval(NamedTuple):
    """The keys between two cuts. A tuple, for its hash and comparisons are made often.

    They sort from the first cut on, of these the widest first: so none comes before one that encloses it.

    >>> sorted([only(3), Interval(before(3), LAST), ALL])
    [(..), [3..), {3}]
    """

    lower: Cut
    upper: Cut

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        lower, upper = other
        return self[0] < lower if self[0] != lower else bool(upper < self[1])

    def __gt__(self, other: tuple[Any, ...]) -> bool:
        lower, upper = other
        return lower < self[0] if self[0] != lower else bool(self[1] < upper)

    def __le__(self, other: tuple[Any, ...]) -> bool:
        return not self > other

    def __ge__(self, other: tuple[Any, ...]) -> bool:
        return not self < other

    @property
    def single(self) -> bool:
        """Whether it is that of one key."""
        return len(self.lower) == 3 and self.upper == after(self.lower[1])

    @property
    def sound(self) -> bool:
        """Whether its bounds are cuts, the lower before the upper."""
        lower, upper = self
        try:
            return _is_cut(lower) and _is_cut(upper) and bool(lower < upper)
        except TypeError:  # keys that do not sort
            return False

    def contains(self, key: Key) -> bool:
        """Whether a key is in it.

        >>> Interval(FIRST, before(10)).contains(9), Interval(FIRST, before(10)).contains(10)
        (True, False)
        """
        return self.lower <= (1, key, 0) and (1, key, 1) <= self.upper

    def encloses(self, other: Interval) -> bool:
        """Whether all of the other is in it.

        >>> ALL.encloses(only(3)), only(3).encloses(ALL)
        (True, False)
        """
        return self.lower <= other.lower and other.upper <= self.upper

    def common(self, other: Interval) -> Interval | None:
        """Return the intersection, None if it is empty.

        >>> Interval(FIRST, before(10)).common(Interval(after(5), LAST)), only(3).common(only(4))
        ((5..10), None)
        """
        lower, upper = max(self.lower, other.lower), min(self.upper, other.upper)
        return Interval(lower, upper) if lower < upper else None

    def hull(self, other: Interval) -> Interval:
        """Return the least interval that encloses both.

        >>> only(3).hull(only(7))
        [3..7]
        """
        return Interval(min(self.lower, other.lower), max(self.upper, other.upper))

    def __repr__(self) -> str:
        if self.single:
            return f"{{{self.lower[1]!r}}}"
        if not all(map(_is_cut, self)):
            return f"Interval{tuple(self)!r}"
        lower = "(" if self.lower == FIRST else f"{'[('[self.lower[2]]}{self.lower[1]!r}"
        upper = ")" if self.upper == LAST else f"{self.upper[1]!r}{')]'[self.upper[2]]}"
        return f"{lower}..{upper}"


def only(key: Key) -> Interval:
    """Return the interval of one key.

    >>> only("tea").contains("tea"), only("tea").contains("team")
    (True, False)
    """
    return Interval(before(key), after(key))


ALL: Final = Interval(FIRST, LAST)


def _is_cut(cut: object) -> bool:
    if isinstance(cut, tuple) and len(cut) == 3:
        return bool(cut[0] == 1 and (cut[2] == 1 or cut[2] == 0))
    return cut in (FIRST, LAST)


PartitionedTime: TypeAlias = tuple[Interval, int]
"""An interval of partitions, and the next position of each of them."""


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The order of `(interval, position)`. Positions are integers from 0 up, keys of one type that Python sorts.

    A summary is a pair `(interval, amount)`, either of them possibly None: the path is only for these partitions, and
    adds to their position. A time with nothing in the interval cannot cross.

    Two times have a greatest one before both: the least interval that encloses both, at the smaller position. They
    have a least one beyond both only where the intervals meet, for no time has no partition at all. So this is no
    lattice: there is `meet`, and no `join`.

    >>> PARTITIONED.less_equal((ALL, 0), (only("tea"), 5)), PARTITIONED.less_equal((only("tea"), 5), (ALL, 5))
    (True, False)
    """

    minimum: PartitionedTime = field(default=(ALL, 0), init=False, repr=False)
    total: bool = field(default=False, init=False, repr=False)

    def has(self, value: object, /) -> bool:
        """Whether a value is an interval that is not empty, and a position from 0 up."""
        if not isinstance(value, tuple) or len(value) != 2:
            return False
        return isinstance(value[0], Interval) and value[0].sound and INT.has(value[1])

    def less_equal(self, a: PartitionedTime, b: PartitionedTime, /) -> bool:
        """Whether the interval encloses the other's, and the position is at most the other's."""
        mine, other = a[0], b[0]
        return a[1] <= b[1] and mine[0] <= other[0] and other[1] <= mine[1]

    def sort_key(self, time: PartitionedTime, /) -> PartitionedTime:
        """Return the time itself: intervals sort such that none comes before one that encloses it."""
        return time

    def finder(self, times: Sequence[PartitionedTime], /) -> Finding[PartitionedTime]:
        """Return what finds one of the times at or before a time, another one than itself where there is one.

        Whatever encloses an interval begins at its first cut or before. From there it looks back as far as any of the
        intervals reaches: where they do not overlap, that is one step. The place of a cut at which one of them begins
        is in a dict, which is quicker than to search for it.
        """
        along = sorted(times, key=_first_cut)
        lowers = list(map(_first_cut, along))
        reach = list(accumulate([time[0][1] for time in along], max))
        last = {lower: at for at, lower in enumerate(lowers)}

        def seek(time: PartitionedTime) -> PartitionedTime | None:
            (lower, upper), position = time
            found: PartitionedTime | None = None
            at = last.get(lower, -1)
            if at < 0:
                at = bisect_right(lowers, lower) - 1
            while at >= 0 and reach[at] >= upper:
                candidate = along[at]
                if candidate[1] <= position and candidate[0][1] >= upper:
                    if candidate != time:
                        return candidate
                    found = candidate
                at -= 1
            return found

        return seek

    def apart(self, times: Sequence[PartitionedTime], /) -> bool:
        """Whether each interval ends before the next one begins, so that none encloses another."""
        uppers = [time[0][1] for time in times]
        return all(map(le, uppers, map(_first_cut, times[1:])))

    def normal(self, summary: Summary, /) -> Summary:
        """Return the summary with None for all partitions and for 0; None when it is both. Raises InvalidSummary."""
        if summary is None:
            return None
        if not isinstance(summary, tuple) or len(summary) != 2:
            raise InvalidSummary(
                summary=repr(summary), order=repr(self), problem="it is not a pair (interval, amount)"
            )
        interval, step = summary
        if not (interval is None or (isinstance(interval, Interval) and interval.lower < interval.upper)):
            raise InvalidSummary(summary=repr(summary), order=repr(self), problem="it restricts to no interval")
        pair = (None if interval == ALL else interval, amount(INT, step))
        return None if pair == (None, None) else pair

    def idle(self, summary: tuple[Interval | None, int | None], /) -> bool:
        """Whether it only restricts: times in the interval stay unchanged."""
        return summary[1] is None

    def results_in(
        self, time: PartitionedTime, summary: tuple[Interval | None, int | None], /
    ) -> PartitionedTime | None:
        """Return what the intervals have in common, further on; None when that is nothing."""
        interval = time[0] if summary[0] is None else time[0].common(summary[0])
        position = advance(INT, time[1], summary[1])
        return None if interval is None or position is None else (interval, position)

    def followed_by(
        self, first: tuple[Interval | None, int | None], second: tuple[Interval | None, int | None], /
    ) -> Summary:
        """Return what the intervals have in common, with both amounts; None when that is nothing."""
        interval = (first[0] or ALL).common(second[0] or ALL)
        return None if interval is None else self.normal((interval, compose(INT, first[1], second[1])))

    def summary_less_equal(
        self, a: tuple[Interval | None, int | None], b: tuple[Interval | None, int | None], /
    ) -> bool:
        """Whether the interval encloses the other's, and the amount is at most the other's."""
        return (a[0] or ALL).encloses(b[0] or ALL) and summary_less_equal(INT, a[1], b[1])

    def meet(self, a: PartitionedTime, b: PartitionedTime, /) -> PartitionedTime:
        """Return the greatest time before both.

        >>> PARTITIONED.meet((only(3), 5), (only(7), 4))
        ([3..7], 4)
        """
        return (a[0].hull(b[0]), min(a[1], b[1]))

    def at(self, partition: Key, position: int) -> PartitionedTime:
        """Return the time of one partition at its next position. Raises InvalidTime."""
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise InvalidTime(order=repr(self), problem=f"partition {partition!r} at position {position!r}")
        return (only(partition), position)

    def between(self, lower: Cut, upper: Cut, position: int) -> PartitionedTime:
        """Return the time of all partitions between two cuts. Raises InvalidTime when there is nothing between them.

        >>> PARTITIONED.between(FIRST, before(10), 4)
        ((..10), 4)
        """
        if not lower < upper:
            raise InvalidTime(order=repr(self), problem=f"nothing lies between the cuts {lower!r} and {upper!r}")
        return (Interval(lower, upper), position)

    def split(
        self, time: PartitionedTime, partition: Key
    ) -> tuple[PartitionedTime | None, PartitionedTime, PartitionedTime | None]:
        """Return the times before a partition, of the partition, and after it, at one position.

        None where nothing is left. Raises InvalidTime when the time does not contain the partition.

        >>> PARTITIONED.split((ALL, 0), "tea")
        (((..'tea'), 0), ({'tea'}, 0), (('tea'..), 0))
        """
        interval, position = time
        if not interval.contains(partition):
            raise InvalidTime(order=repr(self), problem=f"{time!r} does not contain the partition {partition!r}")
        lower, upper = before(partition), after(partition)
        return (
            (Interval(interval.lower, lower), position) if interval.lower < lower else None,
            (Interval(lower, upper), position),
            (Interval(upper, interval.upper), position) if upper < interval.upper else None,
        )

    def frontier(self, positions: Mapping[Key, int]) -> tuple[PartitionedTime, ...]:
        """Return the elements of the frontier with these next positions, all other partitions at 0, in sort order.

        No two of them compare, so it is for the caller whether to check that again. Raises InvalidTime.
        """
        try:
            partitions = sorted(positions)
        except TypeError:
            raise InvalidTime(order=repr(self), problem=f"partitions {list(positions)!r} that do not sort") from None
        times: list[PartitionedTime] = []
        lower = FIRST
        for partition in partitions:
            own = self.at(partition, positions[partition])
            times += [(Interval(lower, own[0].lower), 0), own]
            lower = own[0].upper
        return (*times, (Interval(lower, LAST), 0))

    def mapping(self, frontier: Iterable[PartitionedTime]) -> dict[Any, int]:
        """Return the next positions of the partitions that a frontier has for themselves, in the order of it."""
        return {interval.lower[1]: position for interval, position in frontier if interval.single}

    def position(self, frontier: Iterable[PartitionedTime], partition: Key) -> int | None:
        """Return the next position of a partition, seen before or not; None when nothing of it will come any more.

        >>> PARTITIONED.position([(only(3), 7)], 4) is None
        True
        """
        return min((position for interval, position in frontier if interval.contains(partition)), default=None)


def _first_cut(time: PartitionedTime) -> Cut:
    return time[0][0]


PARTITIONED: Final = Partitioned()
