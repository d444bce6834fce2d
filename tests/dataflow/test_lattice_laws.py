"""Lattices: the laws of join and meet, bounds of antichains, `advance_by`; then the cases C5 and C6."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataflow.orders import LATTICES, ORDERS, Case

from tidegauge.dataflow import INT, Antichain, Bounded, Product
from tidegauge.dataflow.frontier import advance_by, antichain_join, antichain_meet
from tidegauge.dataflow.order import PARTITIONED, Lattice, Lex, join, maximum, meet, only
from tidegauge.errors.dataflow import NoBound

PAIRS = Product(INT, INT)
each_lattice = pytest.mark.parametrize("case", LATTICES, ids=lambda case: case.name)


@each_lattice
@given(data=st.data())
def test_bounds_are_bounds_and_no_other_is_closer(case: Case, data: st.DataObject) -> None:
    order: Lattice[Any] = case.order  # type: ignore[assignment]
    assert isinstance(order, Lattice)
    a, b, c = (data.draw(case.times) for _ in range(3))
    upper, lower = order.join(a, b), order.meet(a, b)
    le = order.less_equal
    assert le(a, upper)
    assert le(b, upper)
    assert le(lower, a)
    assert le(lower, b)
    assert (le(a, c) and le(b, c)) == le(upper, c)
    assert (le(c, a) and le(c, b)) == le(c, lower)


@each_lattice
@given(data=st.data())
def test_bounds_depend_neither_on_sequence_nor_on_brackets_and_absorb(case: Case, data: st.DataObject) -> None:
    order: Lattice[Any] = case.order  # type: ignore[assignment]
    a, b, c = (data.draw(case.times) for _ in range(3))
    for bound, other in ((order.join, order.meet), (order.meet, order.join)):
        assert bound(a, b) == bound(b, a)
        assert bound(bound(a, b), c) == bound(a, bound(b, c))
        assert bound(a, a) == a
        assert bound(a, other(a, b)) == a
    assert order.less_equal(a, b) == (order.join(a, b) == b) == (order.meet(a, b) == a)


@each_lattice
@given(data=st.data())
def test_minimum_and_maximum_bound_everything(case: Case, data: st.DataObject) -> None:
    time, last = data.draw(case.times), maximum(case.order)
    assert join(case.order, time, case.order.minimum) == time
    assert last is None or (meet(case.order, time, last) == time and case.order.less_equal(time, last))


def test_a_maximum_is_there_when_all_parts_have_one() -> None:
    six, two = Bounded(6), Bounded(2)
    assert (Product(six, two).maximum, Lex(six, two).maximum) == ((6, 2), (6, 2))
    assert Product(six, INT).maximum is None
    assert Product(PARTITIONED, six).maximum is None


@given(data=st.data())
def test_partitioned_times_have_a_greatest_one_before_both(data: st.DataObject) -> None:
    [times] = [case.times for case in ORDERS if case.order is PARTITIONED]
    a, b, c = (data.draw(times) for _ in range(3))
    le, lower = PARTITIONED.less_equal, PARTITIONED.meet(a, b)
    assert (le(c, a) and le(c, b)) == le(c, lower)


def test_partitioned_is_no_lattice_for_nothing_is_beyond_two_partitions() -> None:
    assert not isinstance(PARTITIONED, Lattice)
    with pytest.raises(NoBound, match=r"TG-0719.*no least time at or beyond both"):
        join(PARTITIONED, PARTITIONED.at(3, 1), PARTITIONED.at(4, 1))
    with pytest.raises(NoBound):
        Product(PARTITIONED, INT).join(((only(3), 1), 0), ((only(4), 1), 0))
    assert Product(PARTITIONED, INT).meet(((only(3), 1), 2), ((only(4), 5), 1))[1] == 1


def test_an_order_that_says_nothing_of_bounds_has_none() -> None:
    class Bare:
        minimum, total = 0, True

        def less_equal(self, a: int, b: int, /) -> bool:
            return a <= b

        def sort_key(self, time: int, /) -> int:
            return time

    with pytest.raises(NoBound):
        meet(Bare(), 1, 2)
    assert Lex(Bare(), Bare()).join((1, 2), (2, 1)) == (2, 1)  # the earlier of two that compare needs no bound


def test_lexicographic_pairs_may_lack_a_meet_where_first_parts_do_not_compare() -> None:
    order = Lex(PAIRS, INT)
    assert order.join(((0, 1), 5), ((1, 0), 7)) == ((1, 1), 0)
    with pytest.raises(NoBound, match="greatest time at or before"):
        order.meet(((0, 1), 5), ((1, 0), 7))
    assert Lex(PAIRS, Bounded(9)).meet(((0, 1), 5), ((1, 0), 7)) == ((0, 0), 9)


@each_lattice
@given(data=st.data())
def test_bounds_of_antichains_are_bounds_of_what_they_stand_for(case: Case, data: st.DataObject) -> None:
    a, b = (Antichain(data.draw(st.lists(case.times, max_size=4)), case.order) for _ in range(2))
    upper, lower, time = antichain_join(a, b), antichain_meet(a, b), data.draw(case.times)
    assert upper.less_equal(time) == (a.less_equal(time) and b.less_equal(time))
    assert lower.less_equal(time) == (a.less_equal(time) or b.less_equal(time))
    assert lower <= a <= upper
    assert lower <= b <= upper


@each_lattice
@given(data=st.data())
def test_advancing_is_the_furthest_that_nobody_beyond_the_frontier_can_notice(
    case: Case, data: st.DataObject
) -> None:
    order = case.order
    frontier = Antichain(data.draw(st.lists(case.times, min_size=1, max_size=3)), order)
    a, b, later = (data.draw(case.times) for _ in range(3))
    advanced = advance_by(a, frontier)
    for f in frontier:
        beyond = join(order, later, f)
        assert order.less_equal(a, beyond) == order.less_equal(advanced, beyond)
    alike = all(order.less_equal(b, join(order, a, f)) for f in frontier)
    assert alike == order.less_equal(b, advanced)
    assert advance_by(advanced, frontier) == advanced
    if len(frontier) == 1:
        assert advanced == join(order, a, *frontier)


def test_c5_bounds_of_pairs_and_of_antichains() -> None:
    assert PAIRS.join((3, 7), (4, 6)) == (4, 7)
    assert PAIRS.meet((3, 7), (4, 6)) == (3, 6)
    a, b = Antichain([(3, 7), (5, 6)], PAIRS), Antichain([(4, 6)], PAIRS)
    assert antichain_join(a, b) == Antichain([(4, 7), (5, 6)], PAIRS)
    assert antichain_meet(a, b) == Antichain([(3, 7), (4, 6)], PAIRS)


def test_c6_advanced_times_compare_alike_beyond_the_frontier() -> None:
    frontier = Antichain([(4, 8), (5, 3)], PAIRS)
    assert advance_by((3, 7), frontier) == (4, 7)
    for point in ((x, y) for x in range(10) for y in range(10)):
        if frontier.less_equal(point):
            assert PAIRS.less_equal((3, 7), point) == PAIRS.less_equal((4, 7), point)
    assert advance_by((3, 7), Antichain([(4, 6)], PAIRS)) == (4, 7)
    assert advance_by((3, 7), Antichain((), PAIRS)) == (3, 7)
