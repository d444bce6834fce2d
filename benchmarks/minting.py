"""What a tick costs when one partition of ten thousand has moved, beside a bare commit, and when none has.

Both sides write to the same disk, or to the same server, in turns, and both are durable when they return: SQLite in
WAL with `synchronous=FULL`, PostgreSQL with `fsync`. The bare commit is one row into a table with a key, by the same
driver; a tick writes two rows into tables with two indexes each, and updates a third.

A tick begins with what the operator gets: a probe that the source's reader has checked against what is bound, at its
own time and in its own thread. What that takes is measured by itself.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from typing import Final

from tests.postgres import SETTINGS, Server, binaries

import tidegauge as tg
from benchmarks.core.timing import per, seconds
from benchmarks.figures import Figure, Goal
from benchmarks.room import Room
from tidegauge.env import at_once
from tidegauge.flow.runner import Runner
from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.fromtime.partitioned import PARTITIONS
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.mint import checked_observation, mint
from tidegauge.remap.store import Lease, LeaseHolder, SourceSpec, Store
from tidegauge.remap.timeline import Timeline

__all__ = ["measure"]

_PARTITIONS: Final = 10_000
_TURNS: Final = 7
_TICKS: Final = 40
_ROW: Final = "INSERT INTO bare VALUES (%s, 1, 1, 1)"
_TABLE: Final = "CREATE TABLE bare (epoch BIGINT PRIMARY KEY, source BIGINT, partition BIGINT, position BIGINT)"


@dataclass
class _Ticks:
    """A flow with one source of many partitions. A tick finds that one of them has moved, in turn."""

    store: Store
    lease: Lease
    timeline: Timeline
    at: dict[str, int]
    moving: Iterator[str]
    found: deque[Frontier] = field(default_factory=deque)

    def prepare(self, ticks: int) -> None:
        """Make what the source finds in its next ticks, and check it as its reader does."""
        before = self.timeline.bound("orders").frontier
        for partition in islice(self.moving, ticks):
            self.at[partition] += 1
            upper = Frontier(self.at)
            _check(upper, before)
            self.found.append(upper)
            before = upper

    def __call__(self) -> None:
        frontier = self.found.popleft()
        observed = Observation(at=datetime.now(UTC), upper=frontier, end=frontier)
        proposals = mint({"orders": self.timeline.bound("orders").frontier}, {"orders": observed})
        self.store.append(self.lease, expected=self.timeline.upper, at=observed.at, proposals=proposals)
        self.timeline.append(self.timeline.upper, proposals, at=observed.at)


def _check(upper: Frontier, before: Frontier) -> None:
    observed = Observation(at=datetime.now(UTC), upper=upper, end=upper)
    checked_observation("orders", PARTITIONS, Bound(frontier=before), observed)


def _checking(partitions: int) -> Figure:
    """Measure checking a wide probe: finding the one partition that has moved."""
    at = {f"p{i:05d}": 10**6 + i for i in range(partitions)}
    before = Frontier(at)
    taken = []
    for turn in range(100):
        upper = Frontier({**{partition: n + 0 for partition, n in at.items()}, f"p{turn:05d}": 10**7})
        taken.append(1e6 * seconds(partial(_check, upper, before)))
    return Figure(f"checking a probe with 1 changed partition of {partitions:,}", "us", tuple(taken))


@contextmanager
def _ticking(url: str, partitions: int) -> Iterator[_Ticks]:
    env = tg.Env()
    with closing(Store.open(url, env=env)) as store:
        lease = store.acquire("bench", holder=LeaseHolder.current(env))
        store.register(lease, sources={"orders": SourceSpec({"kind": "bench"})}, outputs={})
        timeline = Timeline({"orders": store.load("bench").sources["orders"].table})
        at = {f"p{i:05d}": 1 for i in range(partitions)}
        ticks = _Ticks(store, lease, timeline, at, cycle(list(at)))
        ticks.prepare(1)
        ticks()
        yield ticks
        if store.load("bench").sources["orders"].table.frontier != Frontier(at):
            raise AssertionError("the store does not hold what was bound")


@contextmanager
def _bare_sqlite(path: Path) -> Iterator[Callable[[], None]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(_TABLE)
        numbers = count()

        def commit() -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_ROW.replace("%s", "?"), (next(numbers),))
            connection.execute("COMMIT")

        yield commit


@contextmanager
def _bare_postgres(url: str) -> Iterator[Callable[[], None]]:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(_TABLE)
        connection.commit()
        numbers = count()

        def commit() -> None:
            connection.execute(_ROW, (next(numbers),))
            connection.commit()

        yield commit


def _minting(ticks: _Ticks, bare: Callable[[], None], where: str, *, most: float) -> Figure:
    """Measure in turns, so that a slow minute of the disk is in both."""
    ours, peer = [], []
    for _ in range(_TURNS):
        ticks.prepare(_TICKS)
        ours += [1e3 * taken for taken in per(ticks, times=_TICKS, turns=1)]
        peer += [1e3 * taken for taken in per(bare, times=_TICKS, turns=1)]
    what = f"minting with 1 changed partition of {len(ticks.at):,}, {where}"
    return Figure(what, "ms", tuple(ours), tuple(peer), "a bare commit", Goal("ratio", "<=", most))


def _on_sqlite(folder: Path) -> list[Figure]:
    folder.mkdir()
    with _ticking(f"sqlite:///{folder}/store.db", _PARTITIONS) as ticks, _bare_sqlite(folder / "bare.db") as bare:
        beside = _minting(ticks, bare, "SQLite", most=2.0)
    return [Figure(beside.what, "ms", beside.ours, goal=Goal("ours", "<=", 5.0)), beside]


def _on_postgres(programs: Path) -> list[Figure]:
    server = Server(programs, settings={**SETTINGS, "fsync": "on", "full_page_writes": "on"})
    try:
        with _ticking(server.place(), _PARTITIONS) as ticks, _bare_postgres(server.place()) as bare:
            return [_minting(ticks, bare, "PostgreSQL", most=3.0)]
    finally:
        server.stop()


@dataclass
class _Clock:
    """Time that goes on when it is told to; how often it was looked at is how often sources were."""

    seconds: float = 0.0
    looks: int = 0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        self.looks += 1
        return datetime(2026, 11, 20, tzinfo=UTC) + timedelta(seconds=self.seconds)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.name.startswith("store.db"))


def _idle(folder: Path, ticks: int) -> Figure:
    """Run a flow whose source stands still, on a clock that is moved by hand, and see what its store grows by."""
    folder.mkdir()
    (folder / "in.jsonl").write_text('{"id": 1}\n')
    flow = tg.Dataflow("bench", store=f"sqlite:///{folder}/store.db", tick=1.0)
    stream = flow.source("orders", tg.FileSource(f"{folder}/in.jsonl", format=tg.Json("id long")))
    flow.sink("orders", stream, tg.ParquetSink(f"{folder}/orders"))
    flow.run(engine="local", until="caught-up")
    clock = _Clock()
    env = tg.Env(now=clock.now, monotonic=clock.monotonic)
    runner = Runner(flow.spec, tg.LocalEngine(threads=0), env=env, spawn=at_once)
    try:
        before, looked = _size(folder), clock.looks
        while clock.looks - looked < ticks:
            clock.seconds += 1.0
            runner.step()
        grown = _size(folder) - before
    finally:
        runner.close()
    return Figure(
        f"growth of the store in {ticks:,} idle ticks", "bytes", (float(grown),), goal=Goal("ours", "<=", 0)
    )


def measure(room: Room) -> list[Figure]:
    """Measure it all; it takes about half a minute."""
    figures: list[Figure] = []
    room.say("minting on SQLite")
    figures += _on_sqlite(room.fresh("sqlite"))
    if (programs := binaries()) is not None:
        room.say("minting on PostgreSQL")
        figures += _on_postgres(programs)
    figures.append(_checking(_PARTITIONS))
    room.say("idle ticks")
    figures.append(_idle(room.fresh("idle"), room.size(10_000, 500)))
    return figures
