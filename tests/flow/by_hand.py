"""A flow over real files, stores and tables, in one thread, on a clock that only moves when told.

It is for what no simulated world has: a disk that fills up or is taken away, a Delta table that refuses, other hands
in a folder, and what the board says at an instant that the test chooses. Crashes at every place belong to the worlds;
here a test strikes at the one that it is about.

`World` holds what survives a crash: files, store, tables. `Run` is one life of the driver. A crash is an exception
that no code catches, raised at a named point; everything in memory is then dropped without a word.
"""

from __future__ import annotations

import errno
import itertools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tidegauge as tg
from tidegauge.env import at_once
from tidegauge.flow.runner import Runner
from tidegauge.remap.store import EXPIRY, Loaded, Store


class Crash(BaseException):
    """The driver died here."""


@dataclass
class Clock:
    """Seconds since the world began, moved by hand."""

    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 11, 20, 17, tzinfo=UTC) + timedelta(seconds=self.seconds)


@dataclass
class World:
    """Everything durable, and the flow that works on it."""

    root: Path
    make: Callable[[World], tg.Dataflow]
    clock: Clock = field(default_factory=Clock)
    points: list[str] = field(default_factory=list)
    crash_at: int | None = None
    lag: int = 0
    """How many worker steps a probe, a job or a commit takes."""
    faults: deque[bool] = field(default_factory=deque)
    """For each commit to come, whether the disk is full at that moment."""
    strike: str = ""
    """The name of a point at which the driver dies, once."""
    table: Any = tg.DeltaSink
    """The sink of the tables that a test is about, where it is one for several."""
    _unique: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def store(self) -> str:
        return f"sqlite:///{self.root}/flow.db"

    def point(self, name: str) -> None:
        """Remember a named point; die at the one that was chosen."""
        self.points.append(name)
        if self.crash_at is not None:
            self.crash_at -= 1
            if self.crash_at < 0:
                raise Crash(name)
        if name == self.strike:
            self.strike = ""
            raise Crash(name)
        if name == "before commit output" and self.faults and self.faults.popleft():
            raise OSError(errno.ENOSPC, "No space left on device")

    def env(self) -> tg.Env:
        return tg.Env(
            now=self.clock.now,
            monotonic=self.clock.monotonic,
            unique=lambda: f"{next(self._unique):032x}",
            point=self.point,
        )

    def start(self) -> Run:
        """Begin a life; one that dies while it begins leaves its lease behind, which has to expire."""
        try:
            return Run(self)
        except Crash:
            self.crash_at = None
            self.clock.seconds += EXPIRY + 1
            raise

    def loaded(self) -> Loaded:
        """Return what the store holds."""
        store = Store.open(self.store, env=tg.Env())
        try:
            return store.load(self.make(self).name)
        finally:
            store.close()


class Run:
    """One life of the driver."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.under_way: deque[tuple[int, Callable[[], Any], Future[Any]]] = deque()
        self.steps = 0
        self.flow = world.make(world)
        self.runner = Runner(self.flow.spec, tg.LocalEngine(threads=0), env=world.env(), spawn=self.spawn)

    def spawn(self, function: Callable[[], Any]) -> Future[Any]:
        """Run a function some worker steps from now."""
        if self.world.lag == 0:
            return at_once(function)
        future: Future[Any] = Future()
        self.under_way.append((self.steps + self.world.lag, function, future))
        return future

    def step(self, seconds: float = 0.3) -> None:
        """Let time pass, then let the worker run as long as it has something to do."""
        self.world.clock.seconds += seconds
        for _ in range(12):
            self.steps += 1
            while self.under_way and self.under_way[0][0] <= self.steps:
                _due, function, future = self.under_way.popleft()
                done = at_once(function)
                error = done.exception()
                if error is None:
                    future.set_result(done.result())
                else:
                    future.set_exception(error)
            self.runner.step()

    def catch_up(self, limit: int = 400) -> None:
        """Step until everything upstream is in every table."""
        board = self.runner.board
        board.reached = None  # what it knows is from before the last writes
        for status in board.sources.values():
            status.goal = None
        for _ in range(limit):
            if self.runner.ended("caught-up") is not None:
                return
            self.step()
        raise AssertionError(f"not caught up after {limit} steps: {self.runner.board.sources}")

    def abandon(self) -> None:
        """Drop the driver as a crash does: nothing is finished, only file handles are closed."""
        self.world.crash_at = None
        self.runner.close()
