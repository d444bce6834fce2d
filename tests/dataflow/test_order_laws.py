"""Orders and summaries: the laws, then the cases C1, C3, C4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.dataflow import INT, UNIT, Antichain, Bounded, Order, Product, Worker
from tidegauge.dataflow.order import NEVER, advance, compose, normal, product, same, summary_less_equal
from tidegauge.errors.dataflow import InvalidSummary


class Pointwise:
    """The order that a user writes for mappings: every position at most the other's."""

    minimum: Mapping[str, int] = {}
    total = False

    def less_equal(self, a: Any, b: Any, /) -> bool:
        return all(n <= dict(b).get(k, 0) for k, n in dict(a).items())

    def sort_key(self, time: Any, /) -> Any:
        return (sum(n for _, n in time), time)


small = st.integers(0, 6)
nested = Product(INT, Product(INT, Bounded(6)))
ORDERS: list[tuple[Order[Any], st.SearchStrategy[Any], st.SearchStrategy[Any]]] = [
    (INT, small, small),
    (Bounded(9), small, small),
    (Product(INT, INT), st.tuples(small, small), st.tuples(small, small)),
    (nested, st.tuples(small, st.tuples(small, small)), st.tuples(small, st.tuples(small, small))),
]


@pytest.mark.parametrize(("order", "times", "_summaries"), ORDERS, ids=lambda x: repr(x)[:40])
@given(data=st.data())
def test_an_order_is_partial_and_its_sort_key_extends_it(
    order: Order[Any], times: st.SearchStrategy[Any], _summaries: Any, data: st.DataObject
) -> None:
    a, b, c = data.draw(times), data.draw(times), data.draw(times)
    assert order.less_equal(order.minimum, a)
    assert order.less_equal(a, a)
    assert not (order.less_equal(a, b) and order.less_equal(b, a)) or a == b
    assert not (order.less_equal(a, b) and order.less_equal(b, c)) or order.less_equal(a, c)
    if order.less_equal(a, b) and a != b:
        assert order.sort_key(a) < order.sort_key(b)
    if order.total:
        assert order.less_equal(a, b) == (a <= b)


@pytest.mark.parametrize(("order", "times", "summaries"), ORDERS, ids=lambda x: repr(x)[:40])
@given(data=st.data())
def test_summaries_are_monotone_and_compose(
    order: Order[Any], times: st.SearchStrategy[Any], summaries: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    a, b = data.draw(times), data.draw(times)
    first, second = normal(order, data.draw(summaries)), normal(order, data.draw(summaries))
    one_by_one = advance(order, a, first)
    one_by_one = None if one_by_one is None else advance(order, one_by_one, second)
    joined = compose(order, first, second)
    assert one_by_one == (None if joined is NEVER else advance(order, a, joined))
    there = advance(order, a, first)
    if there is not None:
        assert order.less_equal(a, there)
        further = advance(order, b, first)
        if order.less_equal(a, b) and further is not None:
            assert order.less_equal(there, further)
        beyond = advance(order, a, second)
        if summary_less_equal(order, first, second) and beyond is not None:
            assert order.less_equal(there, beyond)


@given(time=small, summary=st.tuples(small, small))
def test_a_refinement_never_promises_too_much_outside(time: int, summary: tuple[int, int]) -> None:
    refinement = product(INT, INT)
    inner = normal(refinement.order, summary)
    arrived = refinement.to_outer(advance(refinement.order, refinement.to_inner(time), inner))
    believed = advance(INT, time, refinement.summarize(inner))
    assert believed is not None
    assert INT.less_equal(believed, arrived)


def test_c1_products_compare_componentwise() -> None:
    order = Product(INT, INT)
    assert not order.less_equal((1, 2), (2, 1))
    assert order.less_equal((1, 2), (1, 3))
    assert order.less_equal((1, 2), (1, 2))
    assert not Antichain([(1, 2)], order).less_than((1, 2))


def test_c3_amounts_add_up_and_stop_at_a_bound() -> None:
    assert INT.results_in(3, 5) == 8
    assert INT.followed_by(5, 15) == INT.followed_by(15, 5) == 20
    assert INT.results_in(10, 20) == 30
    byte = Bounded(255)
    assert byte.results_in(250, 10) is None
    assert byte.results_in(250, 5) == 255
    assert byte.results_in(253, 3) is None
    assert byte.followed_by(5, 252) is None


def test_c4_product_summaries_and_refinement() -> None:
    order = Product(INT, INT)
    turn = order.normal((0, 1))
    assert order.results_in((3, 4), turn) == (3, 5)
    assert order.followed_by(turn, turn) == order.normal((0, 2))
    loop = product(INT, INT)
    assert (loop.to_inner(7), loop.to_outer((7, 3)), loop.summarize(turn)) == ((7, 0), 7, None)


def test_the_unit_order_has_one_time() -> None:
    assert UNIT.less_equal((), ())
    assert not Antichain([()], UNIT).less_than(())
    assert same(UNIT).to_inner(()) == ()


@pytest.mark.parametrize(
    ("order", "summary"), [(INT, -1), (INT, True), (INT, "1"), (Product(INT, INT), 1), (UNIT, ()), (Bounded(3), -2)]
)
def test_a_summary_that_the_order_does_not_have_is_refused(order: Order[Any], summary: Any) -> None:
    with pytest.raises(InvalidSummary, match="TG-0708"):
        normal(order, summary)


def test_an_order_of_the_users_own_runs_a_dataflow(worker: Worker) -> None:
    order = Pointwise()
    order.minimum = ()  # type: ignore[assignment]
    assert isinstance(order, Order)
    with worker.dataflow("tides", order=order) as scope:
        _, held, stream = scope.unordered_input("shores")
        probe = stream.map(lambda batch: batch).probe()
    here, there = held.delayed((("p0", 3),)), held.delayed((("p1", 2),))
    held.drop()
    worker.step(), worker.step()
    assert set(probe.frontier()) == {(("p0", 3),), (("p1", 2),)}
    assert not probe.less_equal((("p0", 2), ("p1", 1)))
    assert probe.less_equal((("p0", 3), ("p1", 1)))
    here.drop()
    there.drop()
    while worker.step():
        pass
    assert probe.done()
