"""Rows a second: JSON lines that are there already, into one table and into three.

The cases are those of `benchmarks.sides`; the time is from the start of the flow, or of the queries, on a warm
session to the end.

What the tasks read is checked by the kernel's count of the workers' reads, in runs in which all outputs hold all
rows: with SQL steps the count has the rows in it that the workers get back from the JVM.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.data import write_files
from benchmarks.figures import Figure, Goal
from benchmarks.flows import flow_of, orders_in
from benchmarks.processes import bytes_read_by_workers
from benchmarks.room import Room, spark_session
from benchmarks.sides import Account, for_each_batch, ours, queries
from benchmarks.streaming import stream
from tidegauge.engine.spark.engine import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure"]

_GOALS = {1: Goal("ratio", ">=", 1.0), 3: Goal("ratio", ">=", 2.0)}


def _workers_read(room: Room, session: SparkSession, source: Path, outputs: int) -> int:
    """Return what the Python workers read to write all rows into each of some outputs."""
    target = room.fresh(f"raw-{outputs}")
    target.mkdir()
    engine = SparkEngine(session)
    before = bytes_read_by_workers()
    flow_of(orders_in(source), target, outputs=outputs, raw=True).run("caught-up", engine=engine)
    read = bytes_read_by_workers() - before
    engine.close()
    room.clear(target)
    return read


def measure(room: Room) -> list[Figure]:
    """Measure one output and three, in turns."""
    total = room.size(1 << 30, 16 << 20)
    source, few = room.fresh("landing"), room.fresh("warm")
    room.say(f"writing {total >> 20} MiB of JSON lines")
    rows = write_files(source, files=8, total=total)
    write_files(few, files=2, total=total // 64)
    size = sum(file.stat().st_size for file in source.iterdir())
    account = Account()
    with spark_session() as session:
        for folder, seen, turns in ((few, Account(), 2), (source, account, room.size(3, 1))):
            mine, read = orders_in(folder), partial(stream, session, folder)
            for turn in range(turns):
                for outputs in (1, 3):
                    ours(room, session, mine, seen, outputs=outputs)
                    queries(room, session, read, seen, outputs=outputs)
                for_each_batch(room, session, read, seen)
                room.say(f"turn {turn + 1} over {folder.name}")
        workers_read = {f"ours {n}": _workers_read(room, session, source, n) for n in (1, 3)}
    account.agree()
    rates = account.rates(rows)
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
    for what, of in (("reported by jobs", account.bytes_read), ("counted by the kernel", workers_read)):
        figures.append(
            Figure(
                f"source bytes for 3 outputs over those for 1, {what}",
                "ratio",
                ours=(of["ours 3"] / of["ours 1"],),
                goal=Goal("ours", "<=", 1.05),
                details={"bytes": of, "source": size},
            )
        )
    return figures
