"""A folder of a million files: what its first listing costs, one that finds nothing new or one file, and the memory.

The listings are those of a run, in the thread of the poll, to the binding of all that is new. The files are empty but
for a line, a thousand in each folder. The memory is the peak of the whole process.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.room import Room
from tidegauge.env import Env, at_once
from tidegauge.remap.binding import Bound, Slice

__all__ = ["Run", "measure"]

_NOW = datetime(2026, 11, 20, tzinfo=UTC)
_FOLDER = 1000


def _write(folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(_FOLDER):
        file = os.open(folder / f"{n:04}.jsonl", os.O_CREAT | os.O_WRONLY)
        os.write(file, b'{"n": %d}\n' % (number * _FOLDER + n))
        os.close(file)


class Run:
    """A run of a source, which lists when it is told."""

    def __init__(self, source: tg.ListingSource, bound: Bound) -> None:
        self.source, self.bound, self.clock = source, bound, 0.0
        self.attendant = source.attended(Env(monotonic=lambda: self.clock), beside=at_once)

    def listed(self) -> float:
        """Return the seconds that a listing takes, until all that is new is bound."""
        self.clock += self.source.every
        begun = time.perf_counter()
        while True:
            seen = self.attendant.probe(self.bound, now=_NOW)
            if seen.upper == self.bound.frontier and not seen.more:
                return time.perf_counter() - begun
            self.bound = Bound(
                frontier=seen.upper,
                details={**self.bound.details, **seen.details},
                state=seen.state or self.bound.state,
                schema=self.source.schema,
            )

    def planned(self) -> float:
        """Return the seconds that the plan of the first 10,000 files takes."""
        begun = time.perf_counter()
        self.source.plan([Slice("it", 0, "polls", 0, min(10_000, self.bound.frontier["polls"]))], self.bound)
        return time.perf_counter() - begun


def measure(room: Room) -> list[Figure]:
    """List a million files."""
    folders = room.size(1000, 10)
    place = room.fresh("many")
    for number in range(folders):
        _write(place / f"{number:04}", number)
    room.say(f"{folders * _FOLDER:,} files are written")
    source = tg.ListingSource(
        f"{place}/**/*.jsonl", format=tg.Json("n long"), staging=room.fresh("listings"), settle=0
    )
    run = Run(source, Bound())
    first = run.listed()
    same = [run.listed() for _ in range(3)]
    _write_one(place / f"{folders // 2:04}" / "new.jsonl")
    one = run.listed()
    again = Run(source, run.bound).listed()
    plan = run.planned()
    behind = Run(replace(source, ordered=True), run.bound)
    behind.listed()
    ordered = [behind.listed() for _ in range(3)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    files = f"{folders * _FOLDER:,} files"
    return [
        Figure(f"the first listing of {files}", "s", (first,)),
        Figure("a listing that finds nothing new", "s", tuple(same)),
        Figure("a listing that finds one file", "s", (one,)),
        Figure("the first listing of a new run, with nothing new", "s", (again,)),
        Figure("a listing in order, with nothing behind the last file", "s", tuple(ordered)),
        Figure("the plan of 10,000 files", "s", (plan,)),
        Figure("peak memory of the process", "MiB", (memory,), goal=Goal("ours", "<=", 300.0)),
    ]


def _write_one(path: Path) -> None:
    path.write_bytes(b'{"n": -1}\n')
