"""Which of many times are minimal, and which of them is at or before another one, without comparing each with each.

An order may have one more member, `finder(times)`, that knows where among its times to look. With it `n` times cost
about `n log n` here. Without, each is compared with each: that is all a partial order has to offer by itself, and
good enough for the few times that most frontiers have. The usual cases need no search at all: an order may see at a
look that times lie `apart`, and `origins` finds where the times of a frontier that goes on come from side by side.

Total orders need none: there is one least time. Pairs have one by their parts (`product_finder`, `lex_finder`), so
that a loop within a scope of wide frontiers has one as well.

Invariant: the answers are those of `less_equal` alone.

>>> from tidegauge.dataflow.order import INT, PARTITIONED, Product, only
>>> minimal(Product(INT, INT), [(2, 3), (1, 5), (2, 4), (1, 5)])
((1, 5), (2, 3))
>>> seek = finder(PARTITIONED, PARTITIONED.frontier({"salt": 3, "tea": 5}))
>>> seek((only("tea"), 7)), seek((only("tea"), 4))
(({'tea'}, 5), None)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from tidegauge.dataflow.order.protocol import Order

__all__ = [
    "WIDE",
    "Finding",
    "Searchable",
    "Spread",
    "apart",
    "finder",
    "lex_finder",
    "minimal",
    "origins",
    "product_finder",
]

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

Finding: TypeAlias = Callable[[T], T | None]
"""What finds, for a time, one of many at or before it, None when there is none: another one than itself where there
is one.
"""

WIDE = 16
"""From this number of times on it pays to know where to look."""


@runtime_checkable
class Searchable(Order[T], Protocol[T]):
    """An order that can look among many times without comparing each."""

    def finder(self, times: Sequence[T], /) -> Finding[T]:
        """Return what finds, for a time, one of `times` at or before it: another one than itself where there is one.

        times: each once.
        """
        ...


@runtime_checkable
class Spread(Order[T], Protocol[T]):
    """An order that can tell at a look, of times in sort order, that none is at or before another."""

    def apart(self, times: Sequence[T], /) -> bool:
        """Whether none of `times` is at or before another or equal to it. False also where a look cannot tell.

        times: in sort order.
        """
        ...


def apart(order: Order[T], times: Sequence[T]) -> bool:
    """Whether the order can tell that none of `times`, in sort order, is at or before another."""
    return isinstance(order, Spread) and order.apart(times)


def finder(order: Order[T], times: Iterable[T]) -> Finding[T]:
    """Return what finds, for a time, one of `times` (each once) at or before it, None when there is none. It finds
    another one than itself where there is one.
    """
    among = tuple(times)
    if order.total and among:
        least: Any = min(among, key=order.sort_key)
        return lambda time: least if order.less_equal(least, time) else None
    if len(among) >= WIDE and isinstance(order, Searchable):
        return order.finder(among)
    return _comparing(order, among)


def _comparing(order: Order[T], among: Sequence[T]) -> Finding[T]:
    less_equal, own = order.less_equal, frozenset(among)

    def seek(time: T) -> T | None:
        others = (x for x in among if less_equal(x, time) and x != time)
        return next(others, time if time in own else None)

    return seek


def minimal(order: Order[T], times: Iterable[T]) -> tuple[T, ...]:
    """Return the minimal ones among times, in sort order."""
    along = sorted(times, key=order.sort_key)  # so none comes before another that it hides
    if order.total:
        return tuple(along[:1])
    wide = len(along) >= WIDE
    if wide and apart(order, along):
        return tuple(along)
    found: list[T] = list(dict.fromkeys(along))
    if wide and isinstance(order, Searchable):
        seek: Finding[Any] = order.finder(found)
        return tuple([time for time in found if seek(time) in (None, time)])
    less_equal = order.less_equal
    least: list[T] = []
    for time in found:
        if not any(less_equal(x, time) for x in least):
            least.append(time)
    return tuple(least)


def origins(order: Order[T], among: Sequence[T], times: Iterable[T]) -> Iterator[int | None]:
    """Yield for each of `times` the place of one of `among` (each once) at or before it, None when there is none.

    Give both in sort order. When a frontier goes on, its times mostly move one by one: a time then follows the next
    of `among` after the one that the time before it followed, or the same one, where that was split. Both guesses
    are checked, and only a time that neither fits is looked up.

    >>> from tidegauge.dataflow.order import PARTITIONED
    >>> before, now = PARTITIONED.frontier({"tea": 3}), PARTITIONED.frontier({"salt": 1, "tea": 5})
    >>> list(origins(PARTITIONED, before, now)), list(origins(PARTITIONED, now, before))
    ([0, 0, 0, 1, 2], [None, None, 4])
    """
    less_equal, end = order.less_equal, len(among)
    at, places = -1, dict[T, int]()
    seek: Finding[T] | None = None
    for time in times:
        if at + 1 < end and less_equal(among[at + 1], time):
            at += 1
        elif at < 0 or not less_equal(among[at], time):
            if seek is None:
                seek, places = finder(order, among), {own: place for place, own in enumerate(among)}
            found = seek(time)
            if found is None:
                yield None
                continue
            at = places[found]
        yield at


def product_finder(order: Order[tuple[A, B]], outer: Order[A], inner: Order[B], times: Sequence[Any]) -> Finding[Any]:
    """Return the finder of pairs whose parts decide together. One part has to be of a total order: where neither is,
    each is compared with each.

    All pairs at or before a time lie on the rows up to its own, a row being all pairs with one value of the total
    part. Among these the finder of the other part looks: it has one for each block of rows, the blocks being those
    of a Fenwick tree, so that the rows up to any are a few blocks. A block is laid out when it is first looked at.

    >>> from tidegauge.dataflow.order import INT, Product
    >>> product_finder(Product(INT, INT), INT, INT, [(2, 3), (1, 5), (2, 4)])((2, 4))
    (2, 3)
    """
    if not (outer.total or inner.total):
        return _comparing(order, times)
    along, across = (1, 0) if inner.total else (0, 1)
    beside: Order[Any] = (outer, inner)[across]
    rows: dict[Any, list[Any]] = {}
    for time in sorted(times, key=lambda time: time[along]):
        rows.setdefault(time[along], []).append(time)
    steps = list(rows)

    @cache
    def block(start: int, stop: int) -> tuple[dict[Any, Any], Finding[Any]]:
        first: dict[Any, Any] = {}
        for step in steps[start:stop]:
            for time in rows[step]:
                first.setdefault(time[across], time)
        return first, finder(beside, first)

    def seek(time: Any) -> Any:
        stop, itself = bisect_right(steps, time[along]), None
        while stop:
            start = stop & (stop - 1)
            first, look = block(start, stop)
            found = look(time[across])
            if found is not None:
                if first[found] != time:
                    return first[found]
                itself = time
            stop = start
        return itself

    return seek


def lex_finder(outer: Order[A], inner: Order[B], times: Sequence[tuple[A, B]]) -> Finding[tuple[A, B]]:
    """Return the finder of pairs whose first part decides, and the second where the first parts are equal.

    >>> from tidegauge.dataflow.order import INT
    >>> lex_finder(INT, INT, [(2, 3), (2, 5)])((2, 4))
    (2, 3)
    """
    seconds: dict[A, list[B]] = {}
    for first, second in times:
        seconds.setdefault(first, []).append(second)
    before = finder(outer, seconds)

    @cache
    def within(first: A) -> Finding[B]:
        return finder(inner, seconds[first])

    def seek(time: tuple[A, B]) -> tuple[A, B] | None:
        first = before(time[0])
        if first is None:
            return None
        second = seconds[first][0] if first != time[0] else within(first)(time[1])
        return None if second is None else (first, second)

    return seek
