"""What a driver waits for is seen by whoever looks from another process, at a bounded cost to the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.disks import fill, make_room, small_disk
from tests.flow.badinput import begin, lines, two, write
from tests.flow.by_hand import World
from tests.flow.recorder import Recorder
from tests.remap.store.raw import sql

import tidegauge as tg
from tidegauge.cli import standing
from tidegauge.errors.sinks import CommitSilent, TableWentBack
from tidegauge.flow.stalls import ANEW, SHOWN
from tidegauge.looking.reports import FlowReport
from tidegauge.remap.store import EXPIRY


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, two)
    for name in ("a", "b"):
        write(tmp_path / name / "1.jsonl", lines(0))
    return world


def look(world: World) -> FlowReport:
    """What somebody else sees at that instant."""
    return tg.status(world.make(world), env=world.env())


def states(world: World) -> dict[str, str]:
    report = look(world)
    return {one.name: one.state for one in report.outputs}


def told(world: World) -> list[tuple[str, str]]:
    return sorted((row[1], row[2]) for row in sql(world.store, "SELECT * FROM stalls"))


def test_an_output_that_is_away_is_stalled_for_others_too_until_it_is_back(world: World) -> None:
    run = begin(world)
    run.catch_up()
    lake, away = world.root / "lake" / "a", world.root / "away"
    lake.rename(away)
    write(world.root / "a" / "1.jsonl", lines(1))
    run.step()
    assert told(world) == [], "it may pass"
    at = world.clock.now()
    run.step(SHOWN + 1)
    run.step(1.1)
    assert told(world) == [("output", "a")]
    report = look(world)
    found = {output.name: output for output in report.outputs}
    assert (found["a"].state, found["b"].state) == ("stalled", "live")
    assert isinstance(found["a"].error, TableWentBack)
    assert found["a"].since is not None
    assert abs((found["a"].since - at).total_seconds()) < 1
    [data] = [output for output in standing.status_json(report)["outputs"] if output["name"] == "a"]
    assert (data["stalled_since"][:19], data["error"]["code"]) == ("2026-11-20T17:00:00", "TG-0435")
    away.rename(lake)
    run.step(31)
    run.catch_up()
    run.step(2)
    assert (states(world), told(world)) == ({"a": "live", "b": "live"}, [])
    run.abandon()


def test_what_is_told_is_written_once_however_often_it_is_tried(world: World) -> None:
    run = begin(world)
    run.catch_up()
    (world.root / "lake" / "a").rename(world.root / "away")
    write(world.root / "a" / "1.jsonl", lines(1))
    sql(world.store, "CREATE TABLE written (n INTEGER)")
    sql(world.store, "CREATE TRIGGER counted AFTER INSERT ON stalls BEGIN INSERT INTO written VALUES (1); END")
    for _ in range(100):
        run.step(2)
    assert run.runner.board.outputs["a"].attempt > 8
    assert sql(world.store, "SELECT count(*) FROM written") == [(1,)]
    run.abandon()


def test_a_reason_that_changes_is_told_anew_and_not_at_each_try(tmp_path: Path) -> None:
    reasons = ["503, it is busy"]

    def shy(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shy", store=world.store)
        inner = tg.FileSource(f"{tmp_path}/a/*", format=tg.Json("n long"))
        a = flow.source("a", Shy(inner, lambda _frontier: None, broken=lambda: bool(reasons), reasons=reasons))
        flow.sink("a", a, tg.ParquetSink(f"{tmp_path}/lake"))
        return flow

    world = World(tmp_path, shy)
    run = begin(world)
    for _ in range(3):
        run.step(SHOWN)
    [before] = look(world).sources
    assert "503, it is busy" in str(before.error)
    sql(world.store, "CREATE TABLE written (n INTEGER)")
    sql(world.store, "CREATE TRIGGER counted AFTER INSERT ON stalls BEGIN INSERT INTO written VALUES (1); END")
    reasons.append("401, a wrong password")
    for _ in range(20):
        run.step(ANEW)
    run.runner.lease.renew()
    [after] = look(world).sources
    assert "401, a wrong password" in str(after.error)
    assert after.since == before.since
    assert sql(world.store, "SELECT count(*) FROM written") == [(1,)]
    run.abandon()


def test_what_a_driver_that_died_has_told_is_not_said_of_nobody_and_the_next_one_takes_it_back(world: World) -> None:
    run = begin(world)
    run.catch_up()
    lake, away = world.root / "lake" / "a", world.root / "away"
    lake.rename(away)
    write(world.root / "a" / "1.jsonl", lines(1))
    for _ in range(3):
        run.step(SHOWN)
    away.rename(lake)
    assert states(world)["a"] == "stalled", "its driver has not noticed yet"
    run.abandon()
    assert (states(world)["a"], told(world)) == ("live", [("output", "a")])
    run = begin(world)
    run.catch_up()
    run.step(2)
    assert told(world) == []
    run.abandon()


def test_a_commit_that_says_nothing_for_long_is_stalled_until_it_is_over(world: World) -> None:
    world.lag = 100  # worker steps, of which a step of the run has twelve
    run = begin(world)
    seen = []
    for _ in range(60):
        run.step(8)
        run.runner.lease.renew()
        error = run.runner.board.outputs["a"].error
        seen.append((run.runner.board.outputs["a"].state, type(error), states(world)["a"] == "stalled"))
        if run.runner.board.published:
            break
    assert ("stalled", CommitSilent, True) in seen
    assert seen[-1][0] == "live"
    world.lag = 0
    run.abandon()


@dataclass
class Shy(Recorder):
    """A source that cannot be asked while it is broken."""

    broken: Callable[[], bool] = lambda: False
    reasons: Sequence[str] = ("no route to host",)

    def probe(self, bound: Any, *, now: datetime) -> Any:
        if self.broken():
            raise OSError(self.reasons[-1])
        return super().probe(bound, now=now)


def test_a_source_that_its_driver_cannot_ask_is_stalled_for_others_who_can(tmp_path: Path) -> None:
    broken = threading.Event()

    def shy(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shy", store=world.store)
        inner = tg.FileSource(f"{tmp_path}/a/*", format=tg.Json("n long"))
        a = flow.source("a", Shy(inner, lambda _frontier: None, broken=broken.is_set))
        flow.sink("a", a, tg.ParquetSink(f"{tmp_path}/lake"))
        return flow

    world = World(tmp_path, shy)
    write(tmp_path / "a" / "1.jsonl", lines(0))
    run = begin(world)
    run.catch_up()
    broken.set()
    for _ in range(5):
        run.step(SHOWN)
    broken.clear()
    [a] = look(world).sources
    assert (a.state, told(world)) == ("stalled", [("source", "a")])
    assert "no route to host" in str(a.error)
    assert a.since is not None
    run.step(31)
    run.step(2)
    run.runner.lease.renew()
    assert ([one.state for one in look(world).sources], told(world)) == (["running"], [])
    run.abandon()


def test_of_a_driver_whose_store_is_full_the_age_of_its_lease_is_said(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", size="512k") as disk:

        def flow(world: World) -> tg.Dataflow:
            made = tg.Dataflow("two", store=world.store)
            made.sink("a", made.source("a", tg.FileSource(f"{tmp_path}/a/*", format=tg.Json("n long"))), sink)
            return made

        sink, world = tg.ParquetSink(str(tmp_path / "lake")), World(disk, flow)
        run = world.start()
        write(tmp_path / "a" / "1.jsonl", lines(0))
        run.catch_up()
        assert look(world).silent == ""
        fill(disk)
        for n in range(1, 500):
            write(tmp_path / "a" / "1.jsonl", lines(n))
            run.step()
            if run.runner.board.store.attempt:
                break
        run.step(EXPIRY)
        report = look(world)
        assert "renewed last at 2026-11-20 17:0" in report.silent
        assert standing.status_json(report)["silent"] == report.silent
        make_room(disk)
        run.step(EXPIRY)
        run.catch_up()
        run.runner.lease.renew()
        assert look(world).silent == ""
        run.abandon()


def test_a_table_that_status_may_not_look_at_does_not_hide_the_others(world: World) -> None:
    run = begin(world)
    run.catch_up()
    run.abandon()
    (world.root / "lake").rename(world.root / "away")
    (world.root / "lake").write_text("in its way")  # ENOTDIR, also for who may look everywhere
    assert states(world) == {"a": "stalled", "b": "stalled"}
