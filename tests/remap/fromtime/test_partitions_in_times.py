"""Frontiers as antichains of intervals of partitions, and what of these no frontier can say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.dataflow import Antichain
from tidegauge.dataflow.order import ALL, FIRST, LAST, PARTITIONED, Interval, after, before, only
from tidegauge.errors.fromtime import InexpressibleTimes, InvalidPlace
from tidegauge.remap.fromtime import NUMBERED, PARTITIONS, Partitions
from tidegauge.remap.fromtime.partitioned import WIDEST
from tidegauge.remap.frontier import ORIGIN, Frontier

below, above = Interval(FIRST, before(10)), Interval(after(10), LAST)
near = st.dictionaries(st.integers(-2, 6), st.integers(0, 5), max_size=6)


def numbered(positions: dict[int, int]) -> Frontier:
    return Frontier({str(partition): position for partition, position in positions.items()})


def test_t21_what_a_frontier_of_partitions_still_lets_come() -> None:
    frontier = Antichain(NUMBERED.times(Frontier({"10": 10})), PARTITIONED)
    assert frontier.elements() == ((below, 0), (only(10), 10), (above, 0))
    assert not any(PARTITIONED.less_equal(a, b) for a in frontier for b in frontier if a != b)
    two_to_six = Interval(before(2), after(6))
    may_come = [PARTITIONED.at(10, 11), PARTITIONED.at(10, 10), PARTITIONED.at(0, 0), (two_to_six, 6)]
    assert all(frontier.less_equal(time) for time in may_come)
    assert not frontier.less_equal(PARTITIONED.at(10, 9))
    assert not frontier.less_equal((ALL, 11))


def test_t21_the_whole_swallows_its_parts() -> None:
    parts = Antichain(NUMBERED.times(Frontier({"10": 10})), PARTITIONED)
    assert list(parts.insert((ALL, 0))) == [(ALL, 0)]
    assert NUMBERED.times(ORIGIN) == ((ALL, 0),)


def test_t21_partitions_not_seen_yet_are_at_0_or_there_is_no_frontier_for_it() -> None:
    with pytest.raises(InexpressibleTimes, match=r"TG-0579.*\(\.\.10\) are not all known, and so must be at 0"):
        NUMBERED.frontier([(below, 5), (only(10), 10), (above, 5)])


@given(near)
def test_times_come_back_as_the_frontier_and_every_partition_is_in_one_of_them(positions: dict[int, int]) -> None:
    frontier = numbered(positions)
    times = NUMBERED.times(frontier)
    assert NUMBERED.frontier(times) == NUMBERED.frontier(reversed(times)) == frontier
    assert Antichain(times, PARTITIONED).elements() == times
    for partition in range(-4, 9):
        assert PARTITIONED.position(times, partition) == frontier[str(partition)]


@given(st.dictionaries(st.text("ab", max_size=2), st.integers(0, 5), max_size=4))
def test_so_do_those_of_texts(positions: dict[str, int]) -> None:
    frontier = Frontier(positions)
    assert PARTITIONS.frontier(PARTITIONS.times(frontier)) == frontier
    assert len(PARTITIONS.times(frontier)) == 2 * len(frontier) + 1
    assert PARTITIONS.frontier(PARTITIONED.frontier(positions)) == frontier


@given(near, near)
def test_one_frontier_is_before_another_as_their_times_are(a: dict[int, int], b: dict[int, int]) -> None:
    one, other = (Antichain(NUMBERED.times(numbered(positions)), PARTITIONED) for positions in (a, b))
    assert (one <= other) == numbered(a).less_equal(numbered(b))


@given(near, st.integers(-2, 6), st.integers(1, 9))
def test_a_partition_that_appears_is_split_off_and_leaves_all_others_where_they_are(
    positions: dict[int, int], partition: int, position: int
) -> None:
    before_ = numbered({**positions, partition: 0})
    [holding] = [time for time in NUMBERED.times(before_) if time[0].contains(partition)]
    first, _, last = PARTITIONED.split(holding, partition)
    times = {*NUMBERED.times(before_), first, PARTITIONED.at(partition, position), last} - {holding, None}
    assert NUMBERED.frontier(time for time in times if time) == numbered({**positions, partition: position})


def test_a_bounded_interval_of_integers_is_its_partitions() -> None:
    times = [(Interval(FIRST, before(2)), 0), (Interval(before(2), before(5)), 7), (Interval(after(4), LAST), 0)]
    assert NUMBERED.frontier(times) == Frontier({"2": 7, "3": 7, "4": 7})
    assert NUMBERED.frontier([*times, (Interval(after(7), before(8)), 3)]) == Frontier({"2": 7, "3": 7, "4": 7})
    for many in (WIDEST + 1, 2**70):
        wide = [(Interval(FIRST, before(0)), 0), (Interval(before(0), before(many)), 7)]
        with pytest.raises(InexpressibleTimes, match=f"more than {WIDEST} partitions"):
            NUMBERED.frontier([*wide, (Interval(before(many), LAST), 0)])


def test_between_neighbouring_integers_nothing_can_appear() -> None:
    frontier = Frontier({"3": 5, "4": 2})
    assert NUMBERED.times(frontier) == (
        (Interval(FIRST, before(3)), 0),
        (only(3), 5),
        (only(4), 2),
        (Interval(after(4), LAST), 0),
    )
    assert NUMBERED.frontier(PARTITIONED.frontier({3: 5, 4: 2})) == frontier


def test_no_times_are_the_end() -> None:
    assert NUMBERED.times(Frontier({"3": 5}, sealed=True)) == ()
    assert NUMBERED.frontier([]) == Frontier(sealed=True)


def test_integers_sort_as_numbers_and_are_written_one_way() -> None:
    frontier = Frontier({"10": 1, "9": 2, "-1": 3})
    assert NUMBERED.render(frontier) == "-1@3, 9@2, 10@1"
    assert [time for time in NUMBERED.times(frontier) if time[1]] == [(only(-1), 3), (only(9), 2), (only(10), 1)]
    with pytest.raises(InvalidPlace, match="without leading zeros"):
        NUMBERED.times(Frontier({"09": 2}))


@pytest.mark.parametrize(
    ("kind", "times", "problem"),
    [
        (NUMBERED, [(only(3), 5)], r"\(\.\.3\) have ended"),
        (NUMBERED, [(Interval(FIRST, before(3)), 0), (only(3), 5)], r"\[4\.\.\) have ended"),
        (NUMBERED, [(Interval(FIRST, after(3)), 0), (Interval(before(5), LAST), 0)], r"\[4\.\.5\) have ended"),
        (NUMBERED, [(ALL, 0), (only(3), 5)], "overlaps"),
        (NUMBERED, [(ALL, 0), (ALL, 0)], "overlaps"),
        (NUMBERED, [(ALL, 5)], "must be at 0"),
        (PARTITIONS, [(ALL, 5)], "must be at 0"),
        (PARTITIONS, [(Interval(FIRST, before("a")), 0), (Interval(before("a"), before("b")), 5),
                      (Interval(before("b"), LAST), 0)], "not all known"),
        (PARTITIONS, list(PARTITIONED.frontier({3: 5})), "of type str"),
        (NUMBERED, list(PARTITIONED.frontier({"3": 5})), "of type int"),
        (NUMBERED, list(PARTITIONED.frontier({True: 5})), "of type int"),
        (NUMBERED, [(ALL, -1)], "no interval of partitions"),
        (NUMBERED, [(ALL, 0.0)], "no interval of partitions"),
        (NUMBERED, [(Interval(after(3), before(3)), 0)], "no interval of partitions"),
        (NUMBERED, ["tea"], "no interval of partitions"),
    ],
)  # fmt: skip
def test_what_no_frontier_can_say_is_refused(kind: Partitions, times: list[Any], problem: str) -> None:
    with pytest.raises(InexpressibleTimes, match=problem):
        kind.frontier(times)
