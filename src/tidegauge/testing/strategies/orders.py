"""Orders, the times and the path summaries of an order, and antichains of its times.

Invariant: `has(order)` accepts every time of `times(order)`, and `normal` every summary of `summaries(order)`.

An order of your own has no times here, since nobody but you knows them. Everything else takes them from you, and
pairs are tuples: `antichains(mine, times=of_mine)`, `antichains(Product(mine, INT), times=st.tuples(of_mine,
times(INT)))`.

>>> from hypothesis import find, settings
>>> steady = settings(derandomize=True)  # the same examples each time
>>> from tidegauge.dataflow import INT, Product
>>> find(antichains(Product(INT, INT)), lambda frontier: len(frontier) == 2, settings=steady)
Antichain([(0, 1), (1, 0)])
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from tidegauge.dataflow import Antichain
from tidegauge.dataflow.order import (
    ALL,
    FIRST,
    INT,
    LAST,
    PARTITIONED,
    UNIT,
    Bounded,
    Integers,
    Interval,
    Lex,
    Order,
    Partitioned,
    Product,
    Summary,
    Time,
    Unit,
    after,
    before,
    steady,
)
from tidegauge.errors.testing import InvalidStrategy, NoStrategyKnown
from tidegauge.remap.frontier import GAUGE, Gauge
from tidegauge.testing.strategies.arguments import between, sizes, strategies
from tidegauge.testing.strategies.frontiers import frontiers

__all__ = ["antichains", "intervals", "orders", "summaries", "times"]

KEYS: Final[st.SearchStrategy[Any]] = st.integers(0, 5)
"""Few partitions, so that intervals meet, enclose each other and end at one cut."""


def orders() -> st.SearchStrategy[Order[Any]]:
    """Orders of every kind that comes with Tidegauge, and pairs of them in each other, a few deep."""
    single: list[Order[Any]] = [INT, UNIT, PARTITIONED, GAUGE]
    return st.recursive(
        st.sampled_from(single) | st.integers(0, 9).map(Bounded),
        lambda parts: st.builds(Product, parts, parts) | st.builds(Lex, parts, parts),
        max_leaves=3,
    )


def intervals(*, keys: st.SearchStrategy[Any] = KEYS) -> st.SearchStrategy[Interval]:
    """Intervals of partitions: of one, of several, of all before or after one, of all."""
    strategies("intervals", keys=keys)
    cuts = st.sampled_from([FIRST, LAST]) | keys.map(before) | keys.map(after)
    return st.lists(cuts, min_size=2, max_size=2, unique=True).map(sorted).map(lambda ends: Interval(*ends))


def times(order: Order[Any], *, max_value: int = 6, keys: st.SearchStrategy[Any] = KEYS) -> st.SearchStrategy[Time]:
    """Times of an order that comes with Tidegauge.

    max_value: the largest number in a time, small by default, so that times often compare and are often equal. keys:
    the partitions of `PARTITIONED`, of one type that sorts. Raises `NoStrategyKnown`.
    """
    between("times", "max_value", max_value)
    strategies("times", keys=keys)
    match order:
        case Unit():
            return st.just(())
        case Integers():
            return st.integers(0, max_value)
        case Bounded(limit=limit):
            return st.integers(0, min(limit, max_value))
        case Product(outer=outer, inner=inner) | Lex(outer=outer, inner=inner):
            return st.tuples(*(times(part, max_value=max_value, keys=keys) for part in (outer, inner)))
        case Partitioned():
            return st.tuples(intervals(keys=keys), st.integers(0, max_value))
        case Gauge():
            return frontiers(positions=st.integers(0, max_value), sealed=False)
    raise _unknown("times", order, "draw the times yourself; those of a pair are st.tuples(yours, times(INT))")


def summaries(
    order: Order[Any], *, max_value: int = 6, keys: st.SearchStrategy[Any] = KEYS
) -> st.SearchStrategy[Summary]:
    """Summaries of paths, as `feedback` takes them: not in normal form, the identity included.

    An order without summaries has only the identity, None. So has a part of `Lex` that is not steady. Raises
    `NoStrategyKnown`.
    """
    between("summaries", "max_value", max_value)
    strategies("summaries", keys=keys)

    def of(part: Order[Any]) -> st.SearchStrategy[Summary]:
        return summaries(part, max_value=max_value, keys=keys)

    match order:
        case Unit() | Gauge():
            return st.none()
        case Integers() | Bounded():
            return st.none() | st.integers(0, max_value)
        case Product(outer=outer, inner=inner):
            return st.none() | st.tuples(of(outer), of(inner))
        case Lex(outer=outer, inner=inner):
            return st.none() | st.tuples(*(of(part) if steady(part) else st.none() for part in (outer, inner)))
        case Partitioned():
            amounts = st.none() | st.integers(0, max_value)
            return st.none() | st.tuples(st.none() | st.just(ALL) | intervals(keys=keys), amounts)
    raise _unknown("summaries", order, "draw the summaries yourself; those of a pair are tuples of two")


def antichains(
    order: Order[Any], *, times: st.SearchStrategy[Time] | None = None, min_size: int = 0, max_size: int = 5
) -> st.SearchStrategy[Antichain[Any]]:
    """Antichains of times of an order; as frontiers they say what may still come, and the empty one is the end.

    times: those of an order of your own. They are what the antichain is made of, and only the minimal ones stay in
    it: `min_size` and `max_size` bound their number before that. Raises `NoStrategyKnown`.
    """
    sizes("antichains", min_size, max_size)
    if times is None:
        times = _times(order)
    strategies("antichains", times=times)
    if not isinstance(order, Order):
        raise InvalidStrategy(strategy="antichains", parameter="order", value=repr(order), expected="an order")
    return st.builds(Antichain, st.lists(times, min_size=min_size, max_size=max_size), st.just(order))


_times = times
"""What a parameter of the same name hides."""


def _unknown(strategy: str, order: object, instead: str) -> NoStrategyKnown:
    return NoStrategyKnown(strategy=strategy, thing=f"the order {order!r}", instead=instead)
