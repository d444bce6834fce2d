"""What a scope must know of its times, and the functions that ask an order of users' own kind or of ours.

An order is `Order`; one whose times can move along a path is `Advancing`; one with bounds is a `Lattice`. The
functions here take the summary None, the identity of every order, out of the orders' hands: their own methods are
never asked about it.

Invariant: `advance(order, time, compose(order, a, b))` is `advance(order, advance(order, time, a), b)`.

>>> from tidegauge.dataflow.order.numbers import INT
>>> advance(INT, 3, compose(INT, 2, 5)), advance(INT, advance(INT, 3, 2), 5)
(10, 10)
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from tidegauge.errors.dataflow import ForeignTime, InvalidSummary, NoBound

__all__ = [
    "NEVER",
    "Advancing",
    "Lattice",
    "Never",
    "Order",
    "Restricting",
    "Steady",
    "Summary",
    "Time",
    "advance",
    "compose",
    "has",
    "idle",
    "join",
    "less_than",
    "maximum",
    "meet",
    "normal",
    "require_time",
    "steady",
    "summary_less_equal",
]

T = TypeVar("T")

Time: TypeAlias = Any
"""A time of whatever order the scope has: hashable, immutable, never None."""
Summary: TypeAlias = Any
"""A path summary in the terms of the order; None is the identity."""


@runtime_checkable
class Order(Protocol[T]):
    """What a scope must know of its times. A user's order is one small class with these four members.

    With them alone, a frontier of `n` times costs `n²` calls of `less_equal`, which is fine for a few hundred. Where
    frontiers get wider than that, the order should be `Searchable`: that is one member more.
    """

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
    """An order with path summaries, as feedback needs it. Summaries are in normal form except for `normal` itself.

    Laws, beside those of the package: a time is at or before the time that it becomes; and a path that cannot be
    crossed at a time cannot be crossed later. (To find out which times may still arrive it is enough to ask of the
    earliest times.)
    """

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


@runtime_checkable
class Restricting(Advancing[T], Protocol[T]):
    """An order with summaries, other than the identity, that may leave a time where it is."""

    def idle(self, summary: Summary, /) -> bool:
        """Whether the summary leaves some time that can cross it unchanged."""
        ...


@runtime_checkable
class Steady(Advancing[T], Protocol[T]):
    """An order whose summaries may be such as addition is."""

    @property
    def steady(self) -> bool:
        """Whether every summary can be crossed at every time, carries different times to different times, and carries
        a time to another one than a different summary does.
        """
        ...


class Never(Enum):
    """The result of `compose` for a path that cannot be crossed (None is taken: it is the identity)."""

    NEVER = "never"


NEVER: Final = Never.NEVER


def less_than(order: Order[T], a: T, b: T) -> bool:
    """Whether `a` is strictly before `b` in the order.

    >>> from tidegauge.dataflow.order.numbers import INT
    >>> less_than(INT, 1, 1), less_than(INT, 1, 2)
    (False, True)
    """
    return a != b and order.less_equal(a, b)


def normal(order: Order[T], summary: Summary) -> Summary:
    """Return `summary` in the normal form of `order`. Raises InvalidSummary.

    >>> from tidegauge.dataflow.order.numbers import INT
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

    >>> from tidegauge.dataflow.order.numbers import INT, Bounded
    >>> advance(INT, 3, None), advance(INT, 3, 5), advance(Bounded(7), 3, 5)
    (3, 8, None)
    """
    return time if summary is None else order.results_in(time, summary)  # type: ignore[attr-defined]


def compose(order: Order[Any], first: Summary, second: Summary) -> Summary | Never:
    """Return the summary of one path after another, or NEVER.

    >>> from tidegauge.dataflow.order.numbers import INT, Bounded
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

    >>> from tidegauge.dataflow.order.numbers import INT
    >>> summary_less_equal(INT, None, 1), summary_less_equal(INT, 1, None)
    (True, False)
    """
    if a is None:
        return True
    return b is not None and bool(order.summary_less_equal(a, b))  # type: ignore[attr-defined]


def idle(order: Order[Any], summary: Summary) -> bool:
    """Whether a path may bring a time back unchanged: a cycle of such paths alone never ends.

    >>> from tidegauge.dataflow.order.numbers import INT
    >>> idle(INT, None), idle(INT, 1)
    (True, False)
    """
    return summary is None or (isinstance(order, Restricting) and order.idle(summary))


def steady(order: Order[Any]) -> bool:
    """Whether all summaries of the order are known to be such as addition is.

    >>> from tidegauge.dataflow.order.numbers import INT, Bounded
    >>> steady(INT), steady(Bounded(7))
    (True, False)
    """
    return isinstance(order, Steady) and order.steady


def has(order: Order[Any]) -> Callable[[object], bool]:
    """Return what tells whether a value is a time of the order: its own `has`, or else the comparison with the
    minimum.

    Python compares a number with a fraction, and tuples with longer ones, so a time of another scope might do harm
    long before anybody sees it. An accepted time compares with the minimum, and is at or beyond it.

    >>> from tidegauge.dataflow.order import INT, Product
    >>> has(INT)(3), has(INT)(1.5), has(INT)((0, 0)), has(Product(INT, INT))((0, 0))
    (True, False, False, True)
    """
    own: Callable[[object], bool] | None = getattr(order, "has", None)
    if own is not None:
        return own

    def compares(value: object) -> bool:
        try:
            return bool(order.less_equal(order.minimum, value))
        except Exception:  # noqa: BLE001 - a user's comparison of what it was never meant for may raise anything
            return False

    return compares


def require_time(order: Order[Any], value: object, path: str) -> None:
    """Raise ForeignTime unless `value` is a time of the order. path: whose time it would be."""
    if not has(order)(value):
        raise ForeignTime(path=path, time=repr(value), order=repr(order))


@runtime_checkable
class Lattice(Order[T], Protocol[T]):
    """An order with a least time beyond, and a greatest time before, any two times. A composed order has them when
    its parts have.

    `less_equal(a, b)`, `join(a, b) == b` and `meet(a, b) == a` say the same.

    >>> from tidegauge.dataflow.order import INT, Product
    >>> order = Product(INT, INT)
    >>> order.join((3, 7), (4, 6)), order.meet((3, 7), (4, 6)), order.maximum
    ((4, 7), (3, 6), None)
    """

    @property
    def maximum(self) -> T | None:
        """A time at or beyond every other, None when there is none."""
        ...

    def join(self, a: T, b: T, /) -> T:
        """Return the least time at or beyond both. Raises NoBound."""
        ...

    def meet(self, a: T, b: T, /) -> T:
        """Return the greatest time at or before both. Raises NoBound."""
        ...


def join(order: Order[T], a: T, b: T) -> T:
    """Return the least time at or beyond both. Raises NoBound when the order has no such operation.

    >>> from tidegauge.dataflow.order import INT
    >>> join(INT, 3, 4)
    4
    """
    found: Callable[[T, T], T] | None = getattr(order, "join", None)
    if found is None:
        raise NoBound(order=repr(order), bound="least time at or beyond", a=repr(a), b=repr(b))
    return found(a, b)


def meet(order: Order[T], a: T, b: T) -> T:
    """Return the greatest time at or before both. Raises NoBound when the order has no such operation.

    >>> from tidegauge.dataflow.order import INT
    >>> meet(INT, 3, 4)
    3
    """
    found: Callable[[T, T], T] | None = getattr(order, "meet", None)
    if found is None:
        raise NoBound(order=repr(order), bound="greatest time at or before", a=repr(a), b=repr(b))
    return found(a, b)


def maximum(order: Order[T]) -> T | None:
    """Return a time at or beyond every other, None when the order has none or does not say.

    >>> from tidegauge.dataflow.order import INT, Bounded
    >>> maximum(INT), maximum(Bounded(7))
    (None, 7)
    """
    return cast("T | None", getattr(order, "maximum", None))
