"""A rate of late outputs that gives way: as a function of what is observed, and in flows that run."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flow.badinput import begin, rows
from tests.flow.by_hand import Run, World
from tests.flow.test_late_outputs import PAST, add, alone, filled, with_late
from tests.flow.test_paused_outputs import decide

import tidegauge as tg
from tidegauge.backfill.adaptive import BEGIN, LEAST, MORE, MOST, ROUND, TARGET, LiveLag, Observed, step
from tidegauge.backfill.rate import Pacing
from tidegauge.job import portion
from tidegauge.sinks.delta.log import DeltaLog

RATES = st.floats(LEAST, MOST)
LAGS = st.floats(0, 1e6)


@given(RATES, st.lists(st.builds(Observed, lag=LAGS, late=st.booleans()), max_size=50))
def test_the_rate_stays_within_its_bounds(rate: float, observed: list[Observed]) -> None:
    for one in observed:
        rate = step(rate, one)
        assert LEAST <= rate <= MOST


@given(RATES)
def test_while_the_live_outputs_lag_it_is_halved_and_comes_back_by_steps(rate: float) -> None:
    before, gone_down = rate, 0
    while rate > LEAST and gone_down < 20:
        rate = step(rate, Observed(TARGET + 0.1, late=True))
        gone_down += 1
    assert gone_down <= 17
    for n in range(1, 50):
        rate = step(rate, Observed(TARGET, late=True))
        assert rate == pytest.approx(min(MOST, LEAST + n * MORE))
    assert before >= LEAST


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 10**7)), min_size=1, max_size=20))
def test_late_outputs_get_a_job_each_round_however_low_the_rate(jobs: list[tuple[float, int]]) -> None:
    now = 0.0
    pacing = Pacing(lambda: now, int(LEAST), within=ROUND)
    for takes, count in jobs:
        assert (pacing.wait() or 0.0) <= ROUND + 1e-6
        now += pacing.wait() or 0.0
        pacing.begin("late", "orders")
        now += takes
        pacing.end("late", count)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 3), st.integers(0, 5)), max_size=30))
def test_the_lag_is_the_age_of_the_oldest_epoch_that_is_not_published(moves: list[tuple[float, int, int]]) -> None:
    now, upper, published, bound, lag = 0.0, 0, 0, dict[int, float](), LiveLag()
    for later, minted, shown in moves:
        now += later
        bound |= {upper + n: now for n in range(minted)}
        upper += minted
        published = min(upper, published + shown)
        waiting = [at for epoch, at in bound.items() if epoch >= published]
        found = lag.seen(now, upper=upper, published=published)
        assert found == pytest.approx(now - min(waiting) if waiting else 0.0)


def test_what_is_remembered_of_a_long_lag_is_bounded() -> None:
    lag = LiveLag()
    for n in range(5000):
        found = lag.seen(float(n), upper=n + 1, published=0)
    assert (found, len(lag._bound)) == (4999.0, 600)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A flow with one table, that has run for some epochs; a job of late outputs takes one."""
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, alone)
    run = begin(world)
    for n in range(PAST):
        add(world, n)
        run.catch_up()
    run.abandon()
    return world


def rate(run: Run) -> float:
    return run.runner._deciding._adaptive


def test_it_is_durable_and_grows_while_the_live_outputs_are_well(world: World) -> None:
    done = tg.limit(alone(world), "auto", env=world.env())
    assert (done.rate, done.changed, world.loaded().decisions.rate) == ("auto", True, "auto")
    assert not tg.limit(alone(world), "auto", env=world.env()).changed
    world.lag = 30
    run = begin(world, with_late)
    while filled(run, "late") < 50:
        run.step()
    assert rate(run) > BEGIN
    run.catch_up()
    for _ in range(5):
        run.step()
    assert rate(run) == BEGIN, "nothing is late"
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_it_gives_way_while_the_live_output_lags_and_comes_back(world: World) -> None:
    tg.limit(alone(world), "auto", env=world.env())
    run = begin(world, with_late)
    world.lag = 600  # the live epoch's job takes many seconds, and so does that of the late output
    add(world, PAST)
    lowest = rate(run)
    while run.runner.board.published <= PAST:
        run.step()
        lowest = min(lowest, rate(run))
    assert LEAST <= lowest < BEGIN
    world.lag = 0
    before = rate(run)
    while run.runner.board.late and rate(run) <= before:
        run.step()
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_a_table_that_cannot_be_written_is_no_reason_to_give_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_how: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tg.limit(alone(world), "auto", env=world.env())
    tg.pause(with_late(world), "late", env=world.env())
    run = begin(world, with_late)
    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "commit", full)
        add(world, PAST)
        for _ in range(60):
            run.step()
        assert run.runner.board.outputs["a"].state == "stalled"
        assert rate(run) >= BEGIN
    run.catch_up()
    run.abandon()


def test_another_rate_takes_its_place_while_it_runs(world: World) -> None:
    run = begin(world, with_late)
    pacing = run.runner._deciding._pacing
    for value, shown in (("auto", int(BEGIN)), (7, 7), (None, None)):
        decide(run, lambda flow, _output, env, value=value: tg.limit(flow, value, env=env), "late")
        found = pacing._limiter
        assert (None if found is None else int(found.rate)) == shown or value == "auto"
        assert (pacing._within is not None) == (value == "auto")
    run.abandon()
