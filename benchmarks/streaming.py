"""The peer: Spark Structured Streaming to Parquet, one query an output.

It gets what suits it: a declared schema, a trigger without pause, no state store, the fast path for timestamps, a
schema file and a checkpoint on the same disk. A micro-batch is committed when its entry is in the sink's metadata
log: that is what readers of the folder go by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.data import COLUMNS, LARGE, PAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Queries", "others", "stream", "table_rows"]


def others(outputs: int) -> list[tuple[str, tuple[str, ...]]]:
    """Return the filters and selections of all outputs but the first."""
    return list(islice(cycle((LARGE, PAGES)), outputs - 1))


def stream(session: SparkSession, folder: Path) -> DataFrame:
    """Return the orders in the files of a folder as they come."""
    return session.readStream.schema(COLUMNS).json(str(folder))


@dataclass(slots=True)
class Queries:
    """Structured Streaming queries over one source, running together in one session."""

    queries: list[StreamingQuery]
    tables: list[Path]

    @staticmethod
    def over(read: Callable[[], DataFrame], target: Path, *, outputs: int, once: bool) -> Queries:
        """Start one query for each output; `once`: all that is there, and no more."""
        steps = [None, *others(outputs)]
        tables = [target / f"table-{i}" for i in range(outputs)]
        queries = []
        for number, step in enumerate(steps):
            frame = read()
            if step is not None:
                frame = frame.filter(step[0]).selectExpr(*step[1])
            writer = frame.writeStream.format("parquet").option("checkpointLocation", str(target / f"log-{number}"))
            writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
            queries.append(writer.start(str(tables[number])))
        return Queries(queries, tables)

    def wait(self) -> None:
        """Wait until all queries have ended by themselves."""
        for query in self.queries:
            query.awaitTermination()

    def wait_committed(self, batch: int, *, patience: float = 60.0) -> None:
        """Wait until every table holds a micro-batch. Looks at the file system each half millisecond."""
        over = time.monotonic() + patience
        entries = [table / "_spark_metadata" for table in self.tables]
        for entry in entries:
            while not _holds(entry, batch):
                self.check()
                if time.monotonic() > over:
                    raise TimeoutError(f"micro-batch {batch} of {entry.parent} is not there after {patience} s")
                time.sleep(0.0005)

    def check(self) -> None:
        """Raise what a query has failed of."""
        for query in self.queries:
            if (error := query.exception()) is not None:
                raise error

    def stop(self) -> None:
        """End the queries."""
        for query in self.queries:
            query.stop()


def _holds(entries: Path, batch: int) -> bool:
    """Every tenth entry is a compacted one, which has a name of its own."""
    return (entries / str(batch)).exists() or (entries / f"{batch}.compact").exists()


def table_rows(session: SparkSession, tables: Sequence[Path]) -> list[int]:
    """Return how many rows each table holds, as Spark reads it."""
    return [session.read.parquet(str(table)).count() for table in tables]
