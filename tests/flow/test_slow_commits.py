"""A commit that takes long holds up nobody but its own output, and nobody begins anew beside it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegauge as tg
from tidegauge.errors.dataflow import OperatorFailed
from tidegauge.flow.runner import Runner
from tidegauge.sinks import backlog
from tidegauge.sinks.delta.log import DeltaLog
from tidegauge.sinks.parquet.chain import ParquetChain
from tidegauge.sinks.protocol import OutputId

SCHEMA = pa.schema([("k", pa.int64()), ("_epoch", pa.int64())])


@dataclass
class Gate:
    """Where the commits of an output have to pass. How often its table was opened, and which spans it was given."""

    open: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)
    opened: int = 0
    refused: int = 0
    inside: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Gated:
    """A sink that behaves as the one it wraps, but for the time that its commits take."""

    inner: Any
    gate: Gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self, output: OutputId) -> Any:
        self.gate.opened += 1
        return GatedTable(self.inner.open(output), self.gate)


@dataclass
class GatedTable:
    inner: Any
    gate: Gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def commit(self, lower: int, upper: int, *given: Any, **named: Any) -> None:
        self.gate.inside += 1
        assert self.gate.inside == 1, "two commits of one output at once"
        self.gate.reached.set()
        try:
            assert self.gate.open.wait(60)
            self.inner.commit(lower, upper, *given, **named)
            self.gate.spans.append((lower, upper))
        except BaseException:
            self.gate.refused += 1
            raise
        finally:
            self.gate.inside -= 1


@dataclass
class Shop:
    """A flow of one stream into two tables, with a gate before each."""

    root: Path
    slow: Gate = field(default_factory=Gate)
    fast: Gate = field(default_factory=Gate)
    lines: int = 0

    def __post_init__(self) -> None:
        self.fast.open.set()

    @property
    def flow(self) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=f"sqlite:///{self.root}/shop.db", tick=0.01)
        rows = flow.source("rows", tg.FileSource(str(self.root / "*.jsonl"), format=tg.Json("k long")))
        slow: Any = Gated(tg.ParquetSink(str(self.root / "slow")), self.slow)
        fast: Any = Gated(tg.DeltaSink(str(self.root / "fast")), self.fast)
        flow.sink("slow", rows, slow)
        flow.sink("fast", rows, fast)
        return flow

    def write(self) -> None:
        """Let there be one more line upstream."""
        with open(self.root / "in.jsonl", "a") as file:
            file.write(f"{json.dumps({'k': self.lines})}\n")
        self.lines += 1

    def check(self) -> None:
        """Both tables hold every line once, in the same epochs."""
        found = [tg.read_arrow(self.flow, name).select(["k", "_epoch"]).to_pylist() for name in ("slow", "fast")]
        assert sorted(map(str, found[0])) == sorted(map(str, found[1]))
        assert sorted(row["k"] for row in found[0]) == list(range(self.lines))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.write()
    return made


@pytest.fixture
def runner(shop: Shop) -> Iterator[Runner]:
    with ThreadPoolExecutor(4) as pool:
        runner = Runner(shop.flow.spec, tg.LocalEngine(), env=tg.Env(), spawn=pool.submit)
        try:
            yield runner
        finally:
            shop.slow.open.set()
            runner.close()


def step(runner: Runner, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not until():
        assert time.monotonic() < deadline, runner.board.outputs
        runner.step(park=0.01)


def holds(runner: Runner, output: str, upper: int) -> bool:
    return runner.board.outputs[output].upper >= upper


def is_bound(runner: Runner, upper: int) -> bool:
    return runner.board.upper >= upper


def test_the_commits_of_others_ticks_and_jobs_go_on_beside_a_slow_one(shop: Shop, runner: Runner) -> None:
    for lines in (1, 2, 3):
        step(runner, partial(holds, runner, "fast", lines))
        shop.write()
    assert shop.slow.reached.is_set()
    assert (runner.board.published, runner.board.outputs["slow"].upper) == (0, 0)
    shop.slow.open.set()
    step(runner, lambda: runner.board.published == runner.board.upper == shop.lines)
    assert shop.fast.spans == [(n, n + 1) for n in range(shop.lines)], "in order, and each once"
    first, (lower, upper) = shop.slow.spans[:2]
    assert (first, lower) == ((0, 1), 1)
    assert upper >= 3, "all that has come meanwhile is one commit, the last line too if it was staged by then"
    runner.close()
    shop.check()


def test_tables_are_opened_anew_only_when_no_commit_is_under_way(shop: Shop, runner: Runner) -> None:
    """Somebody was ahead of one output; the other is in the middle of its commit, which is to count."""
    shop.fast.open.clear()
    step(runner, lambda: shop.slow.reached.is_set() and shop.fast.reached.is_set())
    sink: Any = runner.flow.outputs["fast"].sink
    stager = sink.stage(SCHEMA, job="0" * 32, task=0)
    stager.write(pa.record_batch({"k": [0], "_epoch": [0]}, schema=SCHEMA))
    table = sink.inner.open(OutputId("shop", "fast", runner.lease.incarnation))
    table.commit(0, 1, SCHEMA, stager.close(), write="0" * 32)
    shop.fast.open.set()
    step(runner, lambda: shop.fast.refused == 1)
    for _ in range(20):
        runner.step(park=0.01)
    assert (shop.slow.opened, shop.fast.opened) == (1, 1)
    shop.slow.open.set()
    step(runner, lambda: shop.slow.opened == shop.fast.opened == 2)
    shop.write()
    step(runner, lambda: runner.board.published == 2)
    assert shop.slow.spans == [(0, 1), (1, 2)]
    runner.close()
    shop.check()


def test_a_run_that_ends_by_an_error_gives_its_lease_back_after_the_commits_under_way(shop: Shop) -> None:
    points: list[str] = []
    ended = threading.Event()

    def point(name: str) -> None:
        points.append(name)
        if name == "before release lease":
            ended.set()

    def release() -> None:
        ended.wait(0.3)
        shop.slow.open.set()

    def broken(*_: Any, **__: Any) -> None:
        assert shop.slow.reached.wait(60)
        threading.Thread(target=release).start()
        raise ArithmeticError("no error that anybody knows")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaLog, "commit", broken)
        with pytest.raises(OperatorFailed, match="ArithmeticError"):
            shop.flow.run("caught-up", engine="local", env=tg.Env(point=point))
    assert points.index("after commit output") < points.index("before release lease")
    assert shop.flow.run("caught-up", engine="local").why == "caught up"
    shop.check()


@pytest.mark.parametrize(("limit", "least"), [("BYTES", 1), ("PIECES", 1), ("PIECES", 2), ("SECONDS", 0.0)])
def test_nothing_more_is_staged_for_an_output_of_which_too_much_waits_and_the_others_go_on(
    shop: Shop, runner: Runner, limit: str, least: float
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, limit, least)
        step(runner, partial(holds, runner, "fast", 1))
        for _ in range(4):
            shop.write()
            step(runner, partial(holds, runner, "fast", shop.lines))
        staged = 1 if least == 1 else 2
        assert runner.board.expected["slow"] == staged
        shop.slow.open.set()
        step(runner, lambda: runner.board.published == shop.lines)
    assert shop.fast.spans == [(n, n + 1) for n in range(shop.lines)]
    assert shop.slow.spans[-1] == (staged, shop.lines), "what it lacked is one span"
    runner.close()
    shop.check()


def test_a_run_that_is_stopped_commits_all_that_waits_at_once(shop: Shop, runner: Runner) -> None:
    step(runner, partial(holds, runner, "fast", 1))
    for _ in range(20):
        shop.write()
        step(runner, partial(holds, runner, "fast", shop.lines))
    runner.stop()
    shop.slow.open.set()
    step(runner, lambda: runner.ended(None) is not None)
    assert shop.slow.spans == [(0, 1), (1, shop.lines)]
    assert runner.board.published == shop.lines
    runner.close()
    shop.check()


def test_a_commit_that_fails_is_tried_again_as_it_was_whatever_has_come_meanwhile(shop: Shop, runner: Runner) -> None:
    step(runner, partial(holds, runner, "fast", 1))
    shop.write()
    step(runner, partial(holds, runner, "fast", 2))
    asked: list[tuple[int, int, str]] = []
    commit = ParquetChain.commit

    def failing(self: Any, lower: int, upper: int, *given: Any, **named: Any) -> None:
        asked.append((lower, upper, named["write"]))
        if (lower, len(asked)) in ((1, 2), (1, 3)):
            shop.write()
            raise OSError("the disk is away")
        commit(self, lower, upper, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ParquetChain, "commit", failing)
        shop.slow.open.set()
        step(runner, lambda: runner.board.published == shop.lines == 4)
    assert asked[1] == asked[2] == asked[3]
    assert shop.slow.spans[:2] == [(0, 1), (1, 2)]
    runner.close()
    shop.check()
