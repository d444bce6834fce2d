"""The limit of rows a second at which late outputs are read: as a value, and in flows that run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flow.badinput import begin, lines, rows, states, write
from tests.flow.by_hand import Run, World
from tests.flow.test_late_outputs import PAST, add, alone, filled, flow_of, with_late
from tests.flow.test_paused_outputs import decide

import tidegauge as tg
from tidegauge.backfill.rate import Pacing
from tidegauge.errors.flow import InvalidArgument
from tidegauge.job import portion
from tidegauge.limiter import Limiter


def grants(limiter: Limiter, now: float, *asked: int) -> tuple[Limiter, list[float]]:
    """Let requests begin as soon as they may; return when each of them is paid."""
    paid = []
    for rows_asked in asked:
        limiter, wait = limiter.step(now := now + limiter.wait(now), rows_asked)
        paid.append(now + wait)
    return limiter, paid


def test_r1_requests_are_paid_at_the_rate() -> None:
    assert grants(Limiter(4), 0.0, 4, 4, 2)[1] == [1.0, 2.0, 2.5]


def test_r2_idle_time_is_not_saved_up() -> None:
    limiter, _paid = grants(Limiter(4), 0.0, 4)
    _limiter, paid = grants(limiter, 10.0, 4, 4)
    assert [at - 1.0 for at in paid] == [10.0, 11.0], "one begins at once, the next one a second later"
    _limiter, paid = grants(limiter, 10.0, *10 * [4])
    assert [at - 1.0 for at in paid] == [10.0 + second for second in range(10)]


def test_r4_another_rate_owes_the_same_rows() -> None:
    limiter, _wait = Limiter(1).step(0.0, 100)
    assert limiter.wait(0.0) == 100.0
    assert limiter.changed(50, now=0.0).wait(0.0) == 2.0


@given(
    rate=st.integers(1, 100),
    jobs=st.lists(st.tuples(st.floats(0, 20), st.integers(0, 300), st.floats(0, 5)), max_size=12),
)
def test_in_any_window_at_most_its_share_and_one_job_begin(rate: int, jobs: list[tuple[float, int, float]]) -> None:
    """Each job comes some time after the one before has ended, has rows, and takes a while."""
    now, pacing, begun = 0.0, Pacing(lambda: now, rate), list[tuple[float, int]]()
    for later, count, takes in jobs:
        now += later
        now += pacing.wait() or 0.0
        assert (pacing.wait() or 0.0) < 1e-6
        pacing.begin("late", "orders")
        assert pacing.wait() is None, "one at a time"
        begun.append((now, count))
        now += takes
        pacing.end("late", count)
    for first, (start, _) in enumerate(begun):
        for last in range(first, len(begun)):
            window = begun[first : last + 1]
            assert sum(count for _, count in window) <= rate * (begun[last][0] - start) + window[-1][1] + 1e-3


def test_a_job_takes_no_more_than_a_seconds_worth() -> None:
    pacing = Pacing(lambda: 0.0, 100)
    assert (pacing.most("topic", "records"), pacing.most("files", "bytes")) == (100, 100), "a row has a byte at least"
    for size, rows_read, bytes_each in ((5000, 50, 100), (0, 0, 100), (500, 50, 10), (9000, 50, 14500 / 150)):
        pacing.begin("late", "files")
        pacing.end("late", rows_read, size=size)
        assert pacing.most("files", "bytes") == int(100 * bytes_each), "of the last job and of all the less counts"
    assert Pacing(lambda: 0.0).most("files", "bytes") is None


def test_r3_groups_share_one_rate_and_take_turns() -> None:
    now, pacing = 0.0, Pacing(lambda: now, 10)
    served = []
    for _ in range(6):
        group = next(iter(pacing.in_turn({"a": 1, "b": 1, "c": 1})))
        served.append(group)
        pacing.begin(group, group)
        pacing.end(group, 10)
        now += pacing.wait() or 0.0
    assert (served, now) == (["a", "b", "c"] * 2, 6.0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A flow with one table, that has run for some epochs of one row each; a job of late outputs may take all."""
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1 << 30)
    world = World(tmp_path, alone)
    run = begin(world)
    for n in range(PAST):
        add(world, n)
        run.catch_up()
    run.abandon()
    return world


