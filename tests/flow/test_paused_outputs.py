"""Outputs that somebody pauses while the flow runs or stands still: they wait, durably, and nobody waits for them."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.flow.badinput import begin, lines, numbers, rows, states, write
from tests.flow.by_hand import Crash, Run, World
from tests.flow.test_late_outputs import PAST, add, alone, filled, flow_of, upper, with_late

import tidegauge as tg
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.running import CannotPause
from tidegauge.job import portion
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import EXPIRY
from tidegauge.sinks.parquet.chain import ParquetChain

Command = Callable[..., Any]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A flow with one table, that has run for some epochs; a job of late outputs takes one epoch."""
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, alone)
    run = begin(world)
    for n in range(PAST):
        add(world, n)
        run.catch_up()
    run.abandon()
    return world


@pytest.fixture
def both(world: World) -> Run:
    """A life in which both outputs are live."""
    run = begin(world, with_late)
    run.catch_up()
    return run


def decide(run: Run, command: Command, output: str) -> None:
    """Decide about an output, and let the driver renew its lease, by which it hears of that."""
    command(run.flow, output, env=run.world.env())
    run.runner.lease.renew()
    for _ in range(3 + run.world.lag // 4):
        run.step()


def published(run: Run) -> int:
    return run.runner.board.published


def test_a_live_output_that_is_paused_waits_and_nobody_waits_for_it(world: World, both: Run) -> None:
    decide(both, tg.pause, "late")
    for n in range(PAST, PAST + 3):
        add(world, n)
        both.catch_up()
    assert states(both.runner.board.outputs.values()) == {"a": "live", "late": "paused"}
    assert (upper(both, "a"), upper(both, "late"), published(both)) == (PAST + 3, PAST, PAST + 3)
    assert numbers(with_late(world), "a") == list(range(PAST + 3))
    decide(both, tg.unpause, "late")
    both.catch_up()
    assert states(both.runner.board.outputs.values()) == {"a": "live", "late": "live"}
    both.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_what_is_published_waits_again_for_an_output_that_has_come_back(world: World, both: Run) -> None:
    decide(both, tg.pause, "late")
    add(world, PAST)
    both.catch_up()
    decide(both, tg.unpause, "late")
    both.catch_up()

    def full(*_args: object, **_how: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetChain, "commit", full)
        add(world, PAST + 1)
        for _ in range(20):
            both.step()
        assert published(both) == PAST + 1
        decide(both, tg.pause, "late")
        both.step()
        assert published(both) == PAST + 2, "to pause an output whose disk is full lets the others go on"
    both.abandon()


def test_a_pause_in_the_midst_of_a_fill_keeps_its_units(world: World) -> None:
    world.lag = 30
    run = begin(world, with_late)
    while filled(run, "late") < 30:
        run.step()
    decide(run, tg.pause, "late")
    reached = filled(run, "late")
    assert 30 <= reached < 100
    units = world.loaded().backfills["late"].units
    add(world, PAST)
    run.catch_up()
    [_, late] = tg.outputs(with_late(world))
    assert (late.state, late.filled is not None and late.filled.percent) == ("paused", reached)
    assert (filled(run, "late"), world.loaded().backfills["late"].units) == (reached, units)
    decide(run, tg.unpause, "late")
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_a_driver_that_starts_finds_an_output_paused(world: World, both: Run) -> None:
    both.abandon()
    tg.pause(with_late(world), "late", env=world.env())
    add(world, PAST)
    world.points.clear()
    run = begin(world, with_late)
    assert states(run.runner.board.outputs.values()) == {"a": "live", "late": "paused"}
    run.catch_up()  # a run that is to catch up does not wait for it
    assert world.points.count("before commit output") == 1
    run.abandon()
    tg.unpause(with_late(world), "late", env=world.env())
    run = begin(world, with_late)
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_a_new_output_can_be_paused_before_it_has_run(world: World) -> None:
    tg.pause(with_late(world), "late", env=world.env())
    assert states(tg.outputs(with_late(world))) == {"a": "live", "late": "paused"}
    world.points.clear()
    run = begin(world, with_late)
    add(world, PAST)
    run.catch_up()
    assert world.points.count("before record unit") == 0
    assert world.loaded().backfills["late"].plan.cutover == PAST - 1, "it is planned, and its history held"
    decide(run, tg.unpause, "late")
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_upstream_keeps_what_a_paused_output_lacks_and_status_says_so(world: World, both: Run) -> None:
    told: list[Frontier] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tg.FileSource, "acknowledge", lambda _self, frontier: told.append(frontier))
        decide(both, tg.pause, "late")
        add(world, PAST)
        both.catch_up()
        table = both.runner.board.timeline.tables["orders"]
        assert all(frontier.less_equal(table.inverse(PAST)) for frontier in told)
        decide(both, tg.unpause, "late")
        both.catch_up()
        both.step()
        assert told[-1] == table.inverse(PAST + 1)
    both.abandon()


