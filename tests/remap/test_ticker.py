"""Ticks are at the multiples of the interval, whatever the clock does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.policy import Ticker

intervals = st.integers(1, 2000)
instants = st.integers(0, 100_000)
clocks = st.lists(instants, max_size=30)
"""What a clock shows at each look. It is put forward and back as somebody likes."""


def after(ticker: Ticker, *clock: int) -> Ticker:
    for now in clock:
        ticker, _at = ticker.step(now)
    return ticker


def test_t23_the_first_tick_is_at_once_and_the_next_one_at_the_next_multiple() -> None:
    ticker, at = Ticker(1000).step(1125)
    assert at == 1000
    assert ticker.wait(1125) == 875
    assert ticker.step(1999) == (ticker, None)
    assert ticker.step(2000)[1] == 2000


def test_t23_multiples_that_were_slept_through_are_skipped() -> None:
    ticker, at = after(Ticker(1000), 1125).step(3999)
    assert at == 3000
    assert ticker.wait(3999) == 1
    assert ticker.step(4000)[1] == 4000


def test_t23_an_interval_that_was_changed_counts_from_the_next_tick() -> None:
    ticker = replace(after(Ticker(1000), 3000), interval=250)
    assert ticker.wait(3001) == 249
    assert ticker.step(3250)[1] == 3250
    slower = replace(after(Ticker(250), 3250), interval=1000)
    assert slower.wait(3300) == 700


@pytest.mark.parametrize(("now", "interval", "floor"), [(1249, 250, 1000), (7, 250, 0), (1250, 250, 1250)])
def test_t23_a_tick_is_at_the_multiple_before_it(now: int, interval: int, floor: int) -> None:
    assert Ticker(interval).step(now)[1] == floor


def test_a_clock_that_is_put_back_ticks_at_once_and_goes_on_from_there() -> None:
    ticker, at = after(Ticker(1000), 50_000).step(3_600)
    assert at == 3000
    assert ticker.wait(3_600) == 400
    assert ticker.step(4_000)[1] == 4000


@given(intervals, clocks)
def test_however_the_clock_goes_back_and_forth_within_an_interval_it_ticks_once_there(
    interval: int, clock: list[int]
) -> None:
    ticker, last = Ticker(interval), None
    for now in clock:
        ticker, at = ticker.step(now)
        assert (at is None) == (last == now - now % interval)
        last = at if at is not None else last


@given(intervals, clocks, instants)
def test_whatever_the_clock_did_the_next_tick_is_due_within_one_interval(
    interval: int, clock: list[int], now: int
) -> None:
    ticker, at = after(Ticker(interval), *clock).step(now)
    wait = ticker.wait(now)
    assert 0 < wait <= interval
    assert at is None or at == now - now % interval
    assert ticker.step(now + wait - 1)[1] is None
    assert ticker.step(now + wait)[1] == (now + wait) - (now + wait) % interval


@given(intervals, intervals, clocks, instants)
def test_so_it_is_after_a_change_of_the_interval(before: int, interval: int, clock: list[int], now: int) -> None:
    ticker = replace(after(Ticker(before), *clock), interval=interval)
    wait = ticker.wait(now)
    assert wait <= interval
    assert ticker.step(now + wait)[1] is not None


@given(intervals, clocks)
def test_while_the_clock_runs_forward_every_multiple_ticks_at_most_once_and_none_that_is_seen_is_missed(
    interval: int, clock: list[int]
) -> None:
    ticker, ticks = Ticker(interval), []
    for now in sorted(clock):
        ticker, at = ticker.step(now)
        ticks += [] if at is None else [at]
    assert all(earlier < later for earlier, later in pairwise(ticks))
    assert set(ticks) == {now - now % interval for now in clock}


@given(intervals, clocks)
def test_looking_twice_at_one_instant_ticks_once(interval: int, clock: list[int]) -> None:
    ticker = Ticker(interval)
    for now in clock:
        ticker, _at = ticker.step(now)
        assert ticker.step(now) == (ticker, None)


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        Ticker(0)
