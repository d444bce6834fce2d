"""The minimal times among all that were put in, as a value.

Invariant: no element is at or before another. As a frontier an antichain stands for everything at or beyond one of
its elements, that is for what may still come; so the empty one is the greatest: the end (law 5).

Bounds of antichains are bounds of what they stand for: `antichain_meet` exists in any order, `antichain_join` in a
lattice. `advance_by` takes a time as far as nobody notices who only looks beyond a frontier: it compacts histories.

>>> from tidegauge.dataflow.order import Product
>>> frontier = Antichain([(4, 8), (5, 3)], Product(INT, INT))
>>> advance_by((3, 7), frontier)
(4, 7)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any, Generic, TypeVar

from tidegauge.dataflow.order import INT, Order, finder, has, join, meet, minimal
from tidegauge.dataflow.order.search import Finding
from tidegauge.errors.dataflow import ForeignTime

__all__ = ["Antichain", "advance_by", "antichain_join", "antichain_meet"]

T = TypeVar("T")


class Antichain(Generic[T]):
    """The minimal times among all that were put in. Immutable; equality and hash do not depend on the sequence.

    `less_equal(time)` asks whether some element is at or before `time`: is `time` still possible? `a <= b` asks
    whether `b` has gone at least as far as `a`; so the empty antichain is the greatest.

    >>> Antichain([2, 3, 5]), Antichain([2]) <= Antichain(), Antichain().less_equal(7)
    (Antichain([2]), True, False)
    """

    __slots__ = ("_index", "minimal", "order")

    def __init__(self, elements: Iterable[T] = (), order: Order[Any] = INT) -> None:
        among = tuple(elements)
        belongs = has(order)
        for element in among:
            if not belongs(element):
                raise ForeignTime(path="an antichain", time=repr(element), order=repr(order))
        self.order = order
        self.minimal: tuple[T, ...] = minimal(order, among)
        self._index: Finding[T] | None = None

    @classmethod
    def of_minimal(cls, times: tuple[T, ...], order: Order[Any]) -> Antichain[T]:
        """Return the antichain of these times, which are minimal already and in sort order."""
        made: Antichain[T] = cls.__new__(cls)
        made.order, made.minimal, made._index = order, times, None
        return made

    def insert(self, element: T) -> Antichain[T]:
        """Return the antichain with `element`: this very one when some element is already at or before it."""
        return self if self.less_equal(element) else Antichain((*self.minimal, element), self.order)

    def elements(self) -> tuple[T, ...]:
        """Return the elements in sort order."""
        return self.minimal

    def is_empty(self) -> bool:
        """Whether nothing more will ever come."""
        return not self.minimal

    def less_equal(self, time: T) -> bool:
        """Whether some element is at or before `time`."""
        return self._seek(time) is not None

    def less_than(self, time: T) -> bool:
        """Whether some element is strictly before `time`."""
        found = self._seek(time)
        return found is not None and found != time

    def _seek(self, time: T) -> T | None:
        """Return an element at or before `time`: another one where `time` is one and there is another."""
        index = self._index
        if index is None:
            index = self._index = finder(self.order, self.minimal)
        return index(time)

    def __iter__(self) -> Iterator[T]:
        return iter(self.minimal)

    def __len__(self) -> int:
        return len(self.minimal)

    def __contains__(self, time: object) -> bool:
        return time in self.minimal

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Antichain) or len(self.minimal) != len(other.minimal):
            return False
        return self.minimal == other.minimal or frozenset(self.minimal) == frozenset(other.minimal)

    def __hash__(self) -> int:
        return hash(frozenset(self.minimal))

    def __le__(self, other: Antichain[T]) -> bool:
        return all(self.less_equal(time) for time in other.minimal)

    def __lt__(self, other: Antichain[T]) -> bool:
        return self != other and self <= other

    def __repr__(self) -> str:
        return f"Antichain({list(self.elements())!r})"


def antichain_join(a: Antichain[T], b: Antichain[T]) -> Antichain[T]:
    """Return what stands for everything that both stand for: the minimal ones of all joins. Raises NoBound.

    >>> antichain_join(Antichain([3]), Antichain([4])), antichain_join(Antichain([3]), Antichain())
    (Antichain([4]), Antichain([]))
    """
    return Antichain((join(a.order, x, y) for x in a.minimal for y in b.minimal), a.order)


def antichain_meet(a: Antichain[T], b: Antichain[T]) -> Antichain[T]:
    """Return what stands for everything that either stands for: the minimal ones of all elements.

    >>> antichain_meet(Antichain([3]), Antichain([4])), antichain_meet(Antichain([3]), Antichain())
    (Antichain([3]), Antichain([3]))
    """
    return Antichain((*a.minimal, *b.minimal), a.order)


def advance_by(time: T, frontier: Antichain[T]) -> T:
    """Return the greatest time that compares alike with everything at or beyond the frontier. Raises NoBound.

    That is the meet over all `f` in the frontier of the join of `time` and `f`. For let `s` be beyond some `f`. If
    `time <= s`, then `s` is beyond the join with that `f`, and so beyond the meet; the converse holds since the meet
    is beyond `time`. It is the greatest: every join is beyond `time`, and so beyond whatever compares alike. With an
    empty frontier there is nothing to compare with, and the time does not move.

    >>> advance_by(3, Antichain([5])), advance_by(7, Antichain([5])), advance_by(3, Antichain())
    (5, 7, 3)
    """
    order = frontier.order
    joins = [join(order, time, f) for f in frontier.minimal]
    return reduce(lambda a, b: meet(order, a, b), joins) if joins else time
