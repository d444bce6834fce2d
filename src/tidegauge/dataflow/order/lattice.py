"""A lattice is an order with a least time beyond, and a greatest time before, any two times.

- `join(a, b)`, the *least upper bound*: at or beyond `a` and `b`, and at or before whatever else is;
- `meet(a, b)`, the *greatest lower bound*: at or before `a` and `b`, and at or beyond whatever else is;
- `maximum`, a time at or beyond every other, None when there is none.

Invariant: `less_equal(a, b)`, `join(a, b) == b` and `meet(a, b) == a` say the same.

>>> from tidegauge.dataflow.order import INT, Product
>>> order = Product(INT, INT)
>>> order.join((3, 7), (4, 6)), order.meet((3, 7), (4, 6)), order.maximum
((4, 7), (3, 6), None)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, cast, runtime_checkable

from tidegauge.dataflow.order.protocol import Order
from tidegauge.errors.dataflow import NoBound

__all__ = ["Lattice", "join", "maximum", "meet"]

T = TypeVar("T")


@runtime_checkable
class Lattice(Order[T], Protocol[T]):
    """An order with bounds. A composed order has them when its parts have."""

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
