"""An interval of partitions, known or not: what lies between two *cuts* of the line of all keys.

A cut lies between keys, never on one: before a key, after it, or before or after all there are. An interval with cuts
for bounds needs neither a first and a last key (as inclusive bounds do for "all the others"), nor the key next to a
given one (as splitting at a key does with them): strings have neither. The price is an interval between the
neighbours 3 and 4 that no integer is in; nothing ever comes of it.

Invariant: intervals are not empty: `lower < upper`. Cuts sort by Python's `<`, places on a line as they are; keys
only have to sort among themselves.

>>> ALL.contains("tea"), Interval(after(3), LAST), only("tea"), Interval(before(2), after(6))
(True, (3..), {'tea'}, [2..6])
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

__all__ = ["ALL", "FIRST", "LAST", "Cut", "Interval", "Key", "after", "before", "only"]

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
