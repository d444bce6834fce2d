"""Many sources, most of which have nothing new: what a look at them costs, and whom a slow one holds up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.flow.recorder import Recorder
from tests.waiting import eventually

import tidegauge as tg
from tidegauge.dataflow.invocation import Operator
from tidegauge.env import at_once
from tidegauge.flow.runner import Runner


def rows(count: int) -> tg.GeneratorSource:
    return tg.GeneratorSource(count, columns="n long")


def idle_look(folder: Path, sources: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Return how many turns of operators, and how many tasks beside the worker, a look takes that finds nothing."""
    flow = tg.Dataflow("wide", store=f"sqlite:///{folder}/{sources}.db", tick=tg.Manual())
    for n in range(sources):
        (folder / f"{n}.jsonl").write_text('{"n": 1}\n')
        stream = flow.source(f"s{n}", tg.FileSource(f"{folder}/{n}.jsonl", format=tg.Json("n long")))
    flow.sink("last", stream, tg.ParquetSink(f"{folder}/{sources}"))
    turns, tasks, run = 0, 0, Operator.run

    def counted(operator: Operator) -> Any:
        nonlocal turns
        turns += 1
        return run(operator)

    def spawned(work: Callable[[], Any]) -> Future[Any]:
        nonlocal tasks
        tasks += 1
        return at_once(work)

    runner = Runner(flow.spec, tg.LocalEngine(threads=0), env=tg.Env(monotonic=lambda: 0.0), spawn=spawned)

    def look() -> int | None:
        asked = runner.requests.ask()
        while not asked.done():
            runner.step()
        return asked.result()

    try:
        assert [look(), look()] == [0, None]
        with monkeypatch.context() as patch:
            patch.setattr(Operator, "run", counted)
            turns = tasks = 0
            assert look() is None
    finally:
        runner.close()
    return turns, tasks


def test_a_look_at_idle_sources_takes_as_many_turns_and_tasks_however_many_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (idle_look(tmp_path, sources, monkeypatch) for sources in (5, 200))
    assert many == few
    turns, tasks = many
    assert turns < 10
    assert tasks == 1


@dataclass
class Watched(Recorder):
    """A source that tells when it has been asked, and whose answer can be waited for in vain."""

    asked: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def probe(self, bound: Any, *, now: datetime) -> Any:
        self.over.wait(60)
        self.asked.set()
        return super().probe(bound, now=now)


def test_sources_that_do_not_answer_hold_up_nobody_else(tmp_path: Path) -> None:
    flow = tg.Dataflow("coast", store=f"sqlite:///{tmp_path}/flow.db", tick=0.05)
    hanging = {f"a{n}": Watched(rows(2), lambda _frontier: None) for n in range(9)}  # the first in the line
    quick = {f"b{n}": Watched(rows(2), lambda _frontier: None) for n in range(9)}
    for source in quick.values():
        source.over.set()
    for name, source in (hanging | quick).items():
        flow.sink(name, flow.source(name, source), tg.ParquetSink(f"{tmp_path}/{name}"))
    with flow.start("caught-up", engine=tg.LocalEngine(threads=0)) as run:
        try:
            eventually(lambda: all(source.asked.is_set() for source in quick.values()))
            assert not any(source.asked.is_set() for source in hanging.values())
        finally:
            for source in hanging.values():
                source.over.set()
        run.wait()
    assert [tg.read_arrow(flow, name).num_rows for name in flow.outputs] == [2] * 18
