"""Peak memory of the tasks while a backlog of messages of 1 kB is read, and one ten times as large.

Each case is a process of its own, as in `benchmarks.memory`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.flows import Recording
from benchmarks.kafka.topics import LONG, fill, long_texts
from benchmarks.processes import peaks
from benchmarks.room import Room, spark_session
from tidegauge.engine.spark.engine import SparkEngine
from tidegauge.testing import Endpoint

__all__ = ["case", "measure"]

_MOST: Final = 300e6 / 2**20


def case(servers: str, topic: str, target: str) -> dict[str, Any]:
    """Run a flow to its end in this process and return its peaks in bytes, and what it did."""
    folder = Path(target)
    folder.mkdir()
    flow = tg.Dataflow("long", store=f"sqlite:///{folder}/store.db")
    source = tg.KafkaSource(servers, topic=topic, format=tg.Json(LONG))
    flow.sink("long", flow.source("long", source), tg.DeltaSink(str(folder / "long")))
    with spark_session() as session:
        engine = Recording(SparkEngine(session))
        with peaks() as found:
            outcome = flow.run("caught-up", engine=engine)
        engine.close()
    return {"one": dict(found.one), "epochs": outcome.published, "rows": engine.rows("long")}


def _apart(broker: Endpoint, topic: str, target: Path) -> dict[str, Any]:
    code = "import json, sys; from benchmarks.kafka.memory import case; print(json.dumps(case(*sys.argv[1:])))"
    done = subprocess.run(
        [sys.executable, "-c", code, broker.servers, topic, str(target)],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(room: Room, broker: Endpoint) -> list[Figure]:
    """Measure both backlogs."""
    found: list[dict[str, Any]] = []
    sizes = [room.size(300_000, 40_000) * times for times in (1, 10)]
    for name, size in zip(("once", "ten"), sizes, strict=True):
        topic = broker.create_topic(f"long-{name}", partitions=4)
        fill(broker.servers, topic, long_texts(size), partitions=4)
        room.say(f"{size:,} messages of 1 kB are there")
        target = room.fresh(name)
        found.append(_apart(broker, topic, target))
        if found[-1]["rows"] != size:
            raise RuntimeError(f"{found[-1]['rows']} rows of {size} messages")
        room.clear(target)
    peak = [one["one"].get("worker", 0) / 2**20 for one in found]
    return [
        Figure(
            "peak memory of the largest Python worker", "MiB", (peak[1],), (peak[0],), f"over {sizes[0]:,} messages",
            Goal("ours", "<=", _MOST), f"over {sizes[1]:,} of 1 kB", {"peaks": found},
        ),
        Figure(
            "the same, and the smaller backlog", "MiB", (peak[1],), (peak[0],), "", Goal("ratio", "<=", 1.1),
        ),
    ]  # fmt: skip
