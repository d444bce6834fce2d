"""How fast a past is read: rows a second into one late table, and the source bytes of ten that come together.

The past is a folder of JSON lines in epochs of 8 MiB. A plain run reads it into the first table of a flow; then the
flow is run again with late outputs, which get the same epochs and the same rows. Each time is that of a whole run,
from opening the store to the end. The two take turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import tidegauge as tg
from benchmarks.data import COLUMNS, write_files
from benchmarks.figures import Figure, Goal
from benchmarks.flows import Recording
from benchmarks.room import Room
from tidegauge.engine.local import LocalEngine
from tidegauge.engine.spark.engine import SparkEngine
from tidegauge.job.plan import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["EPOCH", "flow_with", "measure"]

EPOCH: Final = 8 << 20
"""The bytes of an epoch of the past."""
_MANY: Final = 10


def flow_with(landing: Path, target: Path, *, late: int, tick: float = 0.5, sink: type = tg.DeltaSink) -> tg.Dataflow:
    """Return a flow with one output that was there from the start, and so many that come late; all hold all rows."""
    made = tg.Dataflow("bench", store=f"sqlite:///{target}/store.db", tick=tick)
    source = tg.FileSource(f"{landing}/*.jsonl", format=tg.Json(COLUMNS), max_bytes_per_epoch=EPOCH)
    orders = made.source("orders", source)
    for name in ("first", *(f"late-{number}" for number in range(late))):
        made.sink(name, orders, sink(str(target / name)))
    return made


def _run(made: tg.Dataflow, engine: Engine) -> tuple[float, int, list[int]]:
    """Run a flow until it has caught up; return the seconds, the source bytes, and the rows of each table."""
    recording = Recording(engine)
    begun = time.perf_counter()
    made.run("caught-up", engine=recording)
    taken = time.perf_counter() - begun
    return taken, recording.bytes_read, [output.rows for output in tg.outputs(made)]


def _turn(room: Room, engine: Engine, landing: Path, *, late: int) -> dict[str, tuple[float, int]]:
    """Run the flow with its first output, and again with late ones; return the seconds and bytes of both."""
    target = room.fresh("late")
    target.mkdir()
    plain, plain_bytes, [rows] = _run(flow_with(landing, target, late=0), engine)
    filled, filled_bytes, tables = _run(flow_with(landing, target, late=late), engine)
    if tables != [rows] * (1 + late):
        raise RuntimeError(f"the tables have {tables} rows, the first one had {rows}")
    room.clear(target)
    return {"plain": (plain, plain_bytes), "late": (filled, filled_bytes)}


def measure(room: Room, session: SparkSession) -> list[Figure]:
    """Measure one late output on both engines, and ten on the local one."""
    landing, few = room.fresh("landing"), room.fresh("few")
    rows = write_files(landing, files=8, total=room.size(256 << 20, 16 << 20))
    write_files(few, files=8, total=room.size(64 << 20, 16 << 20))
    engines: dict[str, Callable[[], Engine]] = {
        "Spark": lambda: SparkEngine(session),
        "the local engine": LocalEngine,
    }
    figures = []
    for name, make in engines.items():
        engine = make()
        _turn(room, engine, few, late=1)  # the first of a session pays for code that is compiled once
        turns = [_turn(room, engine, landing, late=1) for _turn_number in range(room.size(5, 1))]
        room.say(f"{name}, one late output")
        figures.append(
            Figure(
                f"the past of a late output, {name}",
                "rows/s",
                ours=tuple(rows / turn["late"][0] for turn in turns),
                peer=tuple(rows / turn["plain"][0] for turn in turns),
                peer_name="a plain run",
                goal=Goal("ratio", ">=", 0.8),
                note=f"{rows:,} rows",
                details={"turns": turns},
            )
        )
        engine.close()
    engine = LocalEngine()
    one, many = (_turn(room, engine, few, late=late)["late"] for late in (1, _MANY))
    engine.close()
    figures.append(
        Figure(
            f"source bytes of {_MANY} late outputs together",
            "MB",
            ours=(many[1] / 1e6,),
            peer=(one[1] / 1e6,),
            peer_name="of one",
            goal=Goal("ratio", "<=", 1.5),
            note=f"{many[0]:.2f} s beside {one[0]:.2f} s",
        )
    )
    return figures
