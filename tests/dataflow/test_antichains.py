"""Antichains and change batches: properties, then the cases C7 to C18."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataflow.orders import ORDERS, Case

from tidegauge.dataflow import INT, Antichain, ChangeBatch, MutableAntichain, Product, TotalMutableAntichain
from tidegauge.dataflow.frontier import FrontierView, Outstanding, mutable_antichain
from tidegauge.dataflow.order import PARTITIONED, Partitioned, less_than

PAIRS = Product(INT, INT)
changes = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([-2, -1, 1, 2])), max_size=6)


def both() -> list[Outstanding[int]]:
    return [MutableAntichain(INT), TotalMutableAntichain()]


@given(st.lists(changes, max_size=12))
def test_the_total_antichain_answers_as_the_general_one(rounds: list[list[tuple[int, int]]]) -> None:
    general, total = both()
    for batch in rounds:
        assert total.update(batch) == general.update(batch)
        assert total.elements() == general.elements()
        for time in range(8):
            assert total.less_equal(time) == general.less_equal(time)
            assert total.less_than(time) == general.less_than(time)
            assert total.count_for(time) == general.count_for(time)
        assert (total.is_empty(), len(total)) == (general.is_empty(), len(general))


@pytest.mark.parametrize("case", ORDERS, ids=lambda case: case.name)
@given(data=st.data())
def test_a_mutable_antichain_holds_the_minimal_positive_times(case: Case, data: st.DataObject) -> None:
    order = case.order
    batches = st.lists(st.tuples(case.times, st.sampled_from([-2, -1, 1, 2])), max_size=5)
    kinds: list[Outstanding[Any]] = [MutableAntichain(order), mutable_antichain(order)]
    counts: dict[Any, int] = {}
    told: ChangeBatch[Any] = ChangeBatch()
    for batch in data.draw(st.lists(batches, max_size=8)):
        found, again = (times.update(batch) for times in kinds)
        assert found == again
        assert found == sorted(found, key=lambda change: order.sort_key(change[0]))
        told.extend(found)
        for time, delta in batch:
            counts[time] = counts.get(time, 0) + delta
        positive = [time for time, count in counts.items() if count > 0]
        minimal = {a for a in positive if not any(less_than(order, b, a) for b in positive)}
        assert told == dict.fromkeys(minimal, 1)
        for times in kinds:
            assert set(times.elements()) == minimal
            assert list(map(order.sort_key, times.elements())) == sorted(map(order.sort_key, minimal))
            assert len(times) == sum(count != 0 for count in counts.values())


@given(st.randoms(use_true_random=False))
def test_many_outstanding_times_come_and_go_in_any_sequence(random: Any) -> None:
    times: TotalMutableAntichain[int] = TotalMutableAntichain()
    counts: dict[int, int] = {}
    for _ in range(300):
        time, delta = random.randrange(60), random.choice([-1, -1, 1])
        times.update([(time, delta)])
        counts[time] = counts.get(time, 0) + delta
        assert times.elements() == tuple(sorted(t for t, n in counts.items() if n > 0))[:1]
    assert len(times._heap) <= max(33, 2 * len(times) + 1)


class Compared(int):
    """A time that counts how often it is compared."""

    count = 0

    def __lt__(self, other: int) -> bool:
        Compared.count += 1
        return int(self) < int(other)


def test_an_update_of_many_outstanding_times_costs_their_logarithm() -> None:
    outstanding = [Compared(n) for n in range(4096)]
    chance = random.Random(1)
    times: TotalMutableAntichain[int] = TotalMutableAntichain()
    for delta in (1, -1):
        chance.shuffle(outstanding)
        Compared.count = 0
        for time in outstanding:
            times.update([(time, delta)])
        assert Compared.count < 2 * 13 * len(outstanding)
    Compared.count = 0
    for delta, sequence in ((1, sorted(outstanding, reverse=True)), (-1, sorted(outstanding))):
        for time in sequence:  # the frontier retreats, then advances, with every one
            assert times.update([(time, delta)])
    assert Compared.count < 2 * 2 * 13 * len(outstanding) + 4 * 13 * len(outstanding)


def test_one_step_of_one_partition_does_not_compare_all_with_all() -> None:
    calls = 0

    class Counting(Partitioned):
        def less_equal(self, a: Any, b: Any, /) -> bool:
            nonlocal calls
            calls += 1
            return PARTITIONED.less_equal(a, b)

    times: MutableAntichain[Any] = MutableAntichain(Counting())
    times.update([(time, 1) for time in PARTITIONED.frontier(dict.fromkeys(range(200), 5))])
    calls = 0
    changed = times.update([(PARTITIONED.at(77, 5), -1), (PARTITIONED.at(77, 6), 1)])
    assert changed == [(PARTITIONED.at(77, 5), -1), (PARTITIONED.at(77, 6), 1)]
    assert calls <= 4 * len(times)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5))), st.randoms())
def test_an_antichain_does_not_depend_on_the_sequence(elements: list[tuple[int, int]], random: Any) -> None:
    shuffled = list(elements)
    random.shuffle(shuffled)
    a, b = Antichain(elements, PAIRS), Antichain(shuffled, PAIRS)
    assert a == b
    assert hash(a) == hash(b)
    assert all(a.less_equal(element) for element in elements)
    assert not any(a.less_than(element) for element in a)


def test_c7_inserting_reports_whether_anything_changed() -> None:
    two = Antichain([2])
    assert two.insert(3) is two
    assert Antichain[int]().insert(2) == two
    assert Antichain([2, 5]) == two
    assert Antichain([3, 4]) == Antichain([3])


def test_c8_asking_whether_a_time_is_still_possible() -> None:
    two = Antichain([2])
    assert [two.less_than(t) for t in (3, 2, 1)] == [True, False, False]
    assert [two.less_equal(t) for t in (3, 2, 1)] == [True, True, False]
    assert not Antichain[int]().less_equal(3)
    assert not Antichain[int]().less_than(3)


def test_c9_only_minimal_elements_stay() -> None:
    grown: Antichain[Any] = Antichain(order=PAIRS)
    results = []
    for element in [(2, 2), (1, 3), (3, 1), (1, 1), (0, 5), (5, 0), (1, 1)]:
        before, grown = grown, grown.insert(element)
        results.append(grown is not before)
    assert results == [True, True, True, True, True, True, False]
    assert set(grown) == {(1, 1), (0, 5), (5, 0)}


def test_c10_the_empty_antichain_is_the_greatest() -> None:
    empty, one = Antichain[int](), Antichain([1])
    assert (one <= empty, empty <= one, empty <= empty, empty < empty, one < empty) == (
        True,
        False,
        True,
        False,
        True,
    )
    a = Antichain([(0, 2), (2, 0)], PAIRS)
    assert a <= Antichain([(1, 2), (2, 1)], PAIRS)
    assert not a <= Antichain([(1, 1)], PAIRS)
    assert not Antichain([(1, 1)], PAIRS) <= a
    assert not a.less_equal((1, 1))


def test_c11_hashing_does_not_depend_on_the_sequence() -> None:
    known = {Antichain([(0, 2), (1, 1)], PAIRS)}
    assert Antichain([(1, 1), (0, 2)], PAIRS) in known
    for other in ([(0, 2)], [(0, 1)], [(1, 2)], [(1, 1)], [(0, 1), (1, 0)], [(2, 3)], []):
        assert Antichain(other, PAIRS) not in known


def test_c12_the_change_of_the_frontier_is_reported() -> None:
    for times in both():
        times.update([(1, 1)])
        assert times.update([(1, -1), (2, 7)]) == [(1, -1), (2, 1)]
        assert times.elements() == (2,)


def test_c13_the_frontier_may_retreat() -> None:
    for times in both():
        times.update([(0, 1)])
        assert times.update([(0, -1), (5, 1)]) == [(0, -1), (5, 1)]
        assert times.update([(3, 1)]) == [(3, 1), (5, -1)]
        assert times.update([(5, -1)]) == []
        assert times.update([(3, -1)]) == [(3, -1)]
        assert times.is_empty()


def test_c14_negative_counts_hide_a_time_until_they_are_paid_back() -> None:
    for times in both():
        seen = [times.update([(4, delta)]) for delta in (-1, 1, 1, 1, -1, -1)]
        assert seen == [[], [], [(4, 1)], [], [], [(4, -1)]]


def test_c15_negative_counts_do_not_hide_later_times() -> None:
    for times in both():
        assert times.update([(2, -1), (4, 1)]) == [(4, 1)]
        assert times.update([(2, 1)]) == []
        assert times.update([(2, 1)]) == [(2, 1), (4, -1)]
        assert times.update([(2, -1)]) == [(2, -1), (4, 1)]


def test_c16_frontiers_of_products() -> None:
    times: MutableAntichain[Any] = MutableAntichain(PAIRS)
    assert times.update([((0, 1), 1), ((1, 0), 1)]) == [((0, 1), 1), ((1, 0), 1)]
    assert times.update([((0, 0), 1)]) == [((0, 0), 1), ((0, 1), -1), ((1, 0), -1)]
    assert times.update([((0, 0), -1)]) == [((0, 0), -1), ((0, 1), 1), ((1, 0), 1)]
    assert times.update([((0, 1), -1), ((0, 2), 1)]) == [((0, 1), -1), ((0, 2), 1)]
    assert times.elements() == ((0, 2), (1, 0))
    assert times.update([((1, 0), -1)]) == [((1, 0), -1)]
    assert times.update([((1, 2), 1), ((0, 2), -1)]) == [((0, 2), -1), ((1, 2), 1)]


def test_c17_cancelling_changes_leave_no_trace() -> None:
    for times in both():
        times.update([(7, 6), (8, 5)])
        for _ in range(1000):
            times.update([(9, 1)])
            times.update([(9, -1)])
            if isinstance(times, TotalMutableAntichain):
                assert len(times._heap) <= 33
        assert len(times) == 2


def test_c18_change_batches_drop_zeros() -> None:
    batch = ChangeBatch([(17, 1), (17, -1)])
    assert not batch
    batch.add(14, -1)
    assert len(batch) == 1
    other: ChangeBatch[int] = ChangeBatch([(14, 1), (17, 1)])
    batch.drain_into(other)
    assert (batch, other.drain(), other) == ({}, [(17, 1)], {})
    assert sorted(ChangeBatch([(5, 1), (3, 2), (5, -1), (1, 4)]).drain()) == [(1, 4), (3, 2)]


def test_a_view_says_that_all_is_possible_until_it_is_shown_something() -> None:
    view = FrontierView(INT)
    assert view.less_equal(0)
    assert not view.is_empty()
    view.shown = ()
    assert view.is_empty()
    view.shown = (3,)
    assert (view.elements(), view.antichain(), view.less_than(3)) == ((3,), Antichain([3]), False)


@pytest.mark.parametrize("antichain", [Antichain(), Antichain([1])])
def test_an_antichain_is_no_other_type(antichain: Antichain[int]) -> None:
    assert antichain != [1]
    assert antichain != frozenset()