def test_history_that_a_paused_output_lacks_is_not_compacted(world: World, both: Run) -> None:
    decide(both, tg.pause, "late")
    for n in range(PAST, PAST + 4):
        add(world, n)
        both.catch_up()
    both.abandon()
    done = tg.compact(with_late(world), before=PAST + 3)
    assert done.since == PAST - 1
    assert "late" in done.kept


def test_all_outputs_may_be_paused_and_nothing_is_published_that_nobody_holds(world: World, both: Run) -> None:
    for name in ("a", "late"):
        decide(both, tg.pause, name)
    add(world, PAST)
    for _ in range(10):
        both.step()
    assert (both.runner.board.upper, published(both)) == (PAST + 1, PAST)
    assert both.runner.ended("caught-up") == "caught up", "nothing is left that this run could do"
    decide(both, tg.unpause, "late")
    both.catch_up()
    assert (upper(both, "a"), upper(both, "late"), published(both)) == (PAST, PAST + 1, PAST + 1)
    decide(both, tg.unpause, "a")
    both.catch_up()
    both.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_a_run_that_is_told_to_stop_does_not_wait_for_a_paused_output(world: World) -> None:
    run = begin(world, with_late)
    run.catch_up()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetChain, "commit", lambda *_args, **_how: _full())
        add(world, PAST)
        for _ in range(5):
            run.step()
        decide(run, tg.pause, "late")
        run.runner.stop()
        for _ in range(5):
            run.step()
        assert run.runner.ended(None) == "stopped"
    run.abandon()


def _full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_to_pause_twice_or_to_resume_what_is_not_paused_changes_nothing(world: World, both: Run) -> None:
    before = world.loaded().decisions
    done = tg.unpause(with_late(world), "late")
    assert (done.changed, done.reasons, world.loaded().decisions) == (False, (), before)
    assert tg.pause(with_late(world), "late", env=world.env()).changed
    again = world.loaded().decisions
    world.clock.seconds += 60
    done = tg.pause(with_late(world), "late", env=world.env())
    assert (done.changed, done.reasons, world.loaded().decisions) == (False, ("operator",), again)
    assert [pause.output for pause in again.pauses] == ["late"]
    both.abandon()


def test_an_output_that_nobody_knows_is_refused(world: World) -> None:
    with pytest.raises(UnknownName, match="lat"):
        tg.pause(with_late(world), "lat")


def test_an_output_that_was_taken_out_of_the_flow_can_be_resumed(world: World, both: Run) -> None:
    decide(both, tg.pause, "late")
    both.abandon()
    assert tg.unpause(alone(world), "late").changed


def test_an_output_of_a_source_that_pushes_is_refused(tmp_path: Path) -> None:
    flow = tg.Dataflow("pushed", store=f"sqlite:///{tmp_path}/flow.db")
    pushed = flow.source("ticks", tg.SocketSource("127.0.0.1", 1, columns="n long"))
    flow.sink("a", pushed, tg.ParquetSink(str(tmp_path / "a")))
    with pytest.raises(CannotPause, match="TG-0559"):
        tg.pause(flow, "a")


@pytest.mark.parametrize("sink", [tg.ParquetSink, pytest.param(tg.DeltaSink, marks=pytest.mark.long)])
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_x1_a_crash_anywhere_leaves_an_output_as_was_decided(world: World, sink: Any, step: int) -> None:
    """The life of each late output, paused on the way and resumed, dies at a later point than the one before."""
    for at in itertools.count(step=step):
        name = f"late{at}"
        make = flow_of(name, sink=sink)
        world.points.clear()
        world.crash_at = at
        paused = died = False
        try:
            run = begin(world, make)
            run.step()
            decide(run, tg.pause, name)
            paused = True
            run.catch_up()
            paused = False  # or perhaps still
            decide(run, tg.unpause, name)
            run.catch_up()
            run.abandon()
        except Crash:
            died = True
            world.crash_at = None
            world.clock.seconds += EXPIRY + 1
        run = begin(world, make)
        stands = name in world.loaded().decisions.paused
        assert stands == (run.runner.board.outputs[name].state == "paused")
        assert stands or not paused
        run.catch_up()
        if stands:
            decide(run, tg.unpause, name)
            run.catch_up()
        run.abandon()
        assert rows(make(world), name) == rows(make(world), "a")
        assert world.loaded().backfills == {}
        if not died:
            return


def test_a_store_that_is_put_back_brings_the_decisions_of_its_time(world: World, both: Run) -> None:
    both.abandon()
    tg.pause(with_late(world), "late")
    tg.backup(with_late(world), world.root / "backup.db")
    tg.unpause(with_late(world), "late")
    for beside in world.root.glob("flow.db*"):
        beside.unlink()
    (world.root / "backup.db").rename(world.root / "flow.db")
    run = begin(world, with_late)
    assert run.runner.board.outputs["late"].state == "paused"
    write(world.root / "orders" / "1.jsonl", lines(PAST))
    run.catch_up()
    decide(run, tg.unpause, "late")
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")
