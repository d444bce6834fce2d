"""Both sides over a topic of orders: our flow, and the queries of Structured Streaming with Spark's own connector.

The queries get what suits them, as those over files do (`benchmarks.streaming`). The values are decoded by
`from_json` with the columns declared, once in each query.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidegauge as tg
from benchmarks.data import COLUMNS, LARGE, PAGES
from benchmarks.flows import Recording, flow_of
from benchmarks.room import Room, spark_session
from benchmarks.streaming import Queries, table_rows
from tidegauge.pipeline.engine.spark import SparkEngine
from tidegauge.testing.jars import CONNECTOR, class_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Account", "for_each_batch", "ours", "queries", "session_with_connector", "source", "stream"]


def session_with_connector() -> AbstractContextManager[SparkSession]:
    """One session for both sides, with Spark's own connector, which only theirs takes.

    All sessions of a process share a JVM, and so its class path: the first one decides.
    """
    return spark_session(jars=class_path(CONNECTOR).split(os.pathsep))


def source(servers: str, topic: str) -> tg.KafkaSource:
    """Return our source of a topic's orders."""
    return tg.KafkaSource(servers, topic=topic, format=tg.Json(COLUMNS))


def stream(session: SparkSession, servers: str, topic: str) -> DataFrame:
    """Return theirs."""
    from pyspark.sql import functions as sql

    reader: Any = session.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    frame = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    order = sql.from_json(frame["value"].cast("string"), COLUMNS).alias("order")
    selected: DataFrame = frame.select(order).select("order.*")
    return selected


@dataclass(slots=True)
class Account:
    """How long each case took, and how many rows came out of it."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)

    def timed(self, case: str, function: Callable[[], object]) -> None:
        """Run a case and take its time."""
        begun = time.perf_counter()
        function()
        self.seconds.setdefault(case, []).append(time.perf_counter() - begun)

    def agree(self) -> None:
        """Raise unless both sides wrote the same rows: a figure of different work is none."""
        for case, rows in self.rows.items():
            expected = self.rows["ours 3"][: len(rows)]
            if rows != expected:
                raise RuntimeError(f"{case} wrote {rows} rows, ours {expected}")


def ours(
    room: Room,
    session: SparkSession,
    servers: str,
    topic: str,
    account: Account,
    *,
    outputs: int,
    arrow: bool = False,
) -> None:
    """Run our flow until it has caught up. arrow: with functions of Arrow batches in place of SQL."""
    case = f"ours {outputs}{', Arrow' * arrow}"
    target = room.fresh(f"ours-{outputs}")
    target.mkdir()
    engine = Recording(SparkEngine(session))
    made = flow_of(source(servers, topic), target, outputs=outputs, arrow=arrow)
    account.timed(case, lambda: made.run("caught-up", engine=engine))
    account.rows[case] = [engine.rows(name) for name in made.outputs]
    engine.close()
    room.clear(target)


def queries(room: Room, session: SparkSession, servers: str, topic: str, account: Account, *, outputs: int) -> None:
    """Run one query an output, at once, over what is there."""
    target = room.fresh(f"theirs-{outputs}")
    tables: list[Path] = []

    def run() -> None:
        started = Queries.over(lambda: stream(session, servers, topic), target, outputs=outputs, once=True)
        started.wait()
        tables.extend(started.tables)

    account.timed(f"queries {outputs}", run)
    account.rows[f"queries {outputs}"] = table_rows(session, tables)
    room.clear(target)


def for_each_batch(room: Room, session: SparkSession, servers: str, topic: str, account: Account) -> None:
    """Run one query that keeps each batch and writes it three times, which a user can do by hand."""
    target = room.fresh("for-each-batch")
    tables = [target / f"table-{number}" for number in range(3)]

    def write(batch: DataFrame, _number: int) -> None:
        kept = batch.persist()
        try:
            kept.write.mode("append").parquet(str(tables[0]))
            for table, (condition, columns) in zip(tables[1:], (LARGE, PAGES), strict=True):
                kept.filter(condition).selectExpr(*columns).write.mode("append").parquet(str(table))
        finally:
            kept.unpersist()

    def run() -> None:
        writer: Any = stream(session, servers, topic).writeStream.foreachBatch(write)
        query = writer.option("checkpointLocation", str(target / "log")).trigger(availableNow=True).start()
        query.awaitTermination()

    account.timed("foreachBatch 3", run)
    account.rows["foreachBatch 3"] = table_rows(session, tables)
    room.clear(target)
