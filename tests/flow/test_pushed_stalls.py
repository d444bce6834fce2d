"""Why a source that pushes receives nothing: the board says it, and so does `status` from another process."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from tests.flow.by_hand import Clock, Run, World
from tests.flow.taps import Pipe, Tap, Well
from tests.flow.test_pushed_laws import Spring
from tests.flow.test_pushed_rows import Gated
from tests.remap.store.raw import sql

import tidegauge as tg
from tidegauge.cli import standing
from tidegauge.env import at_once
from tidegauge.errors.push import NothingReceived
from tidegauge.flow.runner import Runner
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.push.pieces import Pieces
from tidegauge.sources.push.protocol import Received


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
def world(tmp_path: Path, gate: threading.Event) -> Spring:
    """A flow with one output, which takes nothing before its gate is open."""

    def make(world: World) -> tg.Dataflow:
        assert isinstance(world, Spring)
        flow = tg.Dataflow("spring", store=world.store, tick=0.5)
        flow.sink("out", flow.source("feed", Tap(world.well)), Gated(str(tmp_path / "out"), gate=gate))
        return flow

    return Spring(tmp_path, make)


def passing(run: Run, seconds: float) -> None:
    """Let these seconds pass, at the pace of the flow's looks."""
    for _ in range(int(seconds / 0.5)):
        run.step(seconds=0.5)


def reason(world: Spring) -> str:
    """Why the source is stalled, as somebody else sees it; "" if it is not."""
    report = tg.status(world.make(world), env=world.env())
    [source] = report.sources
    [data] = standing.status_json(report)["sources"]
    assert data["state"] == source.state
    if source.state != "stalled":
        assert source.error is None
        return ""
    assert source.since is not None
    assert isinstance(source.error, NothingReceived)
    return str(source.error)


def test_records_that_wait_for_outputs_stall_their_source_for_others_too(
    world: Spring, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.flow.pushing.Pieces", partial(Pieces, most=300))
    run = world.start()
    world.write("p0", "", 30)
    passing(run, 2)
    world.write("p0", "", 30)
    assert reason(world) == "", "it may pass"
    passing(run, 8)
    assert "bytes wait for outputs that lack them" in reason(world)
    board = run.runner.board.sources["feed"]
    assert (board.state, type(board.error)) == ("stalled", NothingReceived)
    assert sql(world.store, "SELECT count(*) FROM stalls WHERE name = 'feed'") == [(1,)]
    gate.set()
    passing(run, 40)  # the output is tried again
    run.catch_up()
    passing(run, 3)
    assert (reason(world), board.state) == ("", "running")
    assert tg.read_arrow(world.make(world), "out").num_rows == 60
    run.abandon()


class Broken(Pipe):
    """A connection that says that there is nothing yet, and then breaks."""

    asked = 0

    def receive(self, limit: int, seconds: float) -> Received | None:
        self.asked += 1
        if self.asked > 1:
            raise OSError(28, "No space left on device")
        return None


@dataclass(frozen=True)
class Flickering(Tap):
    """A source of such connections. begun: when each was made."""

    now: Callable[[], float] = field(kw_only=True, compare=False)
    begun: list[float] = field(default_factory=list, compare=False)

    def connect(self, start: Frontier, bound: Bound) -> Pipe:
        self.begun.append(self.now())
        return Broken(self.well, start)


def test_connections_that_break_before_anything_came_are_made_less_and_less_often(tmp_path: Path) -> None:
    taps: list[Flickering] = []

    def make(world: World) -> tg.Dataflow:
        assert isinstance(world, Spring)
        flow = tg.Dataflow("spring", store=world.store, tick=0.5)
        taps.append(Flickering(world.well, now=world.env().monotonic))
        flow.sink("out", flow.source("feed", taps[-1]), tg.ParquetSink(str(tmp_path / "out")))
        return flow

    run = Spring(tmp_path, make).start()
    passing(run, 60)
    begun = taps[0].begun
    rests = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert rests[-1] > 10
    assert len(begun) < 15
    assert run.runner.board.sources["feed"].state == "stalled"
    run.abandon()


def test_a_call_that_does_not_come_back_stalls_its_source_for_others_too(world: Spring) -> None:
    world.lag = 500  # worker steps, of which a step of the run has twelve
    run = world.start()
    passing(run, 1)
    assert reason(world) == "", "it may come back"
    passing(run, 14)
    assert "has not come back" in reason(world)
    world.lag = 0
    passing(run, 20)
    assert reason(world) == ""
    run.abandon()


def test_delays_grow_while_connections_tell_their_end_alone_and_begin_anew_where_one_brings_something(
    tmp_path: Path,
) -> None:
    well, clock = Well(cuts=deque([0, -1] * 5 + [1, -1] * 4)), Clock(0.01)
    well.write("p", "", *range(9))
    flow = tg.Dataflow("spring", store=f"sqlite:///{tmp_path}/flow.db", tick=0.5)
    flow.sink("out", flow.source("feed", Tap(well)), tg.ParquetSink(str(tmp_path / "out")))
    env = tg.Env(now=clock.now, monotonic=clock.monotonic)
    runner = Runner(flow.spec, tg.LocalEngine(threads=0), env=env, spawn=at_once, batch=False)
    at: list[float] = []
    try:
        while len(at) < 9 and clock.seconds < 60.0:
            clock.seconds += 0.05
            for _ in range(6):
                runner.step()
            at += [clock.seconds] * (len(well.starts) - len(at))
        delays = [round(later - before, 1) for before, later in itertools.pairwise(at)]
        assert all(later > 1.5 * before for before, later in itertools.pairwise(delays[:5])), delays
        assert all(delay < 1.0 for delay in delays[5:]), delays
        assert len(delays) == 8
    finally:
        runner.close()
