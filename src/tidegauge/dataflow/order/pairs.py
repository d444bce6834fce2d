"""Pairs of times, under the two orders that pairs can have: both parts decide, or the first one before the second.

A summary of either is a pair of summaries, one for each part, and is applied part by part. Nothing is reset: what
goes on in its first part keeps its second. A nested scope's times may be such pairs: `Refinement`
relates them to those around it.

Invariant: neither order is Python's own order of tuples unless `total` says so; that one only sorts. It does extend
both: a pair that is before another one sorts before it.

>>> from tidegauge.dataflow.order import INT
>>> Product(INT, INT).less_equal((1, 2), (2, 1)), Lex(INT, INT).less_equal((1, 2), (2, 1))
(False, True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidegauge.dataflow.order.protocol import (
    NEVER,
    Order,
    Summary,
    Time,
    advance,
    compose,
    has,
    idle,
    join,
    maximum,
    meet,
    normal,
    steady,
    summary_less_equal,
)
from tidegauge.dataflow.order.search import Finding, lex_finder, product_finder
from tidegauge.errors.dataflow import InvalidSummary, NoBound

__all__ = ["Lex", "Product", "Refinement", "product", "same"]

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Product(Generic[A, B]):
    """Pairs `(outer, inner)`, before one another only when both parts are. A summary is a pair of summaries.

    >>> from tidegauge.dataflow.order import INT
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
    def maximum(self) -> tuple[A, B] | None:
        """The pair of the maxima, None when a part has none."""
        return _maximum(self.outer, self.inner)

    @property
    def total(self) -> bool:
        """Pairs do not all compare."""
        return False

    @property
    def steady(self) -> bool:
        """Whether both parts are."""
        return steady(self.outer) and steady(self.inner)

    def has(self, value: object, /) -> bool:
        """Whether a value is a pair of times of the parts."""
        return _has(self, value)

    def less_equal(self, a: tuple[A, B], b: tuple[A, B], /) -> bool:
        """Whether both parts are at most the other's."""
        return self.outer.less_equal(a[0], b[0]) and self.inner.less_equal(a[1], b[1])

    def sort_key(self, time: tuple[A, B], /) -> tuple[Any, Any]:
        """Return the pair of the keys, which sorts lexicographically."""
        return (self.outer.sort_key(time[0]), self.inner.sort_key(time[1]))

    def finder(self, times: Sequence[tuple[A, B]], /) -> Finding[tuple[A, B]]:
        """Return what finds one of the times at or before a time, another one than itself where there is one."""
        return product_finder(self, self.outer, self.inner, times)

    def normal(self, summary: Summary, /) -> Summary:
        """Return the pair of normal summaries, None when both are the identity. Raises InvalidSummary."""
        return _normal(self, summary)

    def idle(self, summary: tuple[Summary, Summary], /) -> bool:
        """Whether both parts may stay unchanged."""
        return idle(self.outer, summary[0]) and idle(self.inner, summary[1])

    def results_in(self, time: tuple[A, B], summary: tuple[Summary, Summary], /) -> tuple[A, B] | None:
        """Return both parts advanced, None when either cannot be."""
        return _results_in(self, time, summary)

    def followed_by(self, first: tuple[Summary, Summary], second: tuple[Summary, Summary], /) -> Summary:
        """Return both parts joined, None when either cannot be."""
        return _followed_by(self, first, second)

    def summary_less_equal(self, a: tuple[Summary, Summary], b: tuple[Summary, Summary], /) -> bool:
        """Whether both parts are at most the other's."""
        return summary_less_equal(self.outer, a[0], b[0]) and summary_less_equal(self.inner, a[1], b[1])

    def join(self, a: tuple[A, B], b: tuple[A, B], /) -> tuple[A, B]:
        """Return the joins of the parts. Raises NoBound when a part has none."""
        return (join(self.outer, a[0], b[0]), join(self.inner, a[1], b[1]))

    def meet(self, a: tuple[A, B], b: tuple[A, B], /) -> tuple[A, B]:
        """Return the meets of the parts. Raises NoBound when a part has none."""
        return (meet(self.outer, a[0], b[0]), meet(self.inner, a[1], b[1]))


