"""Times of partitions, known and not: their order, splitting, frontiers; and dataflows that have them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.dataflow import Antichain, Capability, MutableAntichain, OperatorBuilder, Worker
from tidegauge.dataflow.order import ALL, FIRST, LAST, PARTITIONED, Interval, after, before, less_than, only
from tidegauge.errors.dataflow import InvalidTime, ZeroCycle
from tidegauge.testing.strategies import intervals

below, above = Interval(FIRST, before(10)), Interval(after(10), LAST)
positions = st.dictionaries(st.integers(0, 5), st.integers(0, 9))


def comparable(a: Any, b: Any) -> bool:
    return PARTITIONED.less_equal(a, b) or PARTITIONED.less_equal(b, a)


def test_disjoint_intervals_do_not_compare() -> None:
    times = [(below, 5), PARTITIONED.at(10, 5), (above, 5)]
    assert not any(comparable(a, b) for a in times for b in times if a != b)


def test_a_partition_is_beyond_the_interval_that_has_it_and_so_is_a_smaller_interval() -> None:
    assert less_than(PARTITIONED, (below, 0), PARTITIONED.at(5, 0))
    assert less_than(PARTITIONED, (below, 0), PARTITIONED.between(after(1), before(5), 0))
    assert less_than(PARTITIONED, PARTITIONED.minimum, (below, 0))
    assert not comparable((below, 5), PARTITIONED.at(5, 4))
    assert not comparable((below, 0), PARTITIONED.at(11, 3))


def test_the_whole_swallows_its_parts() -> None:
    parts = Antichain([(below, 5), PARTITIONED.at(10, 5), (above, 5)], PARTITIONED)
    assert len(parts) == 3
    assert list(parts.insert((ALL, 4))) == [(ALL, 4)]
    assert len(parts.insert((ALL, 6))) == 4


def test_what_a_frontier_of_partitions_still_lets_come() -> None:
    frontier = Antichain([(below, 5), PARTITIONED.at(10, 10), (above, 5)], PARTITIONED)
    two_to_six = Interval(before(2), after(6))
    assert frontier.less_equal(PARTITIONED.at(10, 11))
    assert frontier.less_equal(PARTITIONED.at(0, 6))
    assert frontier.less_equal((two_to_six, 6))
    assert not frontier.less_equal(PARTITIONED.at(10, 9))
    assert not frontier.less_equal(PARTITIONED.at(0, 4))
    assert not frontier.less_equal((two_to_six, 4))


def test_splitting_leaves_what_is_before_and_after() -> None:
    first, point, last = PARTITIONED.split((ALL, 3), "tea")
    assert (first, point, last) == (
        (Interval(FIRST, before("tea")), 3),
        PARTITIONED.at("tea", 3),
        (Interval(after("tea"), LAST), 3),
    )
    assert PARTITIONED.split(point, "tea") == (None, point, None)
    assert PARTITIONED.split((Interval(before(2), before(9)), 0), 2)[0] is None
    assert PARTITIONED.split((Interval(after(2), after(9)), 0), 9)[2] is None


@given(intervals(), st.integers(0, 9), st.integers(0, 5))
def test_the_parts_of_a_split_are_beyond_it_do_not_compare_and_lose_no_partition(
    interval: Interval, position: int, partition: int
) -> None:
    time = (interval, position)
    if not interval.contains(partition):
        with pytest.raises(InvalidTime, match=r"TG-0718.*does not contain the partition"):
            PARTITIONED.split(time, partition)
        return
    parts = [part for part in PARTITIONED.split(time, partition) if part is not None]
    assert all(PARTITIONED.less_equal(time, part) for part in parts)
    assert not any(comparable(a, b) for a in parts for b in parts if a != b)
    for key in (n / 2 for n in range(-2, 14)):
        assert sum(part[0].contains(key) for part in parts) == interval.contains(key)


@given(positions)
def test_a_frontier_says_where_each_partition_is_and_every_other_at_0(found: dict[int, int]) -> None:
    times = PARTITIONED.frontier(found)
    frontier = Antichain(times, PARTITIONED)
    assert frontier.elements() == times
    assert len(frontier) == 2 * len(found) + 1
    assert PARTITIONED.mapping(frontier) == found
    for partition in (n / 2 for n in range(-2, 14)):
        assert PARTITIONED.position(frontier, partition) == found.get(partition, 0)  # type: ignore[call-overload]
        for position in range(11):
            may_come = frontier.less_equal(PARTITIONED.at(partition, position))
            assert may_come == (position >= found.get(partition, 0))  # type: ignore[call-overload]


@given(positions, positions)
def test_frontiers_compare_as_their_positions_do(a: dict[int, int], b: dict[int, int]) -> None:
    one, other = (Antichain(PARTITIONED.frontier(found), PARTITIONED) for found in (a, {**dict.fromkeys(a, 0), **b}))
    assert (one <= other) == all(n <= b.get(p, 0) for p, n in a.items())


def test_a_partition_that_is_complete_has_no_position() -> None:
    frontier = [time for time in PARTITIONED.frontier({3: 7, 5: 2}) if time != PARTITIONED.at(3, 7)]
    assert PARTITIONED.position(frontier, 3) is None
    assert PARTITIONED.mapping(frontier) == {5: 2}
    assert PARTITIONED.position([], 5) is None


@pytest.mark.parametrize("found", [{"p": -1}, {"p": True}, {"p": "1"}, {"p": 1.5}, {1: 0, "p": 0}])
def test_positions_that_are_none_are_refused(found: dict[Any, Any]) -> None:
    with pytest.raises(InvalidTime, match="TG-0718"):
        PARTITIONED.frontier(found)


def test_an_empty_interval_is_refused() -> None:
    with pytest.raises(InvalidTime, match="nothing lies between"):
        PARTITIONED.between(after(3), before(3), 0)
    assert PARTITIONED.between(after(3), before(4), 0) == (Interval(after(3), before(4)), 0)


def test_intervals_show_what_they_are() -> None:
    shown = [ALL, below, above, only(10), Interval(before(2), after(6)), Interval(after("a"), before("b"))]
    assert [repr(interval) for interval in shown] == ["(..)", "(..10)", "(10..)", "{10}", "[2..6]", "('a'..'b')"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=20))
def test_a_moving_frontier_follows_each_partition(moves: list[tuple[int, int]]) -> None:
    outstanding: MutableAntichain[Any] = MutableAntichain(PARTITIONED)
    outstanding.update([(PARTITIONED.minimum, 1)])
    at: dict[int, int] = {}
    for partition, records in moves:
        [holding] = [time for time in outstanding.elements() if time[0].contains(partition)]
        first, point, last = PARTITIONED.split(holding, partition)
        there = PARTITIONED.at(partition, point[1] + records)
        outstanding.update([(holding, -1), *((time, 1) for time in (first, there, last) if time is not None)])
        at[partition] = at.get(partition, 0) + records
        assert outstanding.elements() == PARTITIONED.frontier(at)


def test_partitions_appear_while_a_dataflow_runs(worker: Worker) -> None:
    seen: list[Any] = []
    with worker.dataflow("topics", order=PARTITIONED) as scope:
        handle, rest, stream = scope.unordered_input("orders")
        probe = stream.inspect(lambda stamp, batch: seen.append((*stamp, batch))).probe()
    held: dict[Any, Capability] = {}
    unseen = [rest]

    def appear(partition: str) -> None:
        [whole] = [capability for capability in unseen if capability.time[0].contains(partition)]
        unseen.remove(whole)
        first, point, last = PARTITIONED.split(whole.time, partition)
        held[partition] = whole.delayed(point)
        unseen.extend(whole.delayed(part) for part in (first, last) if part is not None)
        whole.drop()

    def read(partition: str, upto: int) -> None:
        handle.session(held[partition]).give(f"{partition} up to {upto}")
        held[partition].downgrade(PARTITIONED.at(partition, upto))

    appear("salt")
    read("salt", 3)
    worker.step(), worker.step()
    assert PARTITIONED.mapping(probe.frontier()) == {"salt": 3}
    assert not probe.less_equal(PARTITIONED.at("salt", 2))
    assert probe.less_equal(PARTITIONED.at("tea", 0))
    appear("tea")
    appear("pepper")
    read("tea", 5)
    read("salt", 4)
    worker.step(), worker.step()
    assert tuple(probe.frontier()) == PARTITIONED.frontier({"pepper": 0, "salt": 4, "tea": 5})
    assert seen == [
        (PARTITIONED.at("salt", 0), "salt up to 3"),
        (PARTITIONED.at("tea", 0), "tea up to 5"),
        (PARTITIONED.at("salt", 3), "salt up to 4"),
    ]
    for capability in unseen:
        capability.drop()
    held["pepper"].drop()
    worker.step(), worker.step()
    assert PARTITIONED.position(probe.frontier(), "vinegar") is None
    assert PARTITIONED.mapping(probe.frontier()) == {"salt": 4, "tea": 5}
    held["salt"].drop()
    held["tea"].drop()
    while worker.step():
        pass
    assert probe.done()


def test_a_loop_over_partitions_ends(worker: Worker) -> None:
    seen: list[Any] = []
    with worker.dataflow("loop", order=PARTITIONED) as scope:
        handle, held, stream = scope.unordered_input("orders")
        again, later = scope.feedback((None, 1))
        rounds = stream.concat(later).inspect(lambda stamp, n: seen.append((*stamp, n)))
        again.connect(rounds.filter(lambda n: n > 0).map(lambda n: n - 1))
        probe = rounds.probe()
    here, there = held.delayed(PARTITIONED.at("p", 5)), held.delayed(PARTITIONED.at("q", 7))
    handle.session(here).give(2)
    held.drop()
    here.drop()
    while probe.less_equal(PARTITIONED.at("p", 99)):
        worker.step()
    assert seen == [(PARTITIONED.at("p", 5 + n), 2 - n) for n in range(3)]
    assert probe.less_equal(PARTITIONED.at("q", 7))
    there.drop()
    while worker.step():
        pass
    assert probe.done()


def test_a_path_for_some_partitions_is_complete_for_the_others(worker: Worker) -> None:
    with worker.dataflow("one", order=PARTITIONED) as scope:
        _, held, stream = scope.unordered_input("orders")
        builder = OperatorBuilder(scope, "only salt")
        builder.input(stream, {0: [(only("salt"), None)]})
        probe = builder.output().probe()

        def build(context: Any) -> Any:
            context.capabilities[0].drop()
            return lambda inputs, outputs: None

        builder.build(build)
    worker.step(), worker.step()
    assert probe.less_equal(PARTITIONED.at("salt", 0))
    assert not probe.less_equal(PARTITIONED.at("tea", 0))
    tea = held.delayed(PARTITIONED.at("tea", 0))
    held.drop()
    worker.step(), worker.step()
    assert probe.done()
    tea.drop()


def test_a_loop_that_only_restricts_would_never_end_and_is_refused(worker: Worker) -> None:
    def build() -> None:
        with worker.dataflow("loop", order=PARTITIONED) as scope:
            again, stream = scope.feedback((only("salt"), 0))
            again.connect(stream.map(lambda batch: batch))

    with pytest.raises(ZeroCycle, match="does not advance"):
        build()
