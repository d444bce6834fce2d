"""Antichains and change batches: properties, then the cases C7 to C18."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.dataflow import INT, Antichain, ChangeBatch, MutableAntichain, Product, TotalMutableAntichain
from tidegauge.dataflow.frontier import FrontierView, Outstanding

PAIRS = Product(INT, INT)
changes = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([-2, -1, 1, 2])), max_size=6)
pair_changes = st.lists(
    st.tuples(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.sampled_from([-1, 1])), max_size=6
)


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


@given(st.lists(pair_changes, max_size=12))
def test_a_mutable_antichain_holds_the_minimal_positive_times(rounds: list[list[tuple[Any, int]]]) -> None:
    times: MutableAntichain[Any] = MutableAntichain(PAIRS)
    counts: dict[Any, int] = {}
    told: ChangeBatch[Any] = ChangeBatch()
    for batch in rounds:
        told.extend(times.update(batch))
        for time, delta in batch:
            counts[time] = counts.get(time, 0) + delta
        positive = [time for time, count in counts.items() if count > 0]
        minimal = {a for a in positive if not any(b != a and PAIRS.less_equal(b, a) for b in positive)}
        assert set(times.elements()) == minimal
        assert told == dict.fromkeys(minimal, 1)
        assert list(times.elements()) == sorted(minimal)


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
    seen: TotalMutableAntichain[int] = TotalMutableAntichain()
    view.show(seen)
    assert view.is_empty()
    seen.update([(3, 1)])
    assert (view.elements(), view.antichain(), view.less_than(3)) == ((3,), Antichain([3]), False)


@pytest.mark.parametrize("antichain", [Antichain(), Antichain([1])])
def test_an_antichain_is_no_other_type(antichain: Antichain[int]) -> None:
    assert antichain != [1]
    assert antichain != frozenset()