@dataclass(frozen=True, slots=True)
class Lex(Generic[A, B]):
    """Pairs `(outer, inner)`: the first part decides, and the second if the first parts are equal.

    Total when both parts are; then Python's `<` is the order, since it is that of the parts.

    A summary `(s, u)` takes `(a, b)` to `(s(a), u(b))`. To be a summary it must keep pairs in order. Let `(a, b)` be
    before `(c, d)`. If `a` equals `c`, then `b <= d`, so `u(b) <= u(d)`. If `a` is strictly before `c`, nothing is
    known of `b` and `d`, so `s(a)` must be *strictly* before `s(c)`: `s` must not bring two times together. For the
    same reason `u` must not stop `b` where it would let an earlier `d` pass. Both hold for a `steady`
    order, such as that of integers under addition; a part with another order, such as `Bounded`, can only have the
    identity. The first differing
    part of two steady summaries decides which one carries further, as with times.

    >>> from tidegauge.dataflow.order import INT
    >>> order = Lex(INT, INT)
    >>> order.total, order.results_in((3, 4), (2, 1)), order.less_equal((5, 5), (6, 0))
    (True, (5, 5), True)
    """

    outer: Order[A]
    inner: Order[B]

    @property
    def minimum(self) -> tuple[A, B]:
        """The pair of the minima."""
        return (self.outer.minimum, self.inner.minimum)

    @property
    def maximum(self) -> tuple[A, B] | None:
        """The pair of the maxima, None when a part has none."""
        return _maximum(self.outer, self.inner)

    @property
    def total(self) -> bool:
        """Whether both parts are."""
        return self.outer.total and self.inner.total

    @property
    def steady(self) -> bool:
        """Whether both parts are."""
        return steady(self.outer) and steady(self.inner)

    def has(self, value: object, /) -> bool:
        """Whether a value is a pair of times of the parts."""
        return _has(self, value)

    def less_equal(self, a: tuple[A, B], b: tuple[A, B], /) -> bool:
        """Whether the first part is strictly before the other's, or equal and the second at most the other's."""
        if a[0] == b[0]:
            return self.inner.less_equal(a[1], b[1])
        return self.outer.less_equal(a[0], b[0])

    def sort_key(self, time: tuple[A, B], /) -> tuple[Any, Any]:
        """Return the pair of the keys."""
        return (self.outer.sort_key(time[0]), self.inner.sort_key(time[1]))

    def finder(self, times: Sequence[tuple[A, B]], /) -> Finding[tuple[A, B]]:
        """Return what finds one of the times at or before a time, another one than itself where there is one."""
        return lex_finder(self.outer, self.inner, times)

    def normal(self, summary: Summary, /) -> Summary:
        """Return the pair of normal summaries, None when both are the identity. Raises InvalidSummary."""
        pair = _normal(self, summary)
        for part, used in enumerate(pair or ()):
            order: Order[Any] = self.inner if part else self.outer
            if used is not None and not steady(order):
                problem = f"{order!r} does not promise to be steady, so a later pair might come out earlier"
                raise InvalidSummary(summary=repr(summary), order=repr(self), problem=problem)
        return pair

    def results_in(self, time: tuple[A, B], summary: tuple[Summary, Summary], /) -> tuple[A, B] | None:
        """Return both parts advanced."""
        return _results_in(self, time, summary)

    def followed_by(self, first: tuple[Summary, Summary], second: tuple[Summary, Summary], /) -> Summary:
        """Return both parts joined."""
        return _followed_by(self, first, second)

    def summary_less_equal(self, a: tuple[Summary, Summary], b: tuple[Summary, Summary], /) -> bool:
        """Whether the first part is strictly less than the other's, or equal and the second at most the other's."""
        if a[0] == b[0]:
            return summary_less_equal(self.inner, a[1], b[1])
        return summary_less_equal(self.outer, a[0], b[0])

    def join(self, a: tuple[A, B], b: tuple[A, B], /) -> tuple[A, B]:
        """Return the later pair. Where the first parts do not compare, whatever is beyond both is strictly beyond the
        first part of each: the join of these, with the least of second parts. Raises NoBound when a part has none.
        """
        if a[0] == b[0]:
            return (a[0], join(self.inner, a[1], b[1]))
        if self.outer.less_equal(a[0], b[0]):
            return b
        if self.outer.less_equal(b[0], a[0]):
            return a
        return (join(self.outer, a[0], b[0]), self.inner.minimum)

    def meet(self, a: tuple[A, B], b: tuple[A, B], /) -> tuple[A, B]:
        """Return the earlier pair. Where the first parts do not compare: their meet, with the greatest of second
        parts. Raises NoBound when that does not exist, as with `Lex(Product(INT, INT), INT)`, or a part has no meet.
        """
        if a[0] == b[0]:
            return (a[0], meet(self.inner, a[1], b[1]))
        if self.outer.less_equal(a[0], b[0]):
            return a
        if self.outer.less_equal(b[0], a[0]):
            return b
        last = maximum(self.inner)
        if last is None:
            raise NoBound(order=repr(self), bound="greatest time at or before", a=repr(a), b=repr(b))
        return (meet(self.outer, a[0], b[0]), last)


