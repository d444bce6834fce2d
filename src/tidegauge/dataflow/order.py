"""An order says which times may follow which, and how far a path through the graph carries a time.

Times are plain Python values; the scope owns the `Order`. An order needs four members:

- `minimum`, a time at or below every other;
- `less_equal(a, b)`, a partial order: reflexive, antisymmetric, transitive, and consistent with `==`;
- `sort_key(time)`, a value that sorts so that `a < b` in the order implies `sort_key(a) < sort_key(b)`: a *linear
  extension*. It decides in which sequence things are looked at, never what is complete;
- `total`, which promises that every two times compare and that Python's own `<` is this order (it only buys speed).

Take care: Python sorts the tuples of `Product` lexicographically. That is their sort order, not their order.

>>> Product(INT, INT).less_equal((1, 2), (2, 1)), (1, 2) < (2, 1)
(False, True)

An order whose times can move along a path is `Advancing`. A *summary* is the least advance along a path:
`results_in(time, summary)` applies it, `followed_by(a, b)` joins two, both monotone, and applying the joined summary
equals applying one after the other. Either may be None: this path can never be crossed. The summary None is the
identity of every order, and `normal` turns what a user writes into None whenever it is the identity.

>>> loop = Product(INT, INT)
>>> loop.results_in((3, 4), (0, 1)), loop.normal((0, 1)), loop.normal((0, 0))
((3, 5), (None, 1), None)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from tidegauge.errors.dataflow import InvalidSummary

__all__ = [
    "INT",
    "NEVER",
    "UNIT",
    "Advancing",
    "Bounded",
    "Integers",
    "Never",
    "Order",
    "Product",
    "Refinement",
    "Summary",
    "Time",
    "Unit",
    "advance",
    "compose",
    "less_than",
    "normal",
    "product",
    "same",
    "summary_less_equal",
]

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

Time: TypeAlias = Any
"""A time of whatever order the scope has: hashable, immutable, never None."""
Summary: TypeAlias = Any
"""A path summary in the terms of the order; None is the identity."""


@runtime_checkable
class Order(Protocol[T]):
    """What a scope must know of its times. A user's order is one small class with these four members."""

    @property
    def minimum(self) -> T:
        """A time at or below every other."""
        ...

    @property
    def total(self) -> bool:
        """Whether every two times compare and Python's own `<` on them is this order."""
        ...

    def less_equal(self, a: T, b: T, /) -> bool:
        """Whether something at `a` may still cause something at `b`."""
        ...

    def sort_key(self, time: T, /) -> Any:
        """Return a value that sorts in a linear extension of the order."""
        ...


@runtime_checkable
class Advancing(Order[T], Protocol[T]):
    """An order with path summaries, as feedback needs it. Summaries are in normal form except for `normal` itself."""

    def normal(self, summary: Summary, /) -> Summary:
        """Return the summary in normal form, None for the identity. Raises InvalidSummary."""
        ...

    def results_in(self, time: T, summary: Summary, /) -> T | None:
        """Return the time at the end of the path, None when it cannot be crossed at this time."""
        ...

    def followed_by(self, first: Summary, second: Summary, /) -> Summary:
        """Return the summary of one path after another, None when it can never be crossed."""
        ...

    def summary_less_equal(self, a: Summary, b: Summary, /) -> bool:
        """Whether `a` carries every time at most as far as `b`."""
        ...


class Never(Enum):
    """The result of `compose` for a path that cannot be crossed (None is taken: it is the identity)."""

    NEVER = "never"


NEVER: Final = Never.NEVER


def less_than(order: Order[T], a: T, b: T) -> bool:
    """Whether `a` is strictly before `b` in the order.

    >>> less_than(INT, 1, 1), less_than(INT, 1, 2)
    (False, True)
    """
    return a != b and order.less_equal(a, b)


def normal(order: Order[T], summary: Summary) -> Summary:
    """Return `summary` in the normal form of `order`. Raises InvalidSummary.

    >>> normal(INT, 0) is None, normal(INT, 2)
    (True, 2)
    """
    if summary is None:
        return None
    if not isinstance(order, Advancing):
        raise InvalidSummary(summary=repr(summary), order=repr(order), problem="this order has no summaries but None")
    return order.normal(summary)


