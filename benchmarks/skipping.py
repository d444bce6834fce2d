"""What statistics in the log save: a filter on a column of a Delta table, beside the same one without them.

Each epoch is a file, of orders whose `id` and `at` grow, as they do in what is ingested. A filter wants one epoch in
the middle, by each of them, and is asked by deltalake and polars; a reader that has been asked once is timed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from benchmarks.figures import Figure
from benchmarks.room import Room
from tidegauge.sinks import DeltaSink, OutputId

__all__ = ["measure"]

_SCHEMA = pa.schema(
    [("id", pa.int64()), ("user", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("_epoch", pa.int64())]
)
_START = datetime(2026, 1, 1, tzinfo=UTC)


def _tables(folder: Path, files: int, rows: int) -> tuple[str, str]:
    """Write one table twice, with statistics and without; return their paths."""
    paths = str(folder / "with"), str(folder / "without")
    tables = [(DeltaSink(path), DeltaSink(path).open(OutputId("bench", "orders", "a" * 32))) for path in paths]
    for epoch in range(files):
        first = epoch * rows
        batch = pa.record_batch(
            [
                pa.array(range(first, first + rows), pa.int64()),
                pa.array([f"user {n % 997}" for n in range(rows)], pa.string()),
                pa.array([_START + timedelta(milliseconds=first + n) for n in range(rows)], _SCHEMA.field("at").type),
                pa.array([epoch] * rows, pa.int64()),
            ],
            schema=_SCHEMA,
        )
        for (sink, table), said in zip(tables, (True, False), strict=True):
            stager = sink.stage(_SCHEMA, job=f"{epoch:032x}", task=0)
            stager.write(batch)
            staged = stager.close()
            if not said:
                staged = [replace(file, statistics=json.dumps({"numRecords": file.rows})) for file in staged]
            table.commit(epoch, epoch + 1, _SCHEMA, staged, write=str(epoch))
    return paths


def _timed(run: Callable[[], int], wanted: int) -> float:
    begun = time.perf_counter()
    found = run()
    taken = time.perf_counter() - begun
    if found != wanted:
        raise RuntimeError(f"{found} rows were found, not {wanted}")
    return taken


def _readers(path: str, low: int, rows: int) -> dict[str, Callable[[], int]]:
    queries = QueryBuilder().register("t", DeltaTable(path))
    begin, end = _START + timedelta(milliseconds=low), _START + timedelta(milliseconds=low + rows)
    where = f"at >= cast('{begin:%FT%TZ}' as timestamp) and at < cast('{end:%FT%TZ}' as timestamp)"
    by_id = pl.col("id").is_between(low, low + rows - 1)

    def query(where: str) -> int:
        found: Any = pa.table(queries.execute(f'select "user" from t where {where}').read_all())
        return int(found.num_rows)

    return {
        "deltalake, by id": lambda: query(f"id between {low} and {low + rows - 1}"),
        "deltalake, by time": lambda: query(where),
        "polars, by id": lambda: pl.scan_delta(path).filter(by_id).select("user").collect().height,
    }


def measure(room: Room) -> list[Figure]:
    """Ask each reader of the table with statistics and without, in turns."""
    files, rows = room.size(1_000, 20), room.size(10_000, 1_000)
    room.say(f"two tables of {files:,} files")
    with_, without = _tables(room.folder, files, rows)
    low = files // 2 * rows
    kept = DeltaTable(with_).file_uris(file_pruning_predicate=f"id >= {low} and id < {low + rows}")
    figures = []
    pairs = zip(_readers(with_, low, rows).items(), _readers(without, low, rows).values(), strict=True)
    for (name, ours), peer in pairs:
        turns = [(_timed(ours, rows), _timed(peer, rows)) for _ in range(room.size(8, 3))][1:]
        figures.append(
            Figure(
                f"{name}: one of {files:,} files",
                "s",
                ours=tuple(one for one, _ in turns),
                peer=tuple(other for _, other in turns),
                peer_name="without statistics",
                note=f"{len(kept)} file read",
            )
        )
    return figures
