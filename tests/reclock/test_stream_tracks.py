"""Which epoch a record falls into, and what a source's frontier leaves open, beside the definition."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reclock.streams import END, PARTITIONS

from tidegauge.dataflow import INT, PARTITIONED, Antichain
from tidegauge.dataflow.order.partitioned import FIRST, LAST, Interval, after, before
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import FrontierRegressed
from tidegauge.reclock import tracks as tracks_module
from tidegauge.reclock.tracks import UNBOUND, Tracks, lows_of_gauge, lows_of_intervals
from tidegauge.remap.frontier import GAUGE, Frontier
from tidegauge.testing.strategies import RemapHistory, remap_histories

positions = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, END), max_size=3)


def test_t21_what_intervals_still_let_come_of_each_partition() -> None:
    rest = Interval(FIRST, before("10")), Interval(after("10"), LAST)
    frontier = [(rest[0], 5), PARTITIONED.at("10", 10), (rest[1], 5)]
    assert lows_of_intervals(frontier, ["00", "02", "10", "15"]) == {"00": 5, "02": 5, "10": 10, "15": 5}
    let_come = [PARTITIONED.at("10", 11), PARTITIONED.at("00", 6)]
    not_any_more = [PARTITIONED.at("00", 4), PARTITIONED.at("10", 9)]
    open_to = Antichain(frontier, PARTITIONED)
    assert [open_to.less_equal(time) for time in (*let_come, *not_any_more)] == [True, True, False, False]
    assert lows_of_intervals([(rest[0], 7)], ["00", "10", "15"]) == {"00": 7}


@given(positions)
def test_readings_and_intervals_that_say_the_same_leave_the_same_open(at: dict[str, int]) -> None:
    assert lows_of_gauge([Frontier(at)], PARTITIONS) == lows_of_intervals(PARTITIONED.frontier(at), PARTITIONS)


@given(st.lists(positions, max_size=3), st.booleans())
def test_of_several_readings_the_least_position_counts_and_a_sealed_one_lets_none_come(
    readings: list[dict[str, int]], sealed: bool
) -> None:
    ends = [Frontier({"p0": 1}, sealed=True)] * sealed
    lows = lows_of_gauge([*map(Frontier, readings), *ends], PARTITIONS)
    assert lows == {p: min(at.get(p, 0) for at in readings) for p in PARTITIONS if readings}


@given(remap_histories(), st.sampled_from(PARTITIONS), st.integers(0, END), st.integers(0, END))
def test_records_are_told_apart_by_the_bounds_between_the_lowest_and_the_highest(
    history: RemapHistory, partition: str, one: int, other: int
) -> None:
    tracks = Tracks("s", GAUGE)
    for epoch, frontier in history.bindings:
        tracks.bind(epoch, frontier)
    low, high = sorted([one, other])
    bounds, epochs = tracks.between(partition, low, high)
    assert epochs.tolist() == sorted(set(epochs.tolist()))
    for n in range(low, high + 1):
        expected = history.epoch_of(partition, n)
        assert epochs[sum(bounds <= n)] == (UNBOUND if expected is None else expected)


def held() -> int:
    """Return the memory that tracks have allocated: other threads of the process allocate what they like."""
    own = tracemalloc.Filter(inclusive=True, filename_pattern=str(tracks_module.__file__))
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([own]).traces)


def test_bindings_that_the_source_has_passed_give_their_memory_back() -> None:
    tracemalloc.start()
    try:
        tracks = Tracks("s", GAUGE)
        for epoch in range(20_000):
            tracks.bind(epoch, Frontier({"p0": epoch + 1}))
        full = held()
        tracks.advance([Frontier({"p0": 18_000})])
        left = held()
    finally:
        tracemalloc.stop()
    assert (tracks.open, tracks.first()) == (2_000, 18_000)
    assert full > 20_000 * 16
    assert left < full / 4


def test_of_several_frontiers_for_one_epoch_the_furthest_counts() -> None:
    tracks = Tracks("s", GAUGE)
    assert tracks.bind(3, Frontier({"p0": 9})) == ["p0"]
    assert tracks.bind(3, Frontier({"p0": 5, "p1": 2})) == ["p1"]
    assert (tracks.bound("p0"), tracks.bound("p1"), tracks.bound("p2"), tracks.open) == (9, 2, 0, 2)


def test_a_partition_that_goes_back_and_one_that_goes_on_behind_the_seal_are_refused() -> None:
    tracks = Tracks("s", GAUGE)
    tracks.bind(0, Frontier({"p0": 9}))
    with pytest.raises(FrontierRegressed, match="'p0' from 9 to 8, epoch 1"):
        tracks.bind(1, Frontier({"p0": 8}))
    tracks.bind(2, Frontier({"p0": 9}, sealed=True))
    with pytest.raises(FrontierRegressed, match="'p0' from 9 sealed to 10, epoch 3"):
        tracks.bind(3, Frontier({"p0": 10}))


def test_intervals_between_partitions_that_are_no_texts_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="texts"):
        lows_of_intervals(PARTITIONED.frontier({3: 7}), ["3"])


@pytest.mark.parametrize("order", [INT, None])
def test_an_order_that_knows_no_partitions_is_refused(order: Any) -> None:
    with pytest.raises(InvalidArgument):
        Tracks("s", order)
