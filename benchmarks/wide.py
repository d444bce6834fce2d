"""A flow of many sources and outputs: opening it, a tick in which nothing is new, an epoch, and `status`.

The figures are seconds of the process's own time, in one thread, so that other programs count less; what it took by
the clock is noted beside each. An epoch of many outputs, of one source or of a source each, stands beside an epoch of
one, a tick of all the sources beside a tick of a tenth of them, and sources that look at one folder beside as many
with as many files that have a folder each. Ticks are on demand alone, so that what is
measured is one look at the sources. The first look after an epoch is left out: it looks at each source in full.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.room import Room
from tidegauge.env import at_once
from tidegauge.flow.runner import Runner

__all__ = ["measure"]


class _Wide:
    """A flow of so many sources, with so many outputs that are dealt out to them.

    files: how many each source has to begin with. together: whether the sources look at one folder.
    """

    def __init__(self, folder: Path, *, sources: int, outputs: int, files: int = 1, together: bool = False) -> None:
        self.folder, self.count, self.outputs, self.files = folder, sources, outputs, 0
        self.between = "-" if together else "/"
        for n in range(1 if together else sources):
            (folder / "in" / ("" if together else str(n))).mkdir(parents=True)
        for _ in range(files):
            self.land(sources)

    def land(self, sources: int) -> None:
        """Put a line into each of the first sources."""
        self.files += 1
        for n in range(sources):
            Path(f"{self.folder}/in/{n}{self.between}{self.files}.jsonl").write_text('{"n": 1}\n')

    def flow(self) -> tg.Dataflow:
        made = tg.Dataflow("wide", store=f"sqlite:///{self.folder}/flow.db", tick=tg.Manual())
        streams = [
            made.source(
                f"s{n}", tg.FileSource(f"{self.folder}/in/{n}{self.between}*.jsonl", format=tg.Json("n long"))
            )
            for n in range(self.count)
        ]
        for n in range(self.outputs):
            made.sink(f"o{n}", streams[n % self.count], tg.ParquetSink(f"{self.folder}/lake/{n}"))
        return made

    def open(self) -> Runner:
        return Runner(self.flow().spec, tg.LocalEngine(threads=0), env=tg.Env(), spawn=at_once, batch=False)


@dataclass(frozen=True, slots=True)
class _Taken:
    """What some work took, in seconds: of the process's own time, and by the clock."""

    own: float
    clock: float


def _taken(work: Callable[[], object]) -> _Taken:
    own, clock = time.process_time(), time.perf_counter()
    work()
    return _Taken(time.process_time() - own, time.perf_counter() - clock)


def _until(runner: Runner, published: int) -> None:
    while runner.board.published < published:
        runner.step()


def _tick(runner: Runner) -> None:
    """Let all sources be asked once, and answer."""
    future = runner.requests.ask()
    while not future.done():
        runner.step()


def _epoch(runner: Runner, upper: int) -> None:
    """Bind what has landed, and bring it into the tables."""
    _tick(runner)
    _until(runner, upper)


def _measured(room: Room, name: str, *, sources: int, outputs: int) -> dict[str, tuple[_Taken, ...]]:
    room.say(f"{sources:,} sources, {outputs} outputs")
    wide = _Wide(room.folder / name, sources=sources, outputs=outputs)
    first = wide.open()
    _tick(first)
    _until(first, 1)
    first.close()
    held: list[Runner] = []
    opening = _taken(lambda: held.append(wide.open()))
    [runner] = held
    _tick(runner)
    idle = tuple(_taken(lambda: _tick(runner)) for _ in range(room.size(9, 3)))
    epochs = []
    for published in range(2, 2 + room.size(7, 3)):
        wide.land(min(sources, outputs))
        epochs.append(_taken(partial(_epoch, runner, published)))
    runner.close()
    status = tuple(_taken(lambda: tg.status(wide.flow())) for _ in range(3))
    return {"open": (opening,), "idle": idle, "epoch": tuple(epochs[1:]), "status": status}


def _idle(room: Room, name: str, *, sources: int, files: int, together: bool) -> tuple[_Taken, ...]:
    """Measure ticks of sources that have nothing new."""
    room.say(f"{sources:,} sources of {files} files, {'in one folder' if together else 'in a folder each'}")
    wide = _Wide(room.folder / name, sources=sources, outputs=1, files=files, together=together)
    runner = wide.open()
    _epoch(runner, 1)
    _tick(runner)
    idle = tuple(_taken(lambda: _tick(runner)) for _ in range(room.size(15, 3)))
    runner.close()
    return idle


def measure(room: Room) -> list[Figure]:
    """Measure a flow of many sources, one of many outputs, and for comparison small ones."""
    many, few = room.size(1_000, 50), room.size(50, 5)
    sources = _measured(room, "sources", sources=many, outputs=1)
    tenth = _measured(room, "tenth", sources=many // 10, outputs=1)
    outputs = _measured(room, "outputs", sources=few, outputs=few)
    shared = _measured(room, "shared", sources=1, outputs=few)
    one = _measured(room, "one", sources=1, outputs=1)
    landing, files = room.size(100, 10), 10
    together = _idle(room, "together", sources=landing, files=files, together=True)
    apart = _idle(room, "apart", sources=landing, files=files, together=False)

    def figure(what: str, ours: tuple[_Taken, ...], peer: tuple[_Taken, ...], peer_name: str, goal: float) -> Figure:
        clock = median(taken.clock for taken in ours)
        return Figure(
            what,
            "s",
            ours=tuple(taken.own for taken in ours),
            peer=tuple(taken.own for taken in peer),
            peer_name=peer_name,
            goal=Goal("ours", "<=", goal),
            note=f"{clock:.3f} s by the clock",
        )

    small = f"{many // 10:,} sources"
    return [
        figure(f"opening {many:,} sources", sources["open"], tenth["open"], small, 3.0),
        figure(f"an idle tick of {many:,} sources", sources["idle"], tenth["idle"], small, 0.05),
        figure(
            f"an idle tick of {landing} sources on one folder of {landing * files:,} files",
            together,
            apart,
            f"a folder each, {files} files in it",
            0.02,
        ),
        figure(f"an epoch of {few} outputs of one source", shared["epoch"], one["epoch"], "one output", 0.25),
        figure(f"an epoch of {few} outputs of a source each", outputs["epoch"], one["epoch"], "one output", 0.25),
        figure(f"status of {few} outputs", outputs["status"], one["status"], "one output", 0.3),
    ]
