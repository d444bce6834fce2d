"""Frontiers of very many times: the answers are those of the definition, and cost no more than their number."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataflow.orders import intervals

from tidegauge.dataflow import PARTITIONED, Antichain, Capability, CapabilitySet, MutableAntichain, Product
from tidegauge.dataflow.capability import Account
from tidegauge.dataflow.order import INT, Order, finder, less_than, minimal
from tidegauge.dataflow.order.partitioned import Partitioned, PartitionedTime

PAIRS = Product(INT, INT)
partitioned = st.lists(st.tuples(intervals, st.integers(0, 3)), max_size=60)
pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60)
cases = st.one_of(st.tuples(st.just(PARTITIONED), partitioned), st.tuples(st.just(PAIRS), pairs))


def by_definition(order: Order[Any], times: Iterable[Any]) -> set[Any]:
    among = set(times)
    return {a for a in among if not any(less_than(order, b, a) for b in among)}


@given(cases)
def test_the_minimal_times_are_those_by_definition_in_sort_order(case: tuple[Order[Any], list[Any]]) -> None:
    order, times = case
    found = minimal(order, times)
    assert set(found) == by_definition(order, times)
    assert list(found) == sorted(found, key=order.sort_key)
    assert Antichain(times, order).elements() == found


@given(cases, st.data())
def test_what_is_found_is_at_or_before_and_another_one_if_there_is_one(case: Any, data: st.DataObject) -> None:
    order, times = case
    among = list(dict.fromkeys(times))
    seek = finder(order, among)
    for time in [*among, *(data.draw(st.sampled_from(among)) for _ in among[:1])]:
        found = seek(time)
        assert found is not None
        assert order.less_equal(found, time)
        assert (found != time) == any(less_than(order, x, time) for x in among)


@settings(max_examples=25)
@given(st.lists(st.lists(st.tuples(st.tuples(intervals, st.integers(0, 3)), st.sampled_from([-1, 1])), max_size=40)))
def test_a_wide_frontier_is_that_of_the_counts_whatever_changes_at_once(rounds: list[list[tuple[Any, int]]]) -> None:
    times: MutableAntichain[PartitionedTime] = MutableAntichain(PARTITIONED)
    counts: dict[Any, int] = {}
    wide = [
        ((time, position), 1) for position, (time, _) in enumerate(PARTITIONED.frontier(dict.fromkeys(range(12), 1)))
    ]
    told: dict[Any, int] = {}
    for batch in [wide, *rounds]:
        for time, delta in times.update(batch):
            told[time] = told.get(time, 0) + delta
        for time, delta in batch:
            counts[time] = counts.get(time, 0) + delta
        expected = by_definition(PARTITIONED, (time for time, count in counts.items() if count > 0))
        assert set(times.elements()) == expected
        assert {time: count for time, count in told.items() if count} == dict.fromkeys(expected, 1)


@settings(max_examples=15)
@given(st.randoms(use_true_random=False))
def test_a_wide_set_goes_on_as_its_capabilities_would_one_by_one(random: Random) -> None:
    account = Account("shop/remap", 0, PARTITIONED)
    held = CapabilitySet([Capability.initial(account)])
    positions = dict.fromkeys(range(20), 0)
    for _ in range(5):
        for partition in random.sample(range(30), 12):
            positions[partition] = positions.get(partition, 0) + random.randrange(3)
        frontier = PARTITIONED.frontier(positions)
        before = {capability.time: capability for capability in held}
        ways: list[Iterable[Any]] = [frontier, frontier + frontier, Antichain(frontier, PARTITIONED)]
        held.downgrade(random.choice(ways))
        assert held.times() == frontier
        assert all(capability.held for capability in held)
        assert all(capability.held == (time in frontier) for time, capability in before.items())
        counts = {time: count for time, count in account.changes.items() if time != PARTITIONED.minimum}
        assert counts == {time: 1 for time in frontier if time != PARTITIONED.minimum}


class Counting(Partitioned):
    """Partitions that count how often two times are compared."""

    compared = 0

    def less_equal(self, a: PartitionedTime, b: PartitionedTime, /) -> bool:
        Counting.compared += 1
        return super().less_equal(a, b)


@pytest.mark.parametrize("partitions", [1_000])
def test_to_go_on_from_a_wide_frontier_costs_no_comparison_of_each_with_each(partitions: int) -> None:
    order = Counting()
    first, then = (order.frontier(dict.fromkeys(range(partitions), position)) for position in (1, 2))
    held = CapabilitySet([Capability.initial(Account("shop/remap", 0, order))])
    times: MutableAntichain[PartitionedTime] = MutableAntichain(order)
    Counting.compared = 0
    held.downgrade(first)
    held.downgrade(Antichain(then, order))
    times.update((time, 1) for time in first)
    times.update([(time, -1) for time in first] + [(time, 1) for time in then])
    assert Antichain(first, order) <= Antichain(then, order)
    assert held.times() == times.elements() == then
    assert Counting.compared < 20 * partitions
