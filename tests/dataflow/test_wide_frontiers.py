"""Frontiers of very many times: the answers are those of the definition, and cost no more than their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataflow.orders import ORDERS
from tests.depth import deep

from tidegauge.dataflow import (
    PARTITIONED,
    Antichain,
    Bounded,
    Capability,
    CapabilitySet,
    MutableAntichain,
    Product,
    Worker,
)
from tidegauge.dataflow.capability import Account
from tidegauge.dataflow.frontier import FrontierView
from tidegauge.dataflow.operators.stash import Before, Reachable, Stash
from tidegauge.dataflow.order import INT, Order, advance, finder, less_than, minimal, only
from tidegauge.dataflow.order.partitioned import Partitioned, PartitionedTime
from tidegauge.dataflow.order.search import apart, origins
from tidegauge.dataflow.reachability import Tracker
from tidegauge.dataflow.topology import Graph, Shape, Topology
from tidegauge.testing.strategies import times as times_of

PAIRS = Product(INT, INT)
LOOPS = Product(Product(PARTITIONED, INT), Bounded(3))
partitioned = st.lists(times_of(PARTITIONED, max_value=3), max_size=60)
pairs = st.lists(times_of(PAIRS, max_value=30), max_size=60)
loops = st.lists(times_of(LOOPS, max_value=3), max_size=40)
cases = st.one_of(
    st.tuples(st.just(PARTITIONED), partitioned),
    st.tuples(st.just(PAIRS), pairs),
    st.tuples(st.just(LOOPS), loops),
    st.sampled_from(ORDERS).flatmap(lambda case: st.tuples(st.just(case.order), st.lists(case.times, max_size=40))),
)


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


@given(cases)
def test_of_times_that_lie_apart_all_are_minimal(case: tuple[Order[Any], list[Any]]) -> None:
    order, times = case
    along = sorted(times, key=order.sort_key)
    assert not apart(order, along) or len(by_definition(order, along)) == len(along)
    assert apart(order, along[:1]) == (order == PARTITIONED)


def test_the_partitions_of_a_frontier_and_the_gaps_between_them_lie_apart() -> None:
    frontier = PARTITIONED.frontier({"salt": 3, "tea": 5})
    assert apart(PARTITIONED, frontier)
    assert not apart(PARTITIONED, (*frontier, PARTITIONED.at("tea", 7)))
    assert not apart(PARTITIONED, (PARTITIONED.minimum, *frontier))


@given(cases, st.data())
def test_the_origin_of_a_time_is_at_or_before_it_wherever_there_is_one(case: Any, data: st.DataObject) -> None:
    order, times = case
    among = list(dict.fromkeys(times))
    later = data.draw(st.permutations(times))
    if data.draw(st.booleans()):
        among = list(minimal(order, among[::2]))
        later = sorted(times, key=order.sort_key)
    for time, place in zip(later, origins(order, among, later), strict=True):
        if place is None:
            assert not any(order.less_equal(x, time) for x in among)
        else:
            assert order.less_equal(among[place], time)


@given(cases, st.data())
def test_a_wide_frontier_answers_as_its_elements_do(case: tuple[Order[Any], list[Any]], data: st.DataObject) -> None:
    order, times = case
    least = minimal(order, times)
    view, antichain = FrontierView(order), Antichain(times, order)
    view.shown = least
    assert view.antichain() == antichain == Antichain(reversed(times), order)
    for time in {*times, *(data.draw(st.sampled_from(times)) for _ in times[:1])}:
        for frontier in (view, antichain):
            assert frontier.less_equal(time) == any(order.less_equal(x, time) for x in least)
            assert frontier.less_than(time) == any(less_than(order, x, time) for x in least)


@deep(25)
@given(st.lists(st.lists(st.tuples(times_of(PARTITIONED, max_value=3), st.sampled_from([-1, 1])), max_size=40)))
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


def test_where_each_partition_goes_on_by_itself_each_time_is_compared_once() -> None:
    order = Counting()
    first, then, wider = (
        Antichain(order.frontier(dict.fromkeys(range(0, 100, step), position)), order)
        for step, position in [(2, 1), (2, 2), (1, 3)]
    )
    held = CapabilitySet([Capability.initial(Account("shop/remap", 0, order))])
    held.downgrade(first)
    assert counted(lambda: held.downgrade(then)) == len(then)
    assert counted(lambda: held.downgrade(wider)) < 2 * len(wider), "what is split is at hand, too"
    assert held.times() == wider.elements()


def counted(work: Callable[[], object]) -> int:
    """Return how often times are compared meanwhile."""
    Counting.compared = 0
    work()
    return Counting.compared


def released(order: Order[Any], partitions: int, limit: Callable[[FrontierView], Reachable]) -> int:
    """Return how many comparisons it takes to release as many times as there are partitions, by a wide frontier."""
    account, view = Account("shop/count", 0, order), FrontierView(order)
    stash: Stash[list[str]] = Stash(list)
    for partition in range(partitions):
        time = ((only(partition), 1), 0)
        stash.at(time, lambda time=time: Capability.initial(account).delayed(time))  # type: ignore[misc]
    view.shown = minimal(order, [(time, 0) for time in PARTITIONED.frontier(dict.fromkeys(range(partitions), 2))])
    return counted(lambda: list(stash.ready([limit(view)])))


@pytest.mark.parametrize("limit", [lambda view: view, Before])
def test_what_waits_at_many_times_is_looked_up_in_a_wide_frontier(limit: Callable[[FrontierView], Reachable]) -> None:
    order = Product(Counting(), INT)
    few, many = (released(order, partitions, limit) for partitions in (100, 400))
    assert many <= 5 * few + 100


def turned(partitions: int) -> int:
    """Return how many comparisons it takes that all partitions go on from the minimum, and then by one, in a loop."""
    order = Counting()
    worker = Worker(monotonic=lambda: 0.0)
    with worker.dataflow("wide", order=order) as scope:
        _, start, stream = scope.unordered_input("positions")
        with scope.iterative("loop") as loop:
            handle, again = loop.loop_variable(1)
            turning = stream.enter(loop).concat(again).map(lambda batch: batch)
            handle.connect(turning)
            probe = turning.leave().probe()
    held = CapabilitySet([start])
    worker.settle()
    first, then = (order.frontier(dict.fromkeys(range(partitions), position)) for position in (1, 2))

    def go_on() -> None:
        for frontier in (first, then):
            held.downgrade(frontier)
            worker.settle()

    taken = counted(go_on)
    assert probe.frontier().elements() == then
    return taken


def test_in_a_loop_a_wide_frontier_goes_on_without_comparing_each_time_with_each() -> None:
    few, many = turned(100), turned(400)
    assert many <= 5 * few


def ring(order: Order[Any]) -> Graph:
    """Return a loop of three operators, of which the last one counts rounds, and one behind it."""
    topology = Topology(order)
    nodes = [topology.add(Shape(1, 1, (((0, (summary,)),),))) for summary in (None, None, (None, 1), None)]
    for here, there in [(0, 1), (1, 2), (2, 0), (1, 3)]:
        topology.connect((nodes[here], 0), (nodes[there], 0))
    return topology.compile()


def implied(graph: Graph, counts: dict[tuple[int, Any], int]) -> list[set[Any]]:
    """Return what is implied at each location: of what is there and comes to it, what is minimal, until all is in."""
    there = [{time for (at, time), n in counts.items() if at == location and n > 0} for location in range(8)]
    found = [by_definition(graph.order, times) for times in there]
    while True:
        coming = [set(times) for times in there]
        for location, times in enumerate(found):
            for to, summary in graph.following[location]:
                coming[to].update(t for time in times if (t := advance(graph.order, time, summary)) is not None)
        now = [by_definition(graph.order, times) for times in coming]
        if now == found:
            return found
        found = now


changes = st.dictionaries(
    st.tuples(st.integers(0, 7), times_of(Product(PARTITIONED, Bounded(4)), max_value=3)),
    st.sampled_from([-1, 1, 1, 2]),
    max_size=50,
)


@deep(40)
@given(st.lists(changes, min_size=1, max_size=4))
def test_what_is_implied_in_a_loop_is_what_follows_from_what_is_there(rounds: list[dict[Any, int]]) -> None:
    graph = ring(Product(PARTITIONED, Bounded(4)))
    tracker = Tracker(graph)
    counts: dict[tuple[int, Any], int] = {}
    told: list[set[Any]] = [set() for _ in range(8)]
    for batch in rounds:
        for (location, time), delta in batch.items():
            counts[location, time] = counts.get((location, time), 0) + delta
            tracker.update([(location, time, delta)])
        for location, moves in tracker.propagate()[0].items():
            for time, delta in moves:
                assert (time in told[location]) == (delta < 0)
                told[location] ^= {time}
        expected = implied(graph, counts)
        assert [set(implications.elements()) for implications in tracker.implications] == expected == told
