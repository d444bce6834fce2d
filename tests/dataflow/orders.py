"""Orders with strategies for their times and summaries, for the tests of the laws."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from tidegauge.dataflow.order import (
    ALL,
    FIRST,
    INT,
    LAST,
    PARTITIONED,
    UNIT,
    Bounded,
    Interval,
    Lex,
    Order,
    Product,
    after,
    before,
)

__all__ = ["LATTICES", "ORDERS", "Case", "Instants", "Pointwise", "intervals"]


class Pointwise:
    """The order that a user writes for positions of many shores: each at most the other's, 0 when not named."""

    minimum: tuple[tuple[str, int], ...] = ()
    total = False

    def less_equal(self, a: Any, b: Any, /) -> bool:
        return all(n <= dict(b).get(k, 0) for k, n in a)

    def sort_key(self, time: Any, /) -> Any:
        return (sum(n for _, n in time), time)


class Instants:
    """The order that a user writes for moments; a summary is a duration."""

    minimum = datetime.min.replace(tzinfo=UTC)
    total = True

    def less_equal(self, a: datetime, b: datetime, /) -> bool:
        return a <= b

    def sort_key(self, time: datetime, /) -> datetime:
        return time

    def normal(self, summary: timedelta | None, /) -> timedelta | None:
        return summary or None

    def results_in(self, time: datetime, summary: timedelta, /) -> datetime | None:
        try:
            return time + summary
        except OverflowError:
            return None

    def followed_by(self, first: timedelta, second: timedelta, /) -> timedelta:
        return first + second

    def summary_less_equal(self, a: timedelta, b: timedelta, /) -> bool:
        return a <= b


@dataclass(frozen=True)
class Case:
    name: str
    order: Order[Any]
    times: st.SearchStrategy[Any]
    summaries: st.SearchStrategy[Any]


keys = st.integers(0, 5)
cuts = st.one_of(st.sampled_from([FIRST, LAST]), keys.map(before), keys.map(after))
intervals = st.lists(cuts, min_size=2, max_size=2, unique=True).map(sorted).map(lambda ends: Interval(*ends))
small = st.integers(0, 6)
pairs = st.tuples(small, small)
nested = st.tuples(small, pairs)
partitioned = st.tuples(intervals, small)
progress = st.tuples(partitioned, small)
restricting = st.tuples(st.one_of(st.none(), st.just(ALL), intervals), st.one_of(st.none(), small))
nothing = st.none()
shores = st.dictionaries(st.sampled_from("pq"), st.integers(1, 3)).map(lambda found: tuple(sorted(found.items())))
moments = st.integers(0, 1440).map(lambda minute: datetime(2026, 11, 20, tzinfo=UTC) + timedelta(minutes=minute))
durations = st.timedeltas(timedelta(0), timedelta(days=2))
steps = st.tuples(small, nothing)

LATTICES = [
    Case("UNIT", UNIT, st.just(()), nothing),
    Case("INT", INT, small, small),
    Case("Bounded", Bounded(9), small, small),
    Case("Product", Product(INT, INT), pairs, pairs),
    Case("Product nested", Product(INT, Product(INT, Bounded(6))), nested, nested),
    Case("Lex", Lex(INT, INT), pairs, pairs),
    Case("Lex bounded", Lex(INT, Bounded(6)), pairs, steps),
    Case("Lex of Product", Lex(Product(INT, INT), Bounded(6)), st.tuples(pairs, small), st.tuples(pairs, nothing)),
    Case("Lex in Product", Product(Lex(INT, INT), INT), st.tuples(pairs, small), st.tuples(pairs, small)),
    Case("Lex in Lex", Lex(Lex(INT, INT), UNIT), st.tuples(pairs, st.just(())), st.tuples(pairs, nothing)),
]
"""Those in which every two times have both bounds."""

ORDERS = [
    *LATTICES,
    Case("Partitioned", PARTITIONED, partitioned, restricting),
    Case("Product Partitioned", Product(PARTITIONED, INT), progress, st.tuples(restricting, small)),
    Case("Lex Partitioned", Lex(PARTITIONED, INT), progress, st.tuples(nothing, small)),
    Case("Pointwise", Pointwise(), shores, nothing),
    Case("Instants", Instants(), moments, durations),
]
