"""An output that is added to a flow with a long history: the time until the first of its epochs are staged.

The history is that of `benchmarks.resume`: files with one line an epoch, and a timeline that says so. The flow is
opened with one more output, on the local engine; the time is from the construction of the runner, which opens the
store and the tables and makes the plan, to the instant at which the first job of the late output begins. The peer is
the same with a short history.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final

import tidegauge as tg
from benchmarks import resume
from benchmarks.figures import Figure, Goal
from benchmarks.room import Room
from tidegauge.engine.local import LocalEngine
from tidegauge.env import Env
from tidegauge.flow.runner import Runner
from tidegauge.flow.running import threads

__all__ = ["first_unit", "measure"]

_SHORT: Final = 100


def first_unit(folder: Path) -> dict[str, float]:
    """Add an output to a flow and forget it again; return the seconds to points on the way, by their names."""
    made = resume.flow(folder, late=("late",))
    seen: dict[str, float] = {}
    begun = time.perf_counter()

    def point(name: str) -> None:
        seen.setdefault(name, time.perf_counter() - begun)

    engine, pool = LocalEngine(), threads(made.spec)
    runner = Runner(made.spec, engine, env=Env(point=point), spawn=pool.submit)
    seen["ready"] = time.perf_counter() - begun
    while "after record unit" not in seen:
        runner.step(park=0.05)
    runner.close()
    pool.shutdown()
    engine.close()
    tg.drop(made, "late")
    shutil.rmtree(folder / "late", ignore_errors=True)
    return seen


def measure(room: Room) -> list[Figure]:
    """Measure with a short history and with a long one, in turns."""
    long = room.size(1_000_000, 20_000)
    for epochs in (_SHORT, long):
        room.say(f"a history of {epochs:,} epochs")
        resume.history(room.folder / f"{epochs}", epochs)
    first_unit(room.folder / f"{_SHORT}")  # imports what is imported late
    samples: dict[int, list[dict[str, float]]] = {_SHORT: [], long: []}
    for _turn in range(room.size(3, 1)):
        for epochs, found in samples.items():
            found.append(first_unit(room.folder / f"{epochs}"))
    for epochs in samples:
        room.clear(room.folder / f"{epochs}")

    def until(epochs: int, point: str) -> tuple[float, ...]:
        return tuple(sample[point] for sample in samples[epochs])

    return [
        Figure(
            f"until the first unit of a late output {verb}, {long:,} epochs in the store",
            "s",
            ours=until(long, point),
            peer=until(_SHORT, point),
            peer_name=f"{_SHORT} epochs",
            goal=Goal("ours", "<=", 2.0) if point == "before stage" else None,
            details={"points_s": samples[long]},
        )
        for verb, point in (("begins", "before stage"), ("is durable", "after record unit"))
    ]
