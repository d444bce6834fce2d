"""The phases of an output, from planned to live, as they are shown, and waiting for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flow.badinput import begin, write
from tests.flow.by_hand import World
from tests.flow.test_late_outputs import PAST, add, alone, filled, with_late
from tests.flow.test_paused_outputs import decide

import tidegauge as tg
from tidegauge.cli.show import phase_text
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.job import portion


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


def phase(world: World) -> str:
    [_, late] = tg.outputs(with_late(world))
    return phase_text(late).plain


def test_p3_p1_the_phases_of_an_output_in_their_order(world: World) -> None:
    assert phase(world) == "planned"
    world.lag = 20
    run = begin(world, with_late)
    seen, percents = [phase(world)], [filled(run, "late")]
    decide(run, tg.pause, "late")
    seen.append(phase(world))
    decide(run, tg.unpause, "late")
    for n in range(PAST, PAST + 3):
        add(world, n)
    while run.runner.board.outputs["late"].state != "live":
        run.step()
        if (now := phase(world)) != seen[-1]:
            seen.append(now)
        percents.append(filled(run, "late"))
    run.abandon()
    assert percents == sorted(percents)
    assert seen[0].startswith("backfilling ")
    assert seen[1] == "paused (operator)"
    ends = [each for each in seen[2:] if not each.startswith("backfilling")]
    assert ends[-1] == "live"
    assert all(each.startswith("catching up ") for each in ends[:-1])


def test_a_flow_that_has_not_run_yet_is_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path, alone)
    write(tmp_path / "orders" / "1.jsonl", '{"n": 1, "text": "a"}\n')
    with alone(world).start("caught-up", engine="local"):
        assert alone(world).wait_until("a", "live", timeout=60).upper >= 0
    with pytest.raises(TimeoutError, match="'a' is live, and was to be paused within 0 s"):
        tg.wait_until(alone(world), "a", "paused", timeout=0)


def test_an_output_that_fails_instead_raises_why(world: World) -> None:
    write(world.root / "orders" / "1.jsonl", "no json\n")
    run = begin(world)
    run.catch_up()
    run.abandon()
    with pytest.raises(RecordUnparsable):
        tg.wait_until(alone(world), "a", "live", timeout=60)
    assert tg.wait_until(alone(world), "a", "failed").upper == PAST


def test_a_state_and_an_output_that_are_none_are_refused(world: World) -> None:
    with pytest.raises(InvalidArgument, match="catching_up"):
        tg.wait_until(alone(world), "a", "done")  # type: ignore[arg-type]
    with pytest.raises(UnknownName):
        tg.wait_until(alone(world), "b", "live")
