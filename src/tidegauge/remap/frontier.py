"""A frontier says, for every partition of a source, which position comes next.

Law 6: positions are exclusive. `{"p0": 5}` means that records 0..4 of p0 are in. A partition that is not named is
at its origin, 0, whether it exists yet or not; so a frontier is a total function and needs no list of partitions.

As an order, `a <= b` iff every position of `a` is at most that of `b`. A *sealed* frontier is the end (law 5):
nothing more will ever come; it is the top of the order and keeps its positions only to say where the source ended.
In a source's own scope frontiers are the times, and `GAUGE` is their order.

>>> a, b = Frontier({"p0": 5}), Frontier({"p0": 5, "p1": 2})
>>> a.less_equal(b), b.less_equal(a), Frontier({"p0": 0}) == Frontier()
(True, False, True)
>>> b.since(a)
{'p1': (0, 2)}
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from itertools import compress, repeat
from operator import gt, ne
from typing import Any, Final
from weakref import ref

from tidegauge.errors.flow import InvalidArgument

__all__ = ["GAUGE", "ORIGIN", "Frontier", "Gauge"]

_STRETCH: Final = 256


class Frontier(Mapping[str, int]):
    """An immutable mapping from partition to next position, hashable, with `sealed` as the end of the source.

    Positions are non-negative integers in the source's own unit; zeros are dropped so that equality is canonical.
    Raises `InvalidArgument` for others, and for partitions that are no texts.
    """

    __slots__ = ("__weakref__", "_compared", "_hash", "_lay_out", "_positions", "sealed")
    _positions: dict[str, int]
    """Not there yet in a frontier that was deferred."""
    _lay_out: Callable[[], dict[str, int]]
    """Only there in a frontier that was deferred."""

    def __init__(self, positions: Mapping[str, int] | None = None, *, sealed: bool = False) -> None:
        given = dict(positions or {})
        kinds = {*map(type, given)}, {*map(type, given.values())}  # no Python frame for each: a frontier can be wide
        if kinds != ({str}, {int}) or min(given.values()) < 0:
            _check(given)
        self._positions = given if all(given.values()) else {p: n for p, n in given.items() if n}
        self.sealed: Final = sealed
        self._hash: int | None = None
        self._compared: _Comparison | None = None

    @classmethod
    def deferred(cls, lay_out: Callable[[], dict[str, int]], *, sealed: bool = False) -> Frontier:
        """Return the frontier of the positions that `lay_out()` returns, all above 0, called at the first look.

        So a frontier that nobody looks into costs nothing, however wide it is. When it is called must not matter.

        >>> Frontier.deferred(lambda: {"p0": 5}) == Frontier({"p0": 5})
        True
        """
        made = cls(sealed=sealed)
        made._lay_out = lay_out
        del made._positions
        return made

    def __getattr__(self, name: str) -> Any:
        if name != "_positions" or not hasattr(self, "_lay_out"):
            raise AttributeError(name)
        self._positions = self._lay_out()  # a slot that is set is found without coming here
        return self._positions

    def __getitem__(self, partition: str) -> int:
        return self._positions.get(partition, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def items(self) -> ItemsView[str, int]:
        """Return the named partitions with their positions, as a dict's own view (a frontier can be wide)."""
        return self._positions.items()

    def values(self) -> ValuesView[int]:
        """Return the positions of the named partitions, as a dict's own view."""
        return self._positions.values()

    def __contains__(self, partition: object) -> bool:
        return partition in self._positions

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Frontier):
            return NotImplemented
        known = self._compared
        if known is not None and known.earlier() is other:
            return self.sealed == other.sealed and not known.moved and not known.back
        return self.sealed == other.sealed and self._positions == other._positions

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.sealed, frozenset(self._positions.items())))
        return self._hash

    def __repr__(self) -> str:
        end = ", sealed=True" if self.sealed else ""
        return f"Frontier({self._positions!r}{end})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_frontier, (dict(self._positions), self.sealed))

    def less_equal(self, other: Frontier) -> bool:
        """Whether everything in by `self` is also in by `other`."""
        if other.sealed or self is other:
            return True
        if self.sealed:
            return False
        return not any(_beyond(self._positions, other._positions))

    def follows(self, earlier: Frontier) -> bool:
        """Whether a source that was at `earlier` can be here now.

        No position goes back, not even under a seal (which `less_equal` would let pass), and nothing follows a seal.
        """
        if self is earlier:
            return True
        if earlier.sealed:
            return self == earlier
        return not self._compare(earlier).back

    def join(self, other: Frontier) -> Frontier:
        """Return the least frontier beyond both: the larger position of each partition."""
        joined = dict(self._positions)
        for partition, position in other._positions.items():
            joined[partition] = max(position, joined.get(partition, 0))
        return Frontier(joined, sealed=self.sealed or other.sealed)

    def meet(self, other: Frontier) -> Frontier:
        """Return the greatest frontier before both: the smaller position of each partition."""
        if self.sealed and not other.sealed:
            return other
        if other.sealed and not self.sealed:
            return self
        shared = {p: min(n, other[p]) for p, n in self._positions.items()}
        return Frontier(shared, sealed=self.sealed)

    def since(self, earlier: Frontier) -> dict[str, tuple[int, int]]:
        """Return the ranges `partition -> (lower, upper)` that are in by `self` and not by `earlier`, sorted."""
        return dict(self._compare(earlier).moved)

    def distance(self, earlier: Frontier) -> int:
        """Return how many positions lie between `earlier` and this frontier."""
        return sum(n - earlier[p] for p, n in self._positions.items() if n > earlier[p])

    def seal(self) -> Frontier:
        """Return this frontier as the end of its source."""
        return Frontier(self._positions, sealed=True)

    def _compare(self, earlier: Frontier) -> _Comparison:
        """Compare the positions. The last comparison is kept: all that a tick goes through asks for the same one."""
        found = self._compared
        if found is None or found.earlier() is not earlier:
            ours, theirs = self._positions, earlier._positions
            others, gone = _differing(ours, theirs)
            moved = {p: (lower, ours[p]) for p in sorted(others) if (lower := theirs.get(p, 0)) < ours[p]}
            found = self._compared = _Comparison(ref(earlier), moved, gone or len(moved) < len(others))
        return found


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What lies between a frontier and an earlier one: what moved, and whether something went back.

    The earlier one is not kept alive, or else every frontier would keep all before it.
    """

    earlier: ref[Frontier]
    moved: dict[str, tuple[int, int]]
    back: bool


def _check(positions: Mapping[str, int]) -> None:
    for partition, position in positions.items():
        if not isinstance(partition, str):
            raise InvalidArgument(parameter="partition", value=partition, expected="a text")
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise InvalidArgument(
                parameter=f"the position of {partition!r}", value=position, expected="an integer, zero or more"
            )


def _differing(ours: dict[str, int], theirs: dict[str, int]) -> tuple[list[str], bool]:
    """Return which of our partitions are elsewhere in theirs, and whether theirs has one that ours has not.

    Frontiers can be wide, and most of the time hardly anything has moved: then the partitions are the same, in the
    same sequence, and whole stretches of positions are equal, which Python finds without a look at each.
    """
    names = list(ours)
    if names == list(theirs):
        here, there = list(ours.values()), list(theirs.values())
        found: list[str] = []
        for first in range(0, len(names), _STRETCH):
            stretch = slice(first, first + _STRETCH)
            if (at := here[stretch]) != (was := there[stretch]):
                found += compress(names[stretch], map(ne, at, was))
        return found, False
    other = list(map(theirs.get, names))
    gone = len(theirs) > len(names) - other.count(None)
    return list(compress(names, map(ne, ours.values(), other))), gone


def _beyond(ours: dict[str, int], theirs: dict[str, int]) -> Iterator[bool]:
    """Whether each position of ours is beyond theirs; without a Python frame for each, as frontiers can be wide."""
    return map(gt, ours.values(), map(theirs.get, ours, repeat(0)))


def _frontier(positions: dict[str, int], sealed: bool) -> Frontier:  # noqa: FBT001 - the shape that pickle calls
    return Frontier(positions, sealed=sealed)


ORIGIN: Final = Frontier()
"""Nothing is in yet."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """The pointwise order on frontiers. It has no summaries: a source's scope has no loops.

    A time is a reading of the source's gauge, which names the next position of every partition at once. The order is
    the product of all partitions' orders, those not seen yet included: they read 0. So a reader needs a single
    capability, however many partitions it has, and a new partition needs no bookkeeping.

    >>> GAUGE.less_equal(Frontier({"p0": 5}), Frontier({"p1": 9}))
    False
    """

    @property
    def minimum(self) -> Frontier:
        """The reading before anything was read."""
        return ORIGIN

    @property
    def total(self) -> bool:
        """Readings of several partitions may cross."""
        return False

    def has(self, value: object, /) -> bool:
        """Whether a value is a reading."""
        return isinstance(value, Frontier)

    def less_equal(self, a: Frontier, b: Frontier, /) -> bool:
        """Whether no partition is further in `a` than in `b`."""
        return a.less_equal(b)

    def sort_key(self, time: Frontier, /) -> tuple[bool, int]:
        """Return whether it is the end, which sorts last, and the sum of all positions.

        If `a < b` and neither is the end, some position is larger and none smaller, so the sum is larger.
        """
        return time.sealed, sum(time.values())


GAUGE: Final = Gauge()
"""The one instance that is needed."""
