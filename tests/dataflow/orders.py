"""Orders with strategies for their times and summaries, for the tests of the laws."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from tidegauge.dataflow.order import INT, PARTITIONED, UNIT, Bounded, Lex, Order, Product
from tidegauge.remap.frontier import GAUGE
from tidegauge.testing.strategies import summaries, times

__all__ = ["LATTICES", "ORDERS", "Case", "Instants", "Pointwise", "case_of"]


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


shores = st.dictionaries(st.sampled_from("pq"), st.integers(1, 3)).map(lambda found: tuple(sorted(found.items())))
moments = st.integers(0, 1440).map(lambda minute: datetime(2026, 11, 20, tzinfo=UTC) + timedelta(minutes=minute))
durations = st.timedeltas(timedelta(0), timedelta(days=2))


def case_of(order: Order[Any], name: str = "") -> Case:
    """A case of one of our orders."""
    return Case(name, order, times(order), summaries(order))


LATTICES = [
    case_of(UNIT, "UNIT"),
    case_of(INT, "INT"),
    case_of(Bounded(9), "Bounded"),
    case_of(Product(INT, INT), "Product"),
    case_of(Product(INT, Product(INT, Bounded(6))), "Product nested"),
    case_of(Lex(INT, INT), "Lex"),
    case_of(Lex(INT, Bounded(6)), "Lex bounded"),
    case_of(Lex(Product(INT, INT), Bounded(6)), "Lex of Product"),
    case_of(Product(Lex(INT, INT), INT), "Lex in Product"),
    case_of(Lex(Lex(INT, INT), UNIT), "Lex in Lex"),
]
"""Those in which every two times have both bounds."""

ORDERS = [
    *LATTICES,
    case_of(PARTITIONED, "Partitioned"),
    case_of(Product(PARTITIONED, INT), "Product Partitioned"),
    case_of(Lex(PARTITIONED, INT), "Lex Partitioned"),
    case_of(GAUGE, "Gauge"),
    Case("Pointwise", Pointwise(), shores, st.none()),
    Case("Instants", Instants(), moments, durations),
]
