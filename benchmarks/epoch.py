"""The fixed cost of an epoch: one file of ten lines lands; how long until every table holds it?

The next file lands when the last one is in every table, so what either side does after that moment (Structured
Streaming writes its commit log, Tidegauge acknowledges) counts towards the next epoch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from benchmarks.data import land, lines
from benchmarks.figures import Figure, Goal
from benchmarks.flows import TICK, Driver, flow_of, orders_in
from benchmarks.room import Room, spark_session
from benchmarks.streaming import Queries, stream
from tidegauge.dsl.dataflow import Dataflow
from tidegauge.engine.spark.engine import SparkEngine
from tidegauge.env import Env

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PHASES", "ROWS", "Phases", "measure", "our_epochs", "their_batches"]

ROWS: Final = 10
_GOALS: Final = {1: Goal("ratio", "<=", 0.7), 3: Goal("ratio", "<=", 1 / 3)}
PHASES: Final = ("probe", "bind", "plan", "job", "commit", "publish")


class Phases:
    """Where the time of an epoch goes, from the named points around its durable effects."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.samples: dict[str, list[float]] = {name: [] for name in PHASES}

    def point(self, name: str) -> None:
        self.at[name] = time.perf_counter()
        if name == "before commit output":
            self.at.setdefault("before first commit", self.at[name])

    def epoch(self, landed: float) -> None:
        """Take in the points of one epoch."""
        at, self.at = self.at, {}
        ends = {
            "probe": at["before append bindings"],
            "bind": at["after append bindings"],
            "plan": at["before stage"],
            "job": at["after stage"],
            "commit": at["after commit output"],
            "publish": at["after publish"],
        }
        for name, end in ends.items():
            self.samples[name].append((end - landed) * 1000)
            landed = end

    def medians(self) -> dict[str, float]:
        return {name: round(statistics.median(samples), 2) for name, samples in self.samples.items()}


def our_epochs(
    room: Room, session: SparkSession, made: Dataflow, bring: Callable[[int], object], *, seen: Phases
) -> list[float]:
    """Return the milliseconds that epochs take of which `bring` brings the rows, see `_taken`."""
    engine = SparkEngine(session)
    driver = Driver(made, engine, env=Env(point=seen.point))
    try:
        return _taken(room, bring, lambda number: driver.wait_published(number + 1), seen=seen)
    finally:
        driver.stop()
        engine.close()


def their_batches(
    room: Room, read: Callable[[], DataFrame], bring: Callable[[int], object], *, outputs: int
) -> list[float]:
    """Return the milliseconds that micro-batches take."""
    queries = Queries.over(read, room.fresh("theirs"), outputs=outputs, once=False)
    try:
        return _taken(room, bring, queries.wait_committed, seen=None)
    finally:
        queries.stop()


def _taken(
    room: Room, bring: Callable[[int], object], wait: Callable[[int], None], *, seen: Phases | None
) -> list[float]:
    """Bring the rows of one epoch after another and wait for them; return the milliseconds of all but the first."""
    warm, count = room.size(5, 3), room.size(15, 5)
    taken = []
    for number in range(warm + count):
        if seen is not None:
            seen.at = {}
        begun = time.perf_counter()
        bring(number)
        wait(number)
        if number >= warm:
            taken.append((time.perf_counter() - begun) * 1000)
            if seen is not None:
                seen.epoch(begun)
    return taken


def _landing(room: Room) -> tuple[Path, Callable[[int], None]]:
    """Make a folder; return it and what brings the rows of an epoch into it."""
    folder = room.fresh("landing")
    folder.mkdir()
    return folder, lambda number: land(folder, f"{number:06d}.jsonl", lines(number * ROWS, ROWS))


def _ours(
    room: Room, session: SparkSession, *, outputs: int, sink: Literal["delta", "parquet"], seen: Phases
) -> list[float]:
    (source, bring), target = _landing(room), room.fresh("ours")
    target.mkdir()
    made = flow_of(orders_in(source), target, outputs=outputs, sink=sink, tick=TICK)
    return our_epochs(room, session, made, bring, seen=seen)


def _theirs(room: Room, session: SparkSession, *, outputs: int) -> list[float]:
    source, bring = _landing(room)
    return their_batches(room, lambda: stream(session, source), bring, outputs=outputs)


def measure(room: Room) -> list[Figure]:
    """Measure epochs of one and of three outputs, in Delta and in Parquet, beside micro-batches."""
    kinds: tuple[Literal["delta", "parquet"], ...] = ("delta", "parquet")
    cases = [(outputs, kind) for outputs in (1, 3) for kind in kinds]
    ours: dict[tuple[int, str], list[list[float]]] = {case: [] for case in cases}
    theirs: dict[int, list[list[float]]] = {1: [], 3: []}
    seen = {case: Phases() for case in cases}
    with spark_session() as session:
        for outputs in (1, 3):  # the first of each in a session pays for code that is compiled once
            _ours(room, session, outputs=outputs, sink="delta", seen=Phases())
            _theirs(room, session, outputs=outputs)
        for repetition in range(room.size(3, 1)):
            for outputs in (1, 3):
                for case in cases:
                    if case[0] == outputs:
                        ours[case].append(_ours(room, session, outputs=outputs, sink=case[1], seen=seen[case]))
                theirs[outputs].append(_theirs(room, session, outputs=outputs))
                room.say(f"repetition {repetition + 1}, {outputs} outputs")
    figures = [
        Figure(
            f"an epoch of {ROWS} rows, {outputs} output{'s' * (outputs > 1)}, {sink}",
            "ms",
            ours=tuple(statistics.median(sample) for sample in ours[outputs, sink]),
            peer=tuple(statistics.median(sample) for sample in theirs[outputs]),
            peer_name="Structured Streaming",
            goal=_GOALS[outputs],
            details={
                "phases_ms": seen[outputs, sink].medians(),
                "epochs_ms": ours[outputs, sink],
                "peer_epochs_ms": theirs[outputs],
            },
        )
        for outputs, sink in cases
    ]
    for phase in PHASES:
        one, three = (seen[outputs, "delta"].medians()[phase] for outputs in (1, 3))
        figures.append(
            Figure(f"of which {phase}, 3 outputs, delta", "ms", ours=(three,), peer=(one,), peer_name="1 output")
        )
    return figures
