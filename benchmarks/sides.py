"""Both sides over records that are there already: our flow, and what users of Structured Streaming do.

Ours runs until it has caught up, theirs with the trigger `availableNow`. Three outputs are one flow on our side and
three queries on theirs, at once; besides, what a user can do by hand: one query with `foreachBatch`, which keeps the
batch and writes it three times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.flows import Recording, Steps, flow_of
from benchmarks.room import Room
from benchmarks.streaming import Queries, others, table_rows
from tidegauge.engine.spark.engine import SparkEngine
from tidegauge.sources.protocol import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Account", "for_each_batch", "ours", "queries"]


@dataclass(slots=True)
class Account:
    """What each case took: the seconds of each turn, the rows of each table, and for ours the source bytes read."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)
    bytes_read: dict[str, int] = field(default_factory=dict)

    def timed(self, case: str, function: Callable[[], object]) -> None:
        """Run a case and take its time."""
        begun = time.perf_counter()
        function()
        self.seconds.setdefault(case, []).append(time.perf_counter() - begun)

    def agree(self) -> None:
        """Raise unless both sides wrote the same rows: a figure of different work is none."""
        most = max((rows for case, rows in self.rows.items() if case.startswith("ours")), key=len)
        for case, rows in self.rows.items():
            expected = most[: len(rows)]
            if rows != expected:
                raise RuntimeError(f"{case} wrote {rows} rows, ours {expected}")

    def rates(self, rows: int) -> dict[str, tuple[float, ...]]:
        """Return the rows a second of each turn of each case, where the source has so many."""
        return {case: tuple(rows / seconds for seconds in taken) for case, taken in self.seconds.items()}


def ours(
    room: Room, session: SparkSession, source: Source, account: Account, *, outputs: int, steps: Steps = "SQL"
) -> None:
    """Run our flow until it has caught up, with steps that are written so."""
    case = f"ours {outputs}" if steps == "SQL" else f"ours {outputs}, {steps}"
    target = room.fresh(f"ours-{outputs}")
    target.mkdir()
    engine = Recording(SparkEngine(session))
    made = flow_of(source, target, outputs=outputs, steps=steps)
    account.timed(case, lambda: made.run("caught-up", engine=engine))
    account.rows[case] = [engine.rows(name) for name in made.outputs]
    account.bytes_read[case] = engine.bytes_read
    engine.close()
    room.clear(target)


def queries(
    room: Room, session: SparkSession, read: Callable[[], DataFrame], account: Account, *, outputs: int
) -> None:
    """Run one query an output, at once, over what is there. read: makes the streaming frame of a query."""
    target = room.fresh(f"theirs-{outputs}")
    tables: list[Path] = []

    def run() -> None:
        started = Queries.over(read, target, outputs=outputs, once=True)
        started.wait()
        tables.extend(started.tables)

    account.timed(f"queries {outputs}", run)
    account.rows[f"queries {outputs}"] = table_rows(session, tables)
    room.clear(target)


def for_each_batch(
    room: Room, session: SparkSession, read: Callable[[], DataFrame], account: Account, *, outputs: int = 3
) -> None:
    """Run one query that keeps each batch and writes it once for each output."""
    target = room.fresh("for-each-batch")
    tables = [target / f"table-{number}" for number in range(outputs)]

    def write(batch: DataFrame, _number: int) -> None:
        kept = batch.persist()
        try:
            kept.write.mode("append").parquet(str(tables[0]))
            for table, (condition, columns) in zip(tables[1:], others(outputs), strict=True):
                kept.filter(condition).selectExpr(*columns).write.mode("append").parquet(str(table))
        finally:
            kept.unpersist()

    def run() -> None:
        writer: Any = read().writeStream.foreachBatch(write)
        query = writer.option("checkpointLocation", str(target / "log")).trigger(availableNow=True).start()
        query.awaitTermination()

    account.timed(f"foreachBatch {outputs}", run)
    account.rows[f"foreachBatch {outputs}"] = table_rows(session, tables)
    room.clear(target)
