"""A nested scope has its own times, each within a time of the scope around it.

Invariant: what the outer scope believes of a path through the nested one is never later than the truth:
`summarize(s)` applied to an outer `o` is at most `to_outer` of `s` applied to `to_inner(o)`.

>>> from tidegauge.dataflow.order import INT
>>> loop = product(INT, INT)
>>> loop.to_inner(7), loop.to_outer((7, 3)), loop.summarize((2, 1))
((7, 0), 7, 2)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegauge.dataflow.order.pairs import Product
from tidegauge.dataflow.order.protocol import Order, Summary, Time

__all__ = ["Refinement", "product", "same"]


@dataclass(frozen=True, slots=True)
class Refinement:
    """How a nested scope's times relate to those around it: its order, and the ways in, out, and out for a path."""

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