def advance(order: Order[T], time: T, summary: Summary) -> T | None:
    """Return `time` at the end of a path, None when the path cannot be crossed at this time.

    >>> advance(INT, 3, None), advance(INT, 3, 5), advance(Bounded(7), 3, 5)
    (3, 8, None)
    """
    return time if summary is None else order.results_in(time, summary)  # type: ignore[attr-defined]


def compose(order: Order[Any], first: Summary, second: Summary) -> Summary | Never:
    """Return the summary of one path after another, or NEVER.

    >>> compose(INT, None, 2), compose(INT, 2, 3), compose(Bounded(4), 2, 3)
    (2, 5, <Never.NEVER: 'never'>)
    """
    if first is None:
        return second
    if second is None:
        return first
    joined = order.followed_by(first, second)  # type: ignore[attr-defined]
    return NEVER if joined is None else joined


def summary_less_equal(order: Order[Any], a: Summary, b: Summary) -> bool:
    """Whether path `a` carries every time at most as far as path `b`.

    >>> summary_less_equal(INT, None, 1), summary_less_equal(INT, 1, None)
    (True, False)
    """
    if a is None:
        return True
    return b is not None and bool(order.summary_less_equal(a, b))  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Unit:
    """The order of one time, `()`: for what is complete all at once. It has no summary but the identity.

    >>> UNIT.minimum, UNIT.less_equal((), ())
    ((), True)
    """

    minimum: tuple[()] = ()
    total: bool = True

    def less_equal(self, a: tuple[()], b: tuple[()], /) -> bool:  # noqa: ARG002
        """There is but one time."""
        return True

    def sort_key(self, time: tuple[()], /) -> tuple[()]:
        """Return the time itself."""
        return time


@dataclass(frozen=True, slots=True)
class Integers:
    """The integers from 0 up; a summary is an amount to add.

    >>> INT.results_in(3, 5), INT.followed_by(5, 15)
    (8, 20)
    """

    minimum: int = 0
    total: bool = True

    def less_equal(self, a: int, b: int, /) -> bool:
        """The order of numbers."""
        return a <= b

    def sort_key(self, time: int, /) -> int:
        """Return the time itself."""
        return time

    def normal(self, summary: Summary, /) -> Summary:
        """Return the amount, None for 0. Raises InvalidSummary unless it is an integer from 0 up."""
        return _amount(self, summary)

    def results_in(self, time: int, summary: int, /) -> int | None:
        """Return the sum."""
        return time + summary

    def followed_by(self, first: int, second: int, /) -> int | None:
        """Return the sum."""
        return first + second

    def summary_less_equal(self, a: int, b: int, /) -> bool:
        """The order of numbers."""
        return a <= b


@dataclass(frozen=True, slots=True)
class Bounded:
    """The integers from 0 to `limit`: a path that leads beyond cannot be crossed, so a loop over them ends.

    >>> Bounded(255).results_in(250, 5), Bounded(255).results_in(250, 10)
    (255, None)
    """

    limit: int
    minimum: int = 0
    total: bool = True

    def less_equal(self, a: int, b: int, /) -> bool:
        """The order of numbers."""
        return a <= b

    def sort_key(self, time: int, /) -> int:
        """Return the time itself."""
        return time

    def normal(self, summary: Summary, /) -> Summary:
        """Return the amount, None for 0. Raises InvalidSummary unless it is an integer from 0 up."""
        return _amount(self, summary)

    def results_in(self, time: int, summary: int, /) -> int | None:
        """Return the sum, None beyond the limit."""
        return time + summary if time + summary <= self.limit else None

    def followed_by(self, first: int, second: int, /) -> int | None:
        """Return the sum, None beyond the limit: not even the minimum can cross such a path."""
        return first + second if first + second <= self.limit else None

    def summary_less_equal(self, a: int, b: int, /) -> bool:
        """The order of numbers."""
        return a <= b


