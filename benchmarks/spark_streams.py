"""Structured Streaming both ways: a query that reads an output, and a query whose batches become epochs.

Out: a query with the trigger `availableNow` reads a Delta table of ours into a sink that drops the rows, by our
format and by Delta's own, which its JAR brings; in batches of as many epochs. In: a query over JSON lines gives each
batch to `write_batches`, or writes it as Parquet. Rows a second, from the start of a query to its end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tidegauge as tg
from benchmarks.data import COLUMNS, write_files
from benchmarks.figures import Figure
from benchmarks.room import Room, spark_session
from benchmarks.streaming import stream
from tidegauge.dsl.dataflow import Dataflow
from tidegauge.engine.local import LocalEngine
from tidegauge.errors.testing import JarsNotFetched
from tidegauge.testing.jars import DELTA, class_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["measure"]

_DELTAS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_BATCHES: Final = 4
_EPOCHS: Final = 16


def _output(room: Room, landing: Path) -> tuple[Dataflow, str]:
    """Run a flow over the files until all is in its table."""
    target = room.fresh("flow")
    target.mkdir()
    size = sum(file.stat().st_size for file in landing.iterdir())
    made = tg.Dataflow("bench", store=f"sqlite:///{target}/store.db")
    source = tg.FileSource(f"{landing}/*.jsonl", format=tg.Json(COLUMNS), max_bytes_per_epoch=-(-size // _EPOCHS))
    made.sink("orders", made.source("orders", source), tg.DeltaSink(str(target / "orders")))
    made.run("caught-up", engine=LocalEngine())
    return made, str(target / "orders")


def _ours_out(session: SparkSession, made: Dataflow, most: int) -> DataFrame:
    options: dict[str, Any] = {
        "store": made.store,
        "flow": made.name,
        "output": "orders",
        "maxEpochsPerTrigger": most,
    }
    frame: DataFrame = session.readStream.format("tidegauge").options(**options).load()
    return frame


def _theirs_out(session: SparkSession, path: str, files: int) -> DataFrame:
    frame: DataFrame = session.readStream.format("delta").option("maxFilesPerTrigger", files).load(path)
    return frame


def _drained(room: Room, read: Callable[[], DataFrame], rows: int) -> float:
    """Return the rows a second of a query that drops them, counted by Spark."""
    log = room.fresh("log")
    begun = time.perf_counter()
    writer: Any = read().writeStream.format("noop").option("checkpointLocation", str(log))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    taken = time.perf_counter() - begun
    seen = sum(progress["numInputRows"] for progress in query.recentProgress)
    if seen != rows:
        raise RuntimeError(f"{seen} rows of {rows} came")
    room.clear(log)
    return rows / taken


def _filled(room: Room, read: Callable[[], DataFrame], write: Callable[[DataFrame, int], None], rows: int) -> float:
    """Return the rows a second of a query that gives its batches to a function."""
    log = room.fresh("log")
    begun = time.perf_counter()
    writer: Any = read().writeStream.foreachBatch(write).queryName(log.name)
    query = writer.option("checkpointLocation", str(log)).trigger(availableNow=True).start()
    query.awaitTermination()
    taken = time.perf_counter() - begun
    room.clear(log)
    return rows / taken


def _in(room: Room, session: SparkSession, landing: Path, rows: int) -> tuple[float, float]:
    """Take the batches of a query in, by us and as Parquet; both hold all rows then."""
    target = room.fresh("in")
    read = partial(stream, session, landing)
    ours = _filled(room, read, tg.write_batches(str(target / "batches"), query="orders"), rows)

    def parquet(batch: DataFrame, _number: int) -> None:
        batch.write.mode("append").parquet(str(target / "parquet"))

    theirs = _filled(room, read, parquet, rows)
    session.read.parquet(str(target / "parquet")).createOrReplaceTempView("theirs")
    counted = [session.table("theirs").count()]
    flow = tg.Dataflow("taken", store=f"sqlite:///{target}/store.db")
    batches = tg.BatchSource(str(target / "batches"), columns=COLUMNS)
    flow.sink("orders", flow.source("orders", batches), tg.ParquetSink(str(target / "orders")))
    flow.run("caught-up", engine=LocalEngine())
    counted.append(tg.read_arrow(flow, "orders").num_rows)
    if counted != [rows, rows]:
        raise RuntimeError(f"{counted} rows were written, not {rows}")
    room.clear(target)
    return ours, theirs


def measure(room: Room) -> list[Figure]:
    """Measure both ways, in turns, after one that does not count."""
    total, turns = room.size(256 << 20, 2 << 20), room.size(3, 1)
    landing = room.fresh("landing")
    room.say(f"writing {total >> 20} MiB of JSON lines")
    rows = write_files(landing, files=room.size(8, 2), total=total)
    made, path = _output(room, landing)
    jars: tuple[str, ...] = ()
    try:
        jars = tuple(class_path(DELTA).split(os.pathsep))
    except JarsNotFetched as missing:
        room.say(f"without Delta's own stream: {missing.summary}")
    ours, deltas, ins, parquets = [], [], [], []
    with spark_session(jars=jars, settings=_DELTAS if jars else {}) as session:
        tg.register(session)
        most = -(-tg.status(made).published // _BATCHES)
        files = -(-tg.status(made).outputs[0].files // _BATCHES)
        for turn in range(turns + 1):
            room.say(f"turn {turn}")
            ours.append(_drained(room, partial(_ours_out, session, made, most), rows))
            if jars:
                deltas.append(_drained(room, partial(_theirs_out, session, path, files), rows))
            mine, theirs = _in(room, session, landing, rows)
            ins.append(mine)
            parquets.append(theirs)
    what = f"{rows:,} rows"
    return [
        Figure(
            "a query reads an output", "rows/s", tuple(ours[1:]), tuple(deltas[1:]),
            "Delta's own stream" * bool(jars), note=f"{what} in {_BATCHES} batches",
        ),
        Figure(
            "a query's batches, by write_batches", "rows/s", tuple(ins[1:]), tuple(parquets[1:]),
            "foreachBatch to Parquet", note=what,
        ),
    ]  # fmt: skip
