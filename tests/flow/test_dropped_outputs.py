"""Outputs that are dropped: nothing of them is left but their tables, and a new one of the name starts clean."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.flow.badinput import begin, rows
from tests.flow.by_hand import Crash, Run, World
from tests.flow.test_late_outputs import PAST, add, alone, flow_of, with_late

import tidegauge as tg
from tidegauge.errors.flow import EmptyFlow, UnknownName
from tidegauge.job import portion
from tidegauge.remap.store import EXPIRY


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A flow with one table, and an output that is paused in the midst of its fill, of which the driver has died."""
    monkeypatch.setitem(portion.JOB_LIMITS, "bytes", 1)
    world = World(tmp_path, alone)
    run = begin(world)
    for n in range(PAST):
        add(world, n)
        run.catch_up()
    run.abandon()
    world.strike = "after record unit"
    with pytest.raises(Crash):
        begin(world, with_late).catch_up()
    world.clock.seconds += EXPIRY + 1
    tg.pause(with_late(world), "late", env=world.env())
    return world


def test_s23_nothing_of_a_dropped_output_is_left_and_a_new_one_of_its_name_starts_clean(world: World) -> None:
    assert list((world.root / "lake" / "late").rglob("*.parquet"))
    done = tg.drop(with_late(world), "late", env=world.env())
    assert done.declared
    loaded = world.loaded()
    assert not loaded.backfills
    assert not loaded.decisions.paused
    assert set(loaded.outputs) == {"a"}
    assert tg.status(alone(world)).holds == ()
    assert not list((world.root / "lake" / "late").rglob("*.parquet"))
    assert tg.compact(alone(world), before=5).since == 5, "nobody holds it any more"
    other = flow_of("late", function=lambda batch: batch.slice(0, 0))
    run = begin(world, other)
    run.catch_up()
    run.abandon()
    assert rows(other(world), "late") == [], "nothing of the old steps is in it"


def test_what_is_acknowledged_and_compacted_waits_no_more_for_a_dropped_output(world: World) -> None:
    tg.drop(alone(world), "late", env=world.env())
    run = begin(world, alone)
    add(world, PAST)
    run.catch_up()
    run.abandon()
    assert tg.compact(alone(world), before=PAST).since == PAST


def test_an_output_that_is_dropped_and_still_in_the_flow_is_filled_anew(world: World) -> None:
    tg.unpause(with_late(world), "late", env=world.env())
    run = begin(world, with_late)
    run.catch_up()
    run.abandon()
    tg.drop(with_late(world), "late", env=world.env())
    run = begin(world, with_late)
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a"), "its table was there, and holds everything"
    tg.drop(with_late(world), "late", env=world.env())
    shutil.rmtree(world.root / "lake" / "late")
    run = begin(world, with_late)
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def hear(run: Run) -> None:
    """Let a driver renew its lease, by which it hears of decisions, and act on them."""
    run.runner.lease.renew()
    for _ in range(3):
        run.step()


def test_a_driver_drops_an_output_and_goes_on_with_the_others(world: World) -> None:
    run = begin(world, with_late)
    done = tg.drop(with_late(world), "late", env=world.env())
    assert "late" in world.loaded().backfills, "it is the driver's to drop it"
    assert done.running
    [_, late] = tg.outputs(with_late(world))
    assert (late.state, {pause.reason for pause in late.paused}) == ("paused", {"operator", "drop"})
    hear(run)
    loaded = world.loaded()
    assert (set(loaded.outputs), loaded.decisions.paused, list(loaded.backfills)) == ({"a"}, {}, [])
    assert set(run.runner.board.outputs) == {"a"}
    assert not list((world.root / "lake" / "late").rglob("*.parquet"))
    add(world, PAST)
    run.catch_up()
    run.abandon()
    assert tg.compact(alone(world), before=PAST).since == PAST, "nothing is held for it"
    run = begin(world, with_late)
    run.catch_up()
    run.abandon()
    assert {row["n"] for row in rows(with_late(world), "late")} == set(range(PAST + 1)), "it begins as a new one"


def test_a_live_output_is_dropped_with_its_table_when_its_work_under_way_is_over(world: World) -> None:
    tg.unpause(with_late(world), "late", env=world.env())
    run = begin(world, with_late)
    run.catch_up()
    world.lag = 90
    add(world, PAST)
    while not run.runner.board.jobs:
        run.step()
    world.lag = 0
    tg.drop(with_late(world), "late", table=True, env=world.env())
    hear(run)
    assert run.runner.board.outputs["late"].paused == ("drop table",), "its job is under way"
    for _ in range(30):
        run.step()
    assert set(run.runner.board.outputs) == {"a"}
    run.catch_up()
    run.abandon()
    assert sorted(path.name for path in (world.root / "lake").iterdir()) == ["a"]
    assert len(rows(alone(world), "a")) == PAST + 1


def test_a_driver_that_dies_before_it_drops_leaves_that_to_the_next(world: World) -> None:
    run = begin(world, with_late)
    tg.drop(with_late(world), "late", table=True, env=world.env())
    run.abandon()
    world.clock.seconds += EXPIRY + 1
    run = begin(world, with_late)
    assert not world.loaded().decisions.paused
    assert world.loaded().backfills["late"].units == (), "the plan is a new one"
    run.catch_up()
    run.abandon()
    assert rows(with_late(world), "late") == rows(with_late(world), "a")


def test_an_output_of_other_code_is_forgotten_by_a_driver_but_its_table_is_not_removed(world: World) -> None:
    run = begin(world, alone)
    tg.drop(with_late(world), "late", table=True, env=world.env())
    hear(run)
    assert world.loaded().decisions.drops == {"late": True}
    run.abandon()
    world.clock.seconds += EXPIRY + 1
    tg.drop(with_late(world), "late", table=True, env=world.env())
    assert not world.loaded().decisions.paused
    assert not (world.root / "lake" / "late").exists()


def test_a_driver_whose_last_output_is_dropped_ends(world: World) -> None:
    run = begin(world, alone)
    tg.drop(alone(world), "a", env=world.env())
    with pytest.raises(EmptyFlow):
        hear(run)
    run.abandon()
    assert "a" not in world.loaded().outputs


def test_an_output_that_nobody_knows_cannot_be_dropped(world: World) -> None:
    tg.drop(with_late(world), "late", env=world.env())
    with pytest.raises(UnknownName):
        tg.drop(alone(world), "late", env=world.env())