def paused(run: Run) -> set[str]:
    return set(run.runner.board.outputs["late"].paused)


def seconds_to_fill(world: World, run: Run) -> float:
    begun = world.clock.seconds
    while filled(run, "late") < 100 and run.runner.board.outputs["late"].filled is not None:
        run.step(0.1)
    return world.clock.seconds - begun


def test_limited_is_unlimited_in_rows_and_takes_its_time(world: World) -> None:
    tg.limit(alone(world), 2)
    run = begin(world, with_late)
    assert seconds_to_fill(world, run) == pytest.approx((PAST - 1) / 2, abs=1.0)
    add(world, PAST)
    run.catch_up()
    assert run.runner.board.published == PAST + 1
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_the_live_ones_are_not_limited(world: World) -> None:
    tg.limit(alone(world), 1)
    run = begin(world, with_late)
    write(world.root / "orders" / "1.jsonl", lines(*range(PAST, PAST + 500)))
    run.step(0.1)
    run.step(0.1)
    assert run.runner.board.published == PAST + 1
    assert filled(run, "late") < 50
    run.abandon()


def test_s21_r4_a_rate_of_0_is_a_pause_and_another_rate_ends_it_also_after_a_crash(world: World) -> None:
    tg.limit(alone(world), 0)
    run = begin(world, with_late)
    add(world, PAST)
    run.catch_up()
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "paused"}
    assert "before record unit" not in world.points
    run.abandon()
    [_, late] = tg.outputs(with_late(world))
    assert (late.state, [pause.reason for pause in late.paused]) == ("paused", ["rate"])
    run = begin(world, with_late)
    assert run.runner.board.outputs["late"].paused == ("rate",)
    decide(run, lambda flow, _output, **how: tg.limit(flow, None, **how), "")
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_r5_an_output_that_is_paused_by_hand_and_by_the_rate_goes_on_after_both(world: World) -> None:
    tg.limit(alone(world), 0)
    tg.pause(with_late(world), "late")
    run = begin(world, with_late)
    assert paused(run) == {"operator", "rate"}
    decide(run, tg.unpause, "late")
    run.catch_up()
    assert paused(run) == {"rate"}
    decide(run, lambda flow, _output, **how: tg.limit(flow, 1000, **how), "")
    run.catch_up()
    assert run.runner.board.outputs["late"].state == "live"
    run.abandon()


def test_the_rate_is_changed_under_a_run_and_takes_effect_at_once(world: World) -> None:
    write(world.root / "orders" / "1.jsonl", lines(*range(PAST, PAST + 3000)))
    run = begin(world, alone)
    run.catch_up()
    run.abandon()
    tg.limit(alone(world), 1)
    run = begin(world, flow_of("late"))
    while filled(run, "late") < 1:
        run.step(0.5)  # all of it would take most of an hour
    decide(run, lambda flow, _output, **how: tg.limit(flow, 100_000, **how), "")
    assert seconds_to_fill(world, run) < 5
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


@pytest.mark.parametrize("rate", [-1, 1.5, "off", True, 1 << 70])
def test_what_is_no_rate_is_refused(world: World, rate: object) -> None:
    with pytest.raises(InvalidArgument, match="rate"):
        tg.limit(alone(world), rate)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="rate"):
        alone(world).run("caught-up", engine="local", rate=rate)  # type: ignore[arg-type]


def test_a_run_can_set_the_rate_which_later_runs_keep(world: World) -> None:
    alone(world).run("caught-up", engine="local", rate=500)
    assert world.loaded().decisions.rate == 500
    alone(world).run("caught-up", engine="local")
    assert world.loaded().decisions.rate == 500
