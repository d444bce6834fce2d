"""Which of many times are minimal, and which of them is at or before another one, without comparing each with each.

An order may have one more member, `finder(times)`, that knows where among its times to look. With it `n` times cost
about `n log n` here. Without, each is compared with each: that is all a partial order has to offer by itself, and
good enough for the few times that most frontiers have.

Invariant: the answers are those of `less_equal` alone.

>>> from tidegauge.dataflow.order import INT, PARTITIONED, Product, only
>>> minimal(Product(INT, INT), [(2, 3), (1, 5), (2, 4), (1, 5)])
((1, 5), (2, 3))
>>> seek = finder(PARTITIONED, PARTITIONED.frontier({"salt": 3, "tea": 5}))
>>> seek((only("tea"), 7)), seek((only("tea"), 4))
(({'tea'}, 5), None)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from tidegauge.dataflow.order.protocol import Order

__all__ = ["WIDE", "Searchable", "finder", "minimal"]

T = TypeVar("T")

WIDE = 16
"""From so many times on it pays to know where to look."""


@runtime_checkable
class Searchable(Order[T], Protocol[T]):
    """An order that can look among many times without comparing each."""

    def finder(self, times: Sequence[T], /) -> Callable[[T], T | None]:
        """Return what finds, for a time, one of `times` at or before it: another one than itself where there is one.

        times: each once.
        """
        ...


def finder(order: Order[T], times: Iterable[T]) -> Callable[[T], T | None]:
    """Return what finds, for a time, one of `times` (each once) at or before it, None when there is none. It finds
    another one than itself where there is one.
    """
    among = tuple(times)
    if len(among) >= WIDE and isinstance(order, Searchable):
        return order.finder(among)
    less_equal, own = order.less_equal, frozenset(among)

    def seek(time: T) -> T | None:
        others = (x for x in among if less_equal(x, time) and x != time)
        return next(others, time if time in own else None)

    return seek


def minimal(order: Order[T], times: Iterable[T]) -> tuple[T, ...]:
    """Return the minimal ones among times, in sort order."""
    found: list[T] = list(dict.fromkeys(times))
    if len(found) > 1:
        found.sort(key=order.sort_key)  # so none comes before another that it hides
    if len(found) >= WIDE and isinstance(order, Searchable):
        seek: Callable[[T], Any] = order.finder(found)
        return tuple(time for time in found if seek(time) in (None, time))
    less_equal = order.less_equal
    least: list[T] = []
    for time in found:
        if not any(less_equal(x, time) for x in least):
            least.append(time)
    return tuple(least)