def _maximum(outer: Order[A], inner: Order[B]) -> tuple[A, B] | None:
    first, second = maximum(outer), maximum(inner)
    return None if first is None or second is None else (first, second)


def _normal(order: Product[A, B] | Lex[A, B], summary: Summary) -> Summary:
    if summary is None:
        return None
    if not isinstance(summary, tuple) or len(summary) != 2:
        raise InvalidSummary(summary=repr(summary), order=repr(order), problem="it is not a pair (outer, inner)")
    pair = (normal(order.outer, summary[0]), normal(order.inner, summary[1]))
    return None if pair == (None, None) else pair


def _results_in(order: Product[A, B] | Lex[A, B], time: tuple[A, B], summary: Summary) -> tuple[A, B] | None:
    outer = advance(order.outer, time[0], summary[0])
    inner = advance(order.inner, time[1], summary[1])
    return None if outer is None or inner is None else (outer, inner)


def _followed_by(order: Product[A, B] | Lex[A, B], first: Summary, second: Summary) -> Summary:
    outer = compose(order.outer, first[0], second[0])
    inner = compose(order.inner, first[1], second[1])
    return None if outer is NEVER or inner is NEVER else (outer, inner)


def _has(order: Product[Any, Any] | Lex[Any, Any], value: object) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return has(order.outer)(value[0]) and has(order.inner)(value[1])


@dataclass(frozen=True, slots=True)
class Refinement:
    """How a nested scope's times relate to those around it: its order, and the ways in, out, and out for a path.

    What the outer scope believes of a path through the nested one is never later than the truth: `summarize(s)`
    applied to an outer `o` is at most `to_outer` of `s` applied to `to_inner(o)`.

    >>> from tidegauge.dataflow.order import INT
    >>> loop = product(INT, INT)
    >>> loop.to_inner(7), loop.to_outer((7, 3)), loop.summarize((2, 1))
    ((7, 0), 7, 2)
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

    >>> from tidegauge.dataflow.order import INT
    >>> same(INT).to_inner(7)
    7
    """
    return Refinement(order, order, _itself, _itself, _itself)


def product(outer: Order[Any], inner: Order[Any]) -> Refinement:
    """Return the refinement of an iteration: each outer time has all the inner ones, beginning at the minimum.

    >>> from tidegauge.dataflow.order import INT, Bounded
    >>> product(INT, Bounded(9)).order.minimum
    (0, 0)
    """
    start = inner.minimum
    return Refinement(
        outer,
        Product(outer, inner),
        lambda time: (time, start),
        lambda time: time[0],
        lambda summary: None if summary is None else summary[0],
    )
