"""What is to be the same on Sail, all of it run there by one process: `python -m tests.engine.sail.sailing FOLDER`.

A process holds either a classic session or one of Spark Connect, so Sail is driven beside the tests, which look at
what came of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.engine import whole_flow
from tests.engine.clusters import ROOT
from tests.engine.sail import listed

import tidegauge as tg
from tidegauge.errors.base import TidegaugeError


@dataclass(frozen=True)
class Found:
    """What came of it: of the flows by output; of the functions and of the frames on the list, values by expression.

    calls: how many rows a function before three outputs was given. refused: what is said of each step that Sail is
    not given, or that raises. as_spark: likewise, of Sail as a server for the Spark engine. beside: whether
    an engine goes on when another one is closed. left: what is there after all of them were.
    """

    rows: whole_flow.Rows
    values: dict[str, list[Any]]
    frames: dict[str, list[str]]
    calls: int
    refused: dict[str, str]
    as_spark: str
    beside: bool
    left: list[str]


def drive(folder: Path) -> Found:
    """Run everything on Sail, from a process of its own."""
    command = [sys.executable, "-m", "tests.engine.sail.sailing", str(folder)]
    environ = {**os.environ, "TMPDIR": str(folder / "temporary")}
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        environ.pop(name, None)
    (folder / "temporary").mkdir()
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"it failed on Sail:\n{done.stderr[-4000:]}")
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def main(folder: Path) -> None:
    """Print what is found, as JSON."""
    (folder / "whole").mkdir()
    whole_flow.fill(folder / "whole")
    engine = tg.SailEngine()
    rows: whole_flow.Rows = {}
    for flow in (whole_flow.arrow_flow, whole_flow.spark_flow, whole_flow.late_flow):
        made = flow(folder / "whole")
        made.run("caught-up", engine=engine)
        rows.update(whole_flow.rows(made))
    values = listed.values_of(engine.session)
    frames = listed.frames_of(engine.session, check=True)
    calls = called(engine, folder)
    as_spark = error_of(lambda orders: orders, folder / "as spark", engine=tg.SparkEngine(engine.session))
    other = tg.SailEngine()
    engine.close()
    beside = listed.frames_of(other.session, check=True) == frames
    other.close()
    refused = {name: error_of(step, folder / name) for name, step in STEPS.items()}
    left = [name for name in os.environ if name.startswith("SPARK_CONNECT")] + os.listdir(folder / "temporary")
    print(json.dumps(asdict(Found(rows, values, frames, calls, refused, as_spark, beside, left)), default=str))


def called(engine: tg.SailEngine, folder: Path) -> int:
    """Return how many rows a function is given that stands before three outputs."""
    seen = folder / "seen"

    def count(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            with seen.open("a") as log:
                log.write(f"{batch.num_rows}\n")
        return batch

    flow = tg.Dataflow("calls", store=f"sqlite:///{folder}/calls.db", tick=0.05)
    source = tg.FileSource(f"{folder}/whole/in/*.jsonl", format=tg.Json(whole_flow.ORDERS), split_bytes=4000)
    orders = flow.source("orders", source).map_batches(count)
    flow.sink("one", orders.select("id", "size(tags) AS n"), tg.ParquetSink(f"{folder}/calls/one"))
    flow.sink("two", orders.transform(whole_flow.days), tg.ParquetSink(f"{folder}/calls/two"))
    flow.sink("three", orders.filter("soundex(user) <> 'x'"), tg.ParquetSink(f"{folder}/calls/three"))
    flow.run("caught-up", engine=engine)
    return sum(map(int, seen.read_text().split()))


def adding(frame: Any) -> Any:
    return frame.withColumn("next", frame.id + 1)


def raising(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows:
        raise ValueError("no such order")
    return batch


STEPS: dict[str, Callable[[tg.RowStream], tg.RowStream]] = {
    "a sum in a frame": lambda orders: orders.transform(adding),
    "a sum of longs": lambda orders: orders.transform(lambda frame: frame.groupBy("_epoch").agg({"id": "sum"})),
    "a cast": lambda orders: orders.select("CAST(size(tags) AS string) AS n"),
    "a sum beside": lambda orders: orders.select("size(tags) + 1 AS n"),
    "a function": lambda orders: orders.filter("rand() > 0.5"),
    "other SQL": lambda orders: orders.select("id & 1 AS odd"),
    "a query": lambda orders: orders.transform(lambda frame: frame.sparkSession.sql("SELECT 1L AS _epoch")),
    "a limit": lambda orders: orders.transform(lambda frame: frame.limit(1)),
    "a function that raises": lambda orders: (
        orders.filter("size(tags) > 0").map_batches(raising).filter("soundex(user) <> 'x'")
    ),
    "python": lambda orders: orders.transform(lambda frame: frame.mapInArrow(lambda it: it, frame.schema)),
}


def error_of(step: Callable[[tg.RowStream], tg.RowStream], folder: Path, *, engine: Any = "sail") -> str:
    """Return the error of a flow with a step, "" if there is none, and whether the flow did anything before it."""
    folder.mkdir()
    (folder / "orders.jsonl").write_text('{"id": 9223372036854775807, "user": "a", "tags": ["x"]}\n')
    flow = tg.Dataflow("refused", store=f"sqlite:///{folder}/flow.db")
    source = tg.FileSource(f"{folder}/*.jsonl", format=tg.Json("id long, user string, tags array<string>"))
    flow.sink("it", step(flow.source("orders", source)), tg.ParquetSink(f"{folder}/it"))
    try:
        flow.run("caught-up", engine=engine)
    except TidegaugeError as error:
        done = " but wrote" if (folder / "it").exists() else ""
        return f"{error.summary}{done}" if error.code == "TG-0691" else f"{error.code}: {error.summary}"
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
