"""Rows a second: JSON lines that are there already, into one table and into three.

Ours runs until it has caught up, theirs with the trigger `availableNow`; the time is from the start of the flow, or
of the queries, on a warm session to the end. Three outputs are one flow on our side and three queries on theirs, at
once; besides, what a user of Structured Streaming can do by hand: one query with `foreachBatch`, which keeps the
batch and writes it three times.

What the tasks read is checked by the kernel's count of the workers' reads, in runs in which all outputs hold all
rows: with SQL steps the count has the rows in it that the workers get back from the JVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data import COLUMNS, LARGE, PAGES, write_files
from benchmarks.figures import Figure, Goal
from benchmarks.flows import Recording, flow
from benchmarks.processes import bytes_read_by_workers
from benchmarks.room import Room, spark_session
from benchmarks.streaming import Queries, table_rows
from tidegauge.pipeline.engine.spark import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["measure"]

_GOALS = {1: Goal("ratio", ">=", 1.0), 3: Goal("ratio", ">=", 2.0)}


class _Account:
    """What was read, in each case, and how many rows came out of it."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.bytes_read: dict[str, int] = {}
        self.workers_read: dict[str, int] = {}
        self.rows: dict[str, list[int]] = {}


def _timed(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def _ours(room: Room, session: SparkSession, source: Path, account: _Account, outputs: int) -> None:
    target = room.fresh(f"ours-{outputs}")
    target.mkdir()
    engine = Recording(SparkEngine(session))
    made = flow(source, target, outputs=outputs)
    case = f"ours {outputs}"
    account.seconds.setdefault(case, []).append(_timed(lambda: made.run("caught-up", engine=engine)))
    account.bytes_read[case] = engine.bytes_read
    account.rows[case] = [engine.rows(name) for name in made.outputs]
    engine.close()
    room.clear(target)


def _workers_read(room: Room, session: SparkSession, source: Path, outputs: int) -> int:
    """Return what the Python workers read to write all rows into each of some outputs."""
    target = room.fresh(f"raw-{outputs}")
    target.mkdir()
    engine = SparkEngine(session)
    before = bytes_read_by_workers()
    flow(source, target, outputs=outputs, raw=True).run("caught-up", engine=engine)
    read = bytes_read_by_workers() - before
    engine.close()
    room.clear(target)
    return read


def _queries(room: Room, session: SparkSession, source: Path, account: _Account, outputs: int) -> None:
    target = room.fresh(f"theirs-{outputs}")
    case = f"queries {outputs}"
    tables: list[Path] = []

    def run() -> None:
        queries = Queries.start(session, source, target, outputs=outputs, once=True)
        queries.wait()
        tables.extend(queries.tables)

    account.seconds.setdefault(case, []).append(_timed(run))
    account.rows[case] = table_rows(session, tables)
    room.clear(target)


def _for_each_batch(room: Room, session: SparkSession, source: Path, account: _Account) -> None:
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
        writer: Any = session.readStream.schema(COLUMNS).json(str(source)).writeStream.foreachBatch(write)
        query = writer.option("checkpointLocation", str(target / "log")).trigger(availableNow=True).start()
        query.awaitTermination()

    account.seconds.setdefault("foreachBatch 3", []).append(_timed(run))
    account.rows["foreachBatch 3"] = table_rows(session, tables)
    room.clear(target)


def _agree(account: _Account) -> None:
    """Raise unless both sides wrote the same rows: a figure of different work is none."""
    for case, rows in account.rows.items():
        expected = account.rows["ours 3"][: len(rows)]
        if rows != expected:
            raise RuntimeError(f"{case} wrote {rows} rows, ours {expected}")


def measure(room: Room) -> list[Figure]:
    """Measure one output and three, in turns."""
    total = room.size(1 << 30, 16 << 20)
    source, few = room.fresh("landing"), room.fresh("warm")
    room.say(f"writing {total >> 20} MiB of JSON lines")
    rows = write_files(source, files=8, total=total)
    write_files(few, files=2, total=total // 64)
    size = sum(file.stat().st_size for file in source.iterdir())
    account = _Account()
    with spark_session() as session:
        for folder, seen, turns in ((few, _Account(), 2), (source, account, room.size(3, 1))):
            for turn in range(turns):
                for outputs in (1, 3):
                    _ours(room, session, folder, seen, outputs)
                    _queries(room, session, folder, seen, outputs)
                _for_each_batch(room, session, folder, seen)
                room.say(f"turn {turn + 1} over {folder.name}")
        account.workers_read = {f"ours {n}": _workers_read(room, session, source, n) for n in (1, 3)}
    _agree(account)
    rates = {case: tuple(rows / seconds for seconds in taken) for case, taken in account.seconds.items()}
    common = {"rows": rows, "bytes": size, "written": account.rows, "seconds": account.seconds}
    figures = [
        Figure(
            f"JSON lines to Delta, {outputs} output{'s' * (outputs > 1)}",
            "rows/s",
            ours=rates[f"ours {outputs}"],
            peer=rates[f"queries {outputs}"],
            peer_name=f"Structured Streaming, {outputs} quer{'ies' if outputs > 1 else 'y'}",
            goal=_GOALS[outputs],
            note=f"{size / 1e9:.2f} GB",
            details=common,
        )
        for outputs in (1, 3)
    ]
    figures.append(
        Figure(
            "the same, 3 outputs",
            "rows/s",
            ours=rates["ours 3"],
            peer=rates["foreachBatch 3"],
            peer_name="Structured Streaming, foreachBatch with persist",
        )
    )
    for what, read in (("reported by jobs", account.bytes_read), ("counted by the kernel", account.workers_read)):
        figures.append(
            Figure(
                f"source bytes for 3 outputs over those for 1, {what}",
                "ratio",
                ours=(read["ours 3"] / read["ours 1"],),
                goal=Goal("ours", "<=", 1.05),
                details={"bytes": read, "source": size},
            )
        )
    return figures
