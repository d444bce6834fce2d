"""Orders and summaries: the laws, then the cases C1 to C4 and orders of the user's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataflow.orders import ORDERS, Case, Instants, Pointwise, case_of

from tidegauge.dataflow import INT, UNIT, Antichain, Bounded, Order, Product, Worker
from tidegauge.dataflow.order import (
    ALL,
    NEVER,
    PARTITIONED,
    Advancing,
    Lex,
    advance,
    compose,
    idle,
    normal,
    only,
    product,
    same,
    steady,
    summary_less_equal,
)
from tidegauge.errors.dataflow import InvalidSummary
from tidegauge.testing.strategies import intervals, orders

each_order = pytest.mark.parametrize("case", ORDERS, ids=lambda case: case.name)


@each_order
@given(data=st.data())
def test_an_order_is_partial_and_its_sort_key_extends_it(case: Case, data: st.DataObject) -> None:
    order = case.order
    a, b, c = (data.draw(case.times) for _ in range(3))
    assert isinstance(order, Order)
    assert order.less_equal(order.minimum, a)
    assert order.less_equal(a, a)
    assert not (order.less_equal(a, b) and order.less_equal(b, a)) or a == b
    assert not (order.less_equal(a, b) and order.less_equal(b, c)) or order.less_equal(a, c)
    if order.less_equal(a, b) and a != b:
        assert order.sort_key(a) < order.sort_key(b)
    if order.total:
        assert order.less_equal(a, b) == (a <= b)


@each_order
@given(data=st.data())
def test_times_are_values(case: Case, data: st.DataObject) -> None:
    a, b = data.draw(case.times), data.draw(case.times)
    assert a is not None
    assert a != b or hash(a) == hash(b)


@each_order
@given(data=st.data())
def test_summaries_are_monotone_and_compose(case: Case, data: st.DataObject) -> None:
    order = case.order
    a, b = data.draw(case.times), data.draw(case.times)
    first, second = normal(order, data.draw(case.summaries)), normal(order, data.draw(case.summaries))
    there = advance(order, a, first)
    joined = compose(order, first, second)
    one_by_one = None if there is None else advance(order, there, second)
    assert one_by_one == (None if joined is NEVER else advance(order, a, joined))
    if order.less_equal(a, b):
        later = advance(order, b, first)
        assert later is None or (there is not None and order.less_equal(there, later))
    if summary_less_equal(order, first, second):
        further = advance(order, a, second)
        assert further is None or (there is not None and order.less_equal(there, further))


@each_order
@given(data=st.data())
def test_a_summary_leads_on_and_strictly_so_unless_it_is_idle(case: Case, data: st.DataObject) -> None:
    time, summary = data.draw(case.times), normal(case.order, data.draw(case.summaries))
    there = advance(case.order, time, summary)
    if there is not None:
        assert case.order.less_equal(time, there)
        assert there != time or idle(case.order, summary)
    if isinstance(case.order, Advancing):
        assert normal(case.order, summary) == summary


LAWS: list[Any] = [
    test_an_order_is_partial_and_its_sort_key_extends_it,
    test_times_are_values,
    test_summaries_are_monotone_and_compose,
    test_a_summary_leads_on_and_strictly_so_unless_it_is_idle,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__.removeprefix("test_"))
@given(order=orders(), data=st.data())
def test_orders_made_of_orders_hold_the_laws(law: Any, order: Order[Any], data: st.DataObject) -> None:
    law.hypothesis.inner_test(case_of(order), data)


@pytest.mark.parametrize("case", [case for case in ORDERS if steady(case.order)], ids=lambda case: case.name)
@given(data=st.data())
def test_steady_summaries_are_as_addition_is(case: Case, data: st.DataObject) -> None:
    a, b = data.draw(case.times), data.draw(case.times)
    first, second = normal(case.order, data.draw(case.summaries)), normal(case.order, data.draw(case.summaries))
    there = advance(case.order, a, first)
    assert there is not None
    assert (there == advance(case.order, b, first)) == (a == b)
    assert (there == advance(case.order, a, second)) == (first == second)


def test_steady_is_what_adds() -> None:
    assert all(steady(order) for order in (INT, Product(INT, INT), Lex(INT, INT), Lex(Product(INT, INT), INT)))
    others: list[Order[Any]] = [UNIT, Bounded(9), Product(INT, Bounded(9)), PARTITIONED, Instants(), Pointwise()]
    assert not any(steady(order) for order in others)


@given(time=st.integers(0, 6), summary=st.tuples(st.integers(0, 6), st.integers(0, 6)))
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


def test_c2_lexicographic_pairs_compare_by_the_first_part() -> None:
    order = Lex(INT, INT)
    assert order.less_equal((1, 2), (2, 1))
    assert not order.less_equal((1, 2), (1, 1))
    assert order.less_equal((1, 3), (1, 3))


def test_lexicographic_pairs_are_total_when_both_parts_are() -> None:
    assert Lex(INT, Lex(Bounded(3), UNIT)).total
    assert not Lex(Product(INT, INT), INT).total
    assert not Lex(INT, PARTITIONED).total


def test_an_outer_increment_does_not_reset_the_inner() -> None:
    order = Lex(INT, INT)
    assert order.results_in((3, 4), order.normal((2, 0))) == (5, 4)
    assert order.followed_by(order.normal((2, 0)), order.normal((1, 3))) == (3, 3)


@pytest.mark.parametrize(
    ("order", "summary"),
    [(Lex(INT, Bounded(9)), (0, 1)), (Lex(Bounded(9), INT), (1, 0)), (Lex(PARTITIONED, INT), ((only(3), None), 0))],
)
def test_a_summary_that_would_not_keep_lexicographic_pairs_in_order_is_refused(
    order: Lex[Any, Any], summary: Any
) -> None:
    with pytest.raises(InvalidSummary, match="steady"):
        order.normal(summary)


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


@pytest.mark.parametrize(
    ("order", "summary"),
    [
        (INT, -1),
        (INT, True),
        (INT, "1"),
        (Product(INT, INT), 1),
        (Lex(INT, INT), (1, 2, 3)),
        (UNIT, ()),
        (Bounded(3), -2),
        (PARTITIONED, 1),
        (PARTITIONED, only(3)),
        (PARTITIONED, (3, 1)),
        (PARTITIONED, (ALL, -1)),
        (PARTITIONED, (only(3)._replace(upper=only(3).lower), 1)),
    ],
)
def test_a_summary_that_the_order_does_not_have_is_refused(order: Order[Any], summary: Any) -> None:
    with pytest.raises(InvalidSummary, match="TG-0708"):
        normal(order, summary)


@given(intervals(), intervals())
def test_what_a_path_restricts_to_is_what_is_in_both(a: Any, b: Any) -> None:
    both = PARTITIONED.results_in((a, 2), (b, 3))
    for key in range(-1, 7):
        assert (both is not None and both[0].contains(key)) == (a.contains(key) and b.contains(key))
    assert both is None or both[1] == 5
    assert (PARTITIONED.followed_by((a, 1), (b, None)) is None) == (both is None)


def test_a_path_for_all_partitions_that_adds_nothing_is_the_identity() -> None:
    assert PARTITIONED.normal((ALL, 0)) is None
    assert PARTITIONED.normal((ALL, 2)) == PARTITIONED.normal((None, 2)) == (None, 2)
    assert PARTITIONED.normal((only(3), 0)) == (only(3), None)


def test_the_unit_order_has_one_time(worker: Worker) -> None:
    assert UNIT.less_equal((), ())
    assert not Antichain([()], UNIT).less_than(())
    assert same(UNIT).to_inner(()) == ()
    with worker.dataflow("once", order=UNIT) as scope:
        handle, stream = scope.input("all")
        with scope.iterative("loop") as loop:
            again, round_again = loop.feedback((None, 1))
            halves = stream.enter(loop).concat(round_again).map(lambda n: n // 2)
            again.connect(halves.filter(lambda n: n > 0))
            probe = halves.leave().probe()
    handle.send(9)
    worker.step(), worker.step()
    assert probe.less_equal(())
    handle.close()
    while worker.step():
        pass
    assert probe.done()


def test_an_order_of_the_users_own_runs_a_dataflow(worker: Worker) -> None:
    with worker.dataflow("tides", order=Pointwise()) as scope:
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


def test_moments_are_an_order_of_the_users_own(worker: Worker) -> None:
    noon, hour, seen = datetime(2026, 11, 20, 12, tzinfo=UTC), timedelta(hours=1), []
    with worker.dataflow("clock", order=Instants()) as scope:
        handle, stream = scope.input("rings")
        again, later = scope.feedback(hour)
        rings = stream.concat(later).inspect(lambda stamp, n: seen.append((stamp[0], n)))
        again.connect(rings.filter(lambda n: n > 1).map(lambda n: n - 1))
        probe = rings.probe()
    handle.advance_to(noon)
    handle.send(3)
    handle.advance_to(noon + 9 * hour)
    while probe.less_than(noon + 3 * hour):
        worker.step()
    assert seen == [(noon, 3), (noon + hour, 2), (noon + 2 * hour, 1)]
    handle.close()
    while worker.step():
        pass
    assert probe.done()
