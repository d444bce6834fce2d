"""What live epochs notice of a past that is read beside them, and what a first query notices of a second one.

A past is in both tables' source, and files of ten lines land one after the other, each when the last one is visible.
Their times are taken alone, and again while another table is filled: on our side the driver is started again with a
late output; on theirs a second query over the same folder begins with the first file. What counts is the time until
the other table holds all rows, from the command on, and the times of the live ones meanwhile. The first of those on
our side waits for the restart, and does not count. Those alone are of a folder with fewer files, and of a driver that
is warmer; so the goal for what a past costs live epochs is `large`'s, which takes both in turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tidegauge as tg
from benchmarks.data import land, lines, write_files
from benchmarks.epoch import ROWS
from benchmarks.figures import Figure
from benchmarks.flows import TICK, Driver
from benchmarks.late.reading import flow_with
from benchmarks.room import Room
from benchmarks.streaming import Queries, stream
from tidegauge.engine.spark.engine import SparkEngine
from tidegauge.job.plan import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Beside", "in_turns", "measure", "ours"]

_SETTLE: Final = 3
"""Epochs after a turn's begin that do not count: a late job that was under way ends meanwhile."""


@dataclass(slots=True)
class Beside:
    """Milliseconds of live epochs alone and beside the other table, and the seconds until that is whole."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    whole: float = 0.0

    @staticmethod
    def p99(samples: list[float]) -> float:
        """Return what one time in a hundred is above."""
        return statistics.quantiles(samples, n=100, method="inclusive")[98]


def _past(room: Room, total: int) -> tuple[Path, Callable[[int], None]]:
    """Return a folder with a past in it, and what brings the next few rows."""
    folder = room.fresh("landing")
    rows = write_files(folder, files=8, total=total)
    return folder, lambda number: land(folder, f"z{number:06d}.jsonl", lines(rows + number * ROWS, ROWS))


def _timed(once: Callable[[], None], going: Callable[[int], bool]) -> list[float]:
    """Bring rows and wait for them, as long as it goes on; return the milliseconds of each time."""
    taken: list[float] = []
    while going(len(taken)):
        begun = time.perf_counter()
        once()
        taken.append((time.perf_counter() - begun) * 1000)
    return taken


def _live_epoch(driver: Driver, bring: Callable[[int], None], number: int) -> None:
    """Bring rows, and wait until they are published."""
    upper = driver.published + 1
    bring(number)
    driver.wait_published(upper)


def ours(
    room: Room, engine: Engine, made: Callable[..., tg.Dataflow], bring: Callable[[int], None], *, count: int
) -> Beside:
    """Add a late output to a flow that has read the past.

    made: makes the flow for a folder of tables, with `late` outputs besides and a `tick`. bring: brings a few rows.
    """
    target, numbers = room.fresh("ours"), iter(range(1 << 30))
    target.mkdir()
    found = Beside()
    made(target, late=0).run("caught-up", engine=engine)

    def once() -> None:
        _live_epoch(driver, bring, next(numbers))

    driver = Driver(made(target, late=0, tick=TICK), engine)
    _timed(once, lambda n: n < 5)
    found.alone = _timed(once, lambda n: n < count)
    begun = time.perf_counter()
    driver.stop()
    driver = Driver(made(target, late=1, tick=TICK), engine)
    once()  # this one waits for the restart

    def filling(count: int) -> bool:
        if not found.whole and driver.state("late-0") == "live":
            found.whole = time.perf_counter() - begun
        return not found.whole or count < 2

    found.beside = _timed(once, filling)
    driver.stop()
    room.clear(target)
    return found


def in_turns(
    room: Room, engine: Engine, made: Callable[..., tg.Dataflow], bring: Callable[[int], None], *, block: int
) -> Beside:
    """Add a late output to a flow that has read the past, and pause it for every other `block` of live epochs.

    So both are of one driver, equally warm, over equally many files: a folder with a thousand files more takes longer
    to look at, whoever else reads them. made, bring: as `ours` has them. `whole` counts the turns with it.
    """
    target, numbers = room.fresh("turns"), iter(range(1 << 30))
    target.mkdir()
    found = Beside()
    made(target, late=0).run("caught-up", engine=engine)
    flow = made(target, late=1, tick=TICK)
    driver = Driver(flow, engine)

    def once() -> None:
        _live_epoch(driver, bring, next(numbers))

    once()
    while driver.state("late-0") != "live":
        tg.pause(flow, "late-0")
        _timed(once, lambda n: n < _SETTLE or driver.state("late-0") not in ("paused", "live"))
        if driver.state("late-0") == "live":
            break
        found.alone += _timed(once, lambda n: n < block)
        begun = time.perf_counter()
        tg.unpause(flow, "late-0")
        _timed(once, lambda n: n < _SETTLE or driver.state("late-0") == "paused")
        found.beside += _timed(once, lambda n: n < block and driver.state("late-0") != "live")
        found.whole += time.perf_counter() - begun
    driver.stop()
    room.clear(target)
    return found


def theirs(room: Room, session: SparkSession, landing: Path, bring: Callable[[int], None], *, count: int) -> Beside:
    """Start a second query over the folder that a first one has read."""
    target, numbers = room.fresh("theirs"), iter(range(1 << 30))
    found, batches = Beside(), iter(range(1 << 30))

    def start(name: str) -> Queries:
        return Queries.over(lambda: stream(session, landing), target / name, outputs=1, once=False)

    first = start("first")

    def once() -> None:
        bring(next(numbers))
        first.wait_committed(next(batches), patience=300.0)

    first.wait_committed(next(batches), patience=300.0)
    _timed(once, lambda n: n < 5)
    found.alone = _timed(once, lambda n: n < count)
    begun = time.perf_counter()
    second = start("second")
    entry = second.tables[0] / "_spark_metadata" / "0"

    def filling(count: int) -> bool:
        if not found.whole and entry.exists():
            found.whole = time.perf_counter() - begun
        return not found.whole or count < 2

    found.beside = _timed(once, filling)
    for queries in (first, second):
        queries.stop()
    room.clear(target)
    return found


def measure(room: Room, session: SparkSession) -> list[Figure]:
    """Measure both sides in turns."""
    total, count = room.size(512 << 20, 16 << 20), room.size(100, 5)
    mine: list[Beside] = []
    other: list[Beside] = []
    engine = SparkEngine(session)
    for turn in range(-1, room.size(3, 1)):  # the first of a session pays for code that is compiled once
        size, some = (total, count) if turn >= 0 else (16 << 20, 5)
        landing, bring = _past(room, size)
        found = ours(room, engine, partial(flow_with, landing), bring, count=some)
        room.clear(landing)
        landing, bring = _past(room, size)
        peer = theirs(room, session, landing, bring, count=some)
        room.clear(landing)
        room.say(f"turn {turn + 1}")
        if turn >= 0:
            mine.append(found)
            other.append(peer)
    details = {"alone": [one.alone for one in mine], "beside": [one.beside for one in mine]}
    theirs_details = {"alone": [one.alone for one in other], "beside": [one.beside for one in other]}
    return [
        Figure(
            "p99 of live epochs while a past is read, on Spark",
            "ms",
            ours=tuple(one.p99(one.beside) for one in mine),
            peer=tuple(one.p99(one.alone) for one in mine),
            peer_name="alone",
            note=f"{total >> 20} MiB, {len(mine[0].beside)} epochs beside {count}",
            details=details,
        ),
        Figure(
            "median of live epochs meanwhile",
            "ms",
            ours=tuple(statistics.median(one.beside) for one in mine),
            peer=tuple(statistics.median(one.alone) for one in mine),
            peer_name="alone",
        ),
        Figure(
            "until the other table is whole",
            "s",
            ours=tuple(one.whole for one in mine),
            peer=tuple(one.whole for one in other),
            peer_name="a second query",
        ),
        Figure(
            "the slowest live epoch meanwhile",
            "ms",
            ours=tuple(max(one.beside) for one in mine),
            peer=tuple(max(one.beside) for one in other),
            peer_name="the first query's slowest batch",
            details=theirs_details,
        ),
        Figure(
            "median of the first query's batches meanwhile",
            "ms",
            ours=tuple(statistics.median(one.beside) for one in other),
            peer=tuple(statistics.median(one.alone) for one in other),
            peer_name="alone",
        ),
    ]