def _amount(order: Order[int], summary: Summary) -> Summary:
    if summary is None or (isinstance(summary, int) and not isinstance(summary, bool) and summary >= 0):
        return summary or None
    raise InvalidSummary(summary=repr(summary), order=repr(order), problem="it is not an integer from 0 up")


@dataclass(frozen=True, slots=True)
class Product(Generic[A, B]):
    """Pairs `(outer, inner)`, before one another only when both parts are. A summary is a pair of summaries.

    >>> order = Product(INT, INT)
    >>> order.less_equal((1, 2), (2, 1)), order.less_equal((1, 2), (1, 3))
    (False, True)
    """

    outer: Order[A]
    inner: Order[B]

    @property
    def minimum(self) -> tuple[A, B]:
        """The pair of the minima."""
        return (self.outer.minimum, self.inner.minimum)

    @property
    def total(self) -> bool:
        """Pairs do not all compare."""
        return False

    def less_equal(self, a: tuple[A, B], b: tuple[A, B], /) -> bool:
        """Whether both parts are at most the other's."""
        return self.outer.less_equal(a[0], b[0]) and self.inner.less_equal(a[1], b[1])

    def sort_key(self, time: tuple[A, B], /) -> tuple[Any, Any]:
        """Return the pair of the keys, which sorts lexicographically."""
        return (self.outer.sort_key(time[0]), self.inner.sort_key(time[1]))

    def normal(self, summary: Summary, /) -> Summary:
        """Return the pair of normal summaries, None when both are the identity. Raises InvalidSummary."""
        if summary is None:
            return None
        if not isinstance(summary, tuple) or len(summary) != 2:
            raise InvalidSummary(summary=repr(summary), order=repr(self), problem="it is not a pair (outer, inner)")
        pair = (normal(self.outer, summary[0]), normal(self.inner, summary[1]))
        return None if pair == (None, None) else pair

    def results_in(self, time: tuple[A, B], summary: tuple[Summary, Summary], /) -> tuple[A, B] | None:
        """Return both parts advanced, None when either cannot be."""
        outer = advance(self.outer, time[0], summary[0])
        inner = advance(self.inner, time[1], summary[1])
        return None if outer is None or inner is None else (outer, inner)

    def followed_by(self, first: tuple[Summary, Summary], second: tuple[Summary, Summary], /) -> Summary:
        """Return both parts joined, None when either cannot be."""
        outer = compose(self.outer, first[0], second[0])
        inner = compose(self.inner, first[1], second[1])
        return None if outer is NEVER or inner is NEVER else (outer, inner)

    def summary_less_equal(self, a: tuple[Summary, Summary], b: tuple[Summary, Summary], /) -> bool:
        """Whether both parts are at most the other's."""
        return summary_less_equal(self.outer, a[0], b[0]) and summary_less_equal(self.inner, a[1], b[1])


UNIT: Final = Unit()
INT: Final = Integers()


@dataclass(frozen=True, slots=True)
class Refinement:
    """How a nested scope's times relate to those around it.

    Law: `summarize(s)` applied to an outer `o` is at most `to_outer` of `s` applied to `to_inner(o)`. So what the
    outer scope believes of a path through the nested one is never later than the truth.
    """

    outer: Order[Any]
    order: Order[Any]
    to_inner: Callable[[Time], Time]
    to_outer: Callable[[Time], Time]
    summarize: Callable[[Summary], Summary]


def _itself(value: Any) -> Any:
    return value


def same(order: Order[Any]) -> Refinement:
    """Return the refinement of a region: the same times.

    >>> same(INT).to_inner(7)
    7
    """
    return Refinement(order, order, _itself, _itself, _itself)


def product(outer: Order[Any], inner: Order[Any]) -> Refinement:
    """Return the refinement of an iteration: each outer time has all the inner ones, beginning at the minimum.

    >>> loop = product(INT, INT)
    >>> loop.to_inner(7), loop.to_outer((7, 3)), loop.summarize((2, 1))
    ((7, 0), 7, 2)
    """
    start = inner.minimum
    return Refinement(
        outer,
        Product(outer, inner),
        lambda time: (time, start),
        lambda time: time[0],
        lambda summary: None if summary is None else summary[0],
    )
