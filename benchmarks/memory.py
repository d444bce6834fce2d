"""Peak memory while a backlog is read, for a size and for four times that size: it must not grow with the backlog.

Each case runs in a process of its own, because the kernel keeps the peak of a process for its life. A Java heap grows
to what it is allowed before it collects, so the JVM's peak is shown for itself and has no goal.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.data import write_files
from benchmarks.figures import Figure, Goal
from benchmarks.flows import Recording, flow_of, orders_in
from benchmarks.processes import peaks
from benchmarks.room import Room, spark_session
from tidegauge.engine.local import LocalEngine
from tidegauge.engine.spark.engine import SparkEngine
from tidegauge.job.plan import Engine

__all__ = ["case", "measure"]

_NOISE: Final = 1.1
"""Peaks that differ by less than a tenth are the same."""


def case(engine_name: str, source: str, target: str) -> dict[str, Any]:
    """Run a flow to its end in this process and return its peaks in bytes, and what it did."""
    folder = Path(target)
    folder.mkdir()
    with ExitStack() as resources:
        if engine_name == "local":
            engine: Engine = LocalEngine()
        else:
            engine = SparkEngine(resources.enter_context(spark_session()))
        resources.callback(engine.close)
        recording = Recording(engine)
        made = flow_of(orders_in(Path(source)), folder, outputs=1 if engine_name == "local" else 3)
        with peaks() as found:
            outcome = made.run("caught-up", engine=recording)
        return {
            "one": dict(found.one),
            "together": dict(found.together),
            "epochs": outcome.published,
            "jobs": len(recording.results),
            "bytes_read": recording.bytes_read,
        }


def _apart(engine: str, source: Path, target: Path) -> dict[str, Any]:
    """Run a case in a process of its own."""
    code = "import json, sys; from benchmarks.memory import case; print(json.dumps(case(*sys.argv[1:])))"
    done = subprocess.run(
        [sys.executable, "-c", code, engine, str(source), str(target)],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(room: Room) -> list[Figure]:
    """Measure both engines over a backlog and over four times as much; the local engine, which has no SQL, for one
    output, the Spark engine for three."""
    total = room.size(1 << 30, 16 << 20)
    once, four = room.fresh("once"), room.fresh("four-times")
    room.say(f"writing {total >> 20} MiB of JSON lines, and four times as much")
    write_files(once, files=8, total=total)
    four.mkdir()
    for copy in range(4):
        for file in sorted(once.iterdir()):
            shutil.copyfile(file, four / f"{file.stem}-{copy}.jsonl")
    found: dict[str, list[dict[str, Any]]] = {}
    for engine in ("local", "spark"):
        for source in (once, four):
            target = room.fresh(engine)
            found.setdefault(engine, []).append(_apart(engine, source, target))
            room.clear(target)
            room.say(f"{engine} engine over {source.name}")
    kinds = [("local", "driver"), ("spark", "driver"), ("spark", "worker"), ("spark", "jvm")]
    title = {"driver": "driver (Python)", "worker": "largest Python worker", "jvm": "JVM"}
    return [
        Figure(
            f"peak memory of the {title[kind]}, {engine} engine",
            "MiB",
            ours=(found[engine][1]["one"].get(kind, 0) / 2**20,),
            peer=(found[engine][0]["one"].get(kind, 0) / 2**20,),
            peer_name=f"over {total >> 20} MiB",
            goal=None if kind == "jvm" else Goal("ratio", "<=", _NOISE),
            note=f"over {4 * total >> 20} MiB",
            details={"once": found[engine][0], "four times": found[engine][1]},
        )
        for engine, kind in kinds
    ]
