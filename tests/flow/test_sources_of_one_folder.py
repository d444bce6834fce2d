"""Sources that look at one folder: a look lists it once for all of them, and none holds up the others by it."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.disks import disk_image
from tests.flow.badinput import lines, numbers, write
from tests.flow.by_hand import World
from tests.flow.recorder import Recorder
from tests.sources.file.test_file_watching import counted
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.env import at_once
from tidegauge.flow.runner import Runner
from tidegauge.remap.findings import Findings
from tidegauge.sources.file.disk import LocalDisk


def source(path: Path | str) -> tg.FileSource:
    return tg.FileSource(str(path), format=tg.Json("n long, text string"))


def flow_of(root: Path, patterns: Mapping[str, Path | Recorder], tick: float | None = None) -> tg.Dataflow:
    flow = tg.Dataflow("landing", store=f"sqlite:///{root}/flow.db", tick=tg.Manual() if tick is None else tick)
    for name, pattern in patterns.items():
        found = pattern if isinstance(pattern, Recorder) else source(pattern)
        flow.sink(name, flow.source(name, found), tg.ParquetSink(f"{root}/lake/{name}"))
    return flow


@contextmanager
def opened(flow: tg.Dataflow) -> Iterator[Runner]:
    runner = Runner(flow.spec, tg.LocalEngine(threads=0), env=tg.Env(), spawn=at_once, batch=False)
    try:
        yield runner
    finally:
        runner.close()


def look(runner: Runner) -> int | None:
    asked = runner.requests.ask()
    while not asked.done():
        runner.step()
    return asked.result()


def test_f11_twenty_sources_on_one_folder_take_one_listing_and_one_stat_of_each_file(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    for n in range(15):
        for day in range(3):
            write(landing / f"{n:02}-{day}.jsonl", lines(n))
    ours = {f"s{n}": landing / f"{n:02}-*.jsonl" for n in range(15)}
    all_of_them = {
        f"t{n}": landing / pattern for n, pattern in enumerate(["*.jsonl", "**/*", "*-1.jsonl", "0*", "**"])
    }
    with opened(flow_of(tmp_path, ours | all_of_them)) as runner:
        assert [look(runner), look(runner)] == [0, None]
        with counted() as asked:
            assert look(runner) is None
    assert asked == {f"list {landing}": 1, **{f"stat {path}": 1 for path in landing.iterdir()}}


def test_whatever_lands_before_a_tick_is_in_it_for_each_source_of_the_folder(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    flow = flow_of(tmp_path, {"a": landing / "a*", "b": landing / "b*", "all": landing / "**"})
    landing.mkdir()
    with opened(flow) as runner:
        for n in range(4):
            write(landing / f"{'ab'[n % 2]}-{n}", lines(n))
            assert look(runner) == n
        while runner.board.published < 4:
            runner.step()
    assert [numbers(flow, name) for name in ("a", "b", "all")] == [[0, 2], [1, 3], [0, 1, 2, 3]]


@dataclass
class Told(Recorder):
    """A source that remembers what it was told to share."""

    findings: list[Findings | None] = field(default_factory=list)

    @property
    def looks_at(self) -> Any:
        return self.inner.looks_at

    def probe(self, bound: Any, *, now: datetime) -> Any:
        self.findings.append(bound.findings)
        return super().probe(bound, now=now)


def test_only_sources_that_meet_share_and_nothing_of_it_outlives_the_look(tmp_path: Path) -> None:
    places = {"a": "in/a*", "b": "in/b*", "tree": "**/c*", "own": "../apart/*"}
    for folder in ("landing/in", "apart"):
        write(tmp_path / folder / "a.jsonl", lines(0))
    told = {
        name: Told(source(f"{tmp_path}/landing/{pattern}"), lambda _frontier: None)
        for name, pattern in places.items()
    }
    flow = flow_of(tmp_path, told)
    with opened(flow) as runner:
        assert look(runner) == 0
        shared = {name: one.findings.pop() for name, one in told.items()}
        assert {name for name, findings in shared.items() if findings is not None} == {"a", "b", "tree"}
        del shared
        look(runner)
        for one in told.values():
            one.findings.clear()
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, Findings)]
        tg.status(flow)
        assert [one.findings for one in told.values()] == [[None]] * 4


def test_a_dead_disk_below_the_folder_stalls_only_who_looks_there(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    with disk_image(tmp_path / "image", landing / "eu") as disk:
        for folder in (landing, landing / "eu"):
            write(folder / "a.jsonl", lines(0))
        patterns = {"own": landing / "*.jsonl", "eu": landing / "eu" / "*", "all": landing / "**/*.jsonl"}
        world = World(tmp_path, lambda _world: flow_of(tmp_path, patterns, tick=0.5))
        run = world.start()
        run.catch_up()
        for folder in (landing, landing / "eu"):
            write(folder / "a.jsonl", lines(1))
            with (folder / "a.jsonl").open("rb") as written:
                os.fsync(written.fileno())
        disk.die()
        for _ in range(20):
            run.step(31)
        states = {name: found.state for name, found in run.runner.board.sources.items()}
        assert states == {"own": "running", "eu": "stalled", "all": "stalled"}
        assert run.runner.board.outputs["own"].upper == run.runner.board.upper == 2
        disk.mend()
        run.step(31)
        run.catch_up()
        run.abandon()
        assert [numbers(world.make(world), name) for name in ("own", "eu", "all")] == [[0, 1], [0, 1], [0, 0, 1, 1]]


def test_a_folder_that_does_not_answer_holds_up_who_lists_it_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("eu", "us", "."):
        write(tmp_path / "landing" / folder / "a.jsonl", lines(0))
    flow = tg.Dataflow("landing", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
    landing = tmp_path / "landing"
    hanging = {f"eu{n}": landing / "eu" / f"{'a' * (n % 2)}*" for n in range(6)} | {"all": landing / "**/*"}
    quick = {f"us{n}": landing / "us" / "a*" for n in range(6)} | {"top": landing / "*.jsonl"}
    for name, path in (hanging | quick).items():
        flow.sink(name, flow.source(name, source(path)), tg.ParquetSink(f"{tmp_path}/lake/{name}"))
    go, hung, plain = threading.Event(), [], LocalDisk.scandir

    def scandir(disk: LocalDisk, folder: str) -> Any:
        if folder == str(landing / "eu") and not go.is_set():
            hung.append(folder)
            assert go.wait(60)
        return plain(disk, folder)

    monkeypatch.setattr(LocalDisk, "scandir", scandir)
    answered: set[str] = set()
    probe = tg.FileSource.probe

    def noted(self: tg.FileSource, bound: Any, *, now: datetime) -> Any:
        found = probe(self, bound, now=now)
        answered.add(self.path)
        return found

    monkeypatch.setattr(tg.FileSource, "probe", noted)
    with flow.start("caught-up", engine=tg.LocalEngine(threads=0)) as run:
        try:
            eventually(lambda: answered == {str(path) for path in quick.values()})
            assert len(hung) == 1
        finally:
            go.set()
        run.wait()
    assert [len(numbers(flow, name)) for name in flow.outputs] == [1] * 6 + [3] + [1] * 7
