"""Outputs that are dropped: nothing of them is left but their tables, and a new one of the name starts clean."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.flow.badinput import begin, rows
from tests.flow.by_hand import Crash, World
from tests.flow.test_late_outputs import PAST, add, alone, flow_of, with_late

import tidegauge as tg
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.store import FlowAlreadyRunning
from tidegauge.flow import stage
from tidegauge.remap.store import EXPIRY


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A flow with one table, and an output that is paused in the midst of its fill, of which the driver has died."""
    monkeypatch.setitem(stage.JOB_LIMITS, "bytes", 1)
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


def test_an_output_is_not_dropped_under_a_driver(world: World) -> None:
    run = begin(world, with_late)
    with pytest.raises(FlowAlreadyRunning):
        tg.drop(with_late(world), "late", env=world.env())
    assert "late" in world.loaded().backfills
    run.abandon()


def test_an_output_that_nobody_knows_cannot_be_dropped(world: World) -> None:
    tg.drop(with_late(world), "late", env=world.env())
    with pytest.raises(UnknownName):
        tg.drop(alone(world), "late", env=world.env())
