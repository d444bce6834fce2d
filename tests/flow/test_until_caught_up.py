"""A run until caught up ends when what was upstream when it began is in the tables, however fast more comes."""

from __future__ import annotations

import itertools
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.flow.by_hand import Clock
from tests.flow.taps import Tap, Well

import tidegauge as tg
from tidegauge.env import at_once
from tidegauge.flow.board import Board
from tidegauge.flow.runner import Runner
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.push.reader import WAIT


@pytest.mark.timeout(60)
def test_a_source_that_brings_more_than_its_epochs_take_does_not_keep_the_run_going(tmp_path: Path) -> None:
    start, seconds = datetime(2026, 11, 20, 17, tzinfo=UTC), itertools.count(5)
    env = tg.Env(now=lambda: start + timedelta(seconds=next(seconds)))  # whoever looks finds it a second later
    source = tg.GeneratorSource(None, columns="n long", rate=100, start=start, max_records_per_epoch=50)
    flow = tg.Dataflow("fast", store=f"sqlite:///{tmp_path}/flow.db", tick=0.01)
    flow.sink("rows", flow.source("rows", source), tg.ParquetSink(str(tmp_path / "rows")))
    upstream: list[int] = []

    def watch(board: Board) -> None:
        upstream.append(sum(board.sources["rows"].end.values()))

    outcome = flow.run("caught-up", engine="local", env=env, watch=watch)
    first = next(rows for rows in upstream if rows)
    rows = tg.read_arrow(flow, "rows").num_rows
    assert outcome.why == "caught up"
    assert 500 < first <= rows < upstream[-1], "it had what was there when it began, and not what came since"
    assert rows == 50 * outcome.published


@pytest.mark.parametrize("batch", [True, False])
def test_what_a_pushed_source_has_brought_to_its_end_waits_for_no_tick(tmp_path: Path, batch: bool) -> None:
    well, clock = Well(cuts=deque([3, 3, 3])), Clock(0.01)
    well.write("p", "", *range(9))
    flow = tg.Dataflow("fast", store=f"sqlite:///{tmp_path}/flow.db", tick=0.5)
    flow.sink("rows", flow.source("feed", Tap(well)), tg.ParquetSink(str(tmp_path / "rows")))
    env = tg.Env(now=clock.now, monotonic=clock.monotonic)
    runner = Runner(flow.spec, tg.LocalEngine(threads=0), env=env, spawn=at_once, batch=batch)
    try:
        while clock.seconds < 0.4:  # there is a tick at once, and another one half a second after the world began
            clock.seconds += 0.01
            for _ in range(12):
                runner.step()
        assert runner.ended("caught-up") == ("caught up" if batch else None)
        assert well.told == ([Frontier({"p": 9})] if batch else [])
        assert well.waits[:3] == [WAIT] * 3, "before its end it waits as long as ever"
        assert set(well.waits[3:]) == {0.02 if batch else WAIT}, "a run about to end waits for its last call"
    finally:
        runner.close()


@pytest.mark.parametrize("tells", [True, False], ids=["tells its end", "tells no end"])
def test_what_trickles_in_while_a_run_waits_for_others_keeps_to_the_clock(tmp_path: Path, tells: bool) -> None:
    well, clock = Well(cuts=deque([3]), tells=tells), Clock(0.01)
    well.write("p", "", *range(3))
    flow = tg.Dataflow("fast", store=f"sqlite:///{tmp_path}/flow.db", tick=0.5)
    flow.sink("rows", flow.source("feed", Tap(well)), tg.ParquetSink(str(tmp_path / "rows")))
    env = tg.Env(now=clock.now, monotonic=clock.monotonic)
    runner = Runner(flow.spec, tg.LocalEngine(threads=0), env=env, spawn=at_once, batch=True)
    try:
        while clock.seconds < 3.0:
            if round(clock.seconds * 100) % 10 == 0:
                well.write("p", "", *range(2))
                well.cuts.append(1)  # each of the two comes by a call of its own
            clock.seconds += 0.01
            for _ in range(12):
                runner.step()
        assert len(well.told) <= 8, "an epoch for each tick, and one for the end that it came to first"
        assert well.told[-1]["p"] > 40
    finally:
        runner.close()
