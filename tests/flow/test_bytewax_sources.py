"""Flows over sources of bytewax: every item once, whenever a driver dies, and others go on while one blocks."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from bytewax.connectors.files import DirSource
from tests.flow.attended import live, numbers
from tests.flow.by_hand import World
from tests.sources.bytewax.connectors import Blocked, Numbers, until

import tidegauge as tg
from tidegauge.errors.bytewax import PartitionBlocked
from tidegauge.sources.polls import poller


@dataclass
class Theirs(World):
    """A world with a source of bytewax."""

    upstream: Numbers = field(default_factory=lambda: Numbers({}))
    given: dict[str, Any] = field(default_factory=dict)


def flow_of(world: World, *outputs: str) -> tg.Dataflow:
    assert isinstance(world, Theirs)
    flow = tg.Dataflow("shop", store=world.store, tick=0.3)
    told = {"columns": "n long", "staging": world.root / "staged", "row": lambda n: {"n": n}, **world.given}
    orders = flow.source("orders", tg.BytewaxSource(world.upstream, **told))
    for name in ("orders", *outputs):
        flow.sink(name, orders, tg.DeltaSink(str(world.root / "lake" / name)))
    return flow


@pytest.fixture(autouse=True)
def looks_wait_for_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a look sees the end of a poll that it has begun."""
    monkeypatch.setattr(poller, "WAIT", 60)


def test_a_driver_that_dies_anywhere_gives_every_item_once(tmp_path: Path) -> None:
    died, at = True, 0
    struck: set[str] = set()
    while died:
        upstream = Numbers({"a": [0, 1, 2], "b": [3, 4]}, shape=lambda n: (n, b"x"), place=lambda state: state[0])
        world = Theirs(tmp_path / str(at), flow_of, upstream=upstream)
        world.root.mkdir()
        world.crash_at = at
        died = live(world, 5)
        struck |= {world.points[-1]} if died else set()
        if died:
            assert not live(world, 5)
        assert numbers(world) == [0, 1, 2, 3, 4]
        at += 1
    assert {"before stage poll", "after stage poll", "before append bindings", "after publish"} <= struck


def test_a_blocked_source_is_stalled_and_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "WAIT", 0.02)
    blocked = Blocked("a", 2)

    def make(world: World) -> tg.Dataflow:
        flow = flow_of(world)
        more = flow.source("rows", tg.GeneratorSource(columns="k long", rate=2.0))
        flow.sink("rows", more, tg.DeltaSink(str(world.root / "lake" / "rows")))
        return flow

    world = Theirs(tmp_path, make, upstream=Numbers({"a": [1, 2, 3]}, wrong=blocked), given={"timeout": 0.2})
    run = world.start()
    board = run.runner.board.sources["orders"]

    def stepped(what: Callable[[], bool]) -> bool:
        run.step(0.5)
        return what()

    until(lambda: stepped(lambda: isinstance(board.error, PartitionBlocked)))
    for _ in range(20):
        run.step(0.5)
    found = {source.name: source for source in tg.status(make(world), env=world.env()).sources}
    assert (found["orders"].state, found["rows"].state) == ("stalled", "running")
    assert "has not returned from next_batch" in str(found["orders"].error)
    assert numbers(world) == [1, 2]
    rows = tg.read_arrow(make(world), "rows").num_rows
    assert rows > 5
    blocked.gate.set()
    until(lambda: stepped(lambda: numbers(world) == [1, 2, 3]))
    run.abandon()


def test_late_outputs_and_status_ask_nobody(tmp_path: Path) -> None:
    world = Theirs(tmp_path, flow_of, upstream=Numbers({"a": [1, 2, 3]}))
    run = world.start()
    run.catch_up()
    run.abandon()
    world.upstream.parts, calls = {}, len(world.upstream.calls)
    [source] = tg.status(world.make(world)).sources
    assert (source.state, source.note) == ("idle", "only its running flow reads it")
    world.make = lambda one: flow_of(one, "late")
    run = world.start()
    run.catch_up()
    run.abandon()
    assert numbers(world, "late") == [1, 2, 3]
    assert len(world.upstream.calls) == calls


def lines_flow(root: Path) -> tg.Dataflow:
    """A flow over a folder of text files, by bytewax's own connector."""
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/flow.db", tick=0.05)
    source = DirSource(root / "in", batch_size=50)
    told: Any = {"columns": "line string", "row": lambda line: {"line": line}}
    lines = flow.source("lines", tg.BytewaxSource(source, staging=root / "staged", **told))
    flow.sink("lines", lines, tg.DeltaSink(str(root / "lake")))
    return flow


def _until_it_stages(root: Path, process: subprocess.Popen[bytes]) -> None:
    staged = len(list(root.rglob("0*.json")))
    until(lambda: len(list(root.rglob("0*.json"))) > staged or process.poll() is not None)


@pytest.mark.long
def test_processes_that_are_killed_at_random_give_every_line_of_bytewax_s_files_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    chance = random.Random(7)
    expected = list[str]()
    program = "import sys; from pathlib import Path; from tests.flow.test_bytewax_sources import lines_flow\n"
    program += "lines_flow(Path(sys.argv[1])).run('caught-up', engine='local')"
    done = threading.Event()
    for life in range(5):
        for name in "abc"[: 1 + life % 3]:
            with open(tmp_path / "in" / f"{name}.txt", "a") as file:
                more = [f"{name}{life}.{i}" for i in range(chance.randrange(4000))]
                file.write("".join(f"{line}\n" for line in more))
                expected += more
        process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.PIPE)
        if life < 4:
            _until_it_stages(tmp_path, process)
            done.wait(chance.random() / 4)
            os.kill(process.pid, signal.SIGKILL)
        _, said = process.communicate(timeout=120)
        assert process.returncode in ((0,) if life == 4 else (0, -signal.SIGKILL)), said.decode()
    assert sorted(tg.read_arrow(lines_flow(tmp_path), "lines")["line"].to_pylist()) == sorted(expected)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pkl", ".pickle")]
