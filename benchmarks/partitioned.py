"""What partitions and sorting save: a point query on a Delta table that is parted and sorted, beside others.

The table has orders of thirty days in no order, parted by day; sorted by `id` in one case. The peer is a table that
Spark with Delta's JAR has written of the same rows, parted alike. A filter wants one `id` of one day; the readers are
deltalake and polars. The notes have how many files the log leaves to be read, and what they are of all bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from benchmarks.figures import Figure
from benchmarks.room import Room
from tidegauge.errors.engine import JavaMissing
from tidegauge.errors.testing import JarsNotFetched
from tidegauge.sinks import DeltaSink, OutputId
from tidegauge.sinks.layout.transforms import day
from tidegauge.testing.jars import DELTA, class_path

__all__ = ["measure"]

_SCHEMA: Final = pa.schema(
    [("id", pa.int64()), ("user", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("_epoch", pa.int64())]
)
_DAYS: Final = 30
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_ASKED: Final = _START + timedelta(days=11)


def _epochs(epochs: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each epoch: every `id` once, in no order, some of each day in each epoch."""
    ids = np.random.default_rng(7).permutation(epochs * rows)
    begin = int(_START.timestamp()) * 1_000_000
    for epoch in range(epochs):
        mine = ids[epoch * rows : (epoch + 1) * rows]
        at = pa.array(begin + (mine % _DAYS) * 86_400_000_000 + mine, _SCHEMA.field("at").type)
        users = pa.array([f"user {n % 997}" for n in mine])
        arrays = [pa.array(mine), users, at, pa.array(np.full(rows, epoch))]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _ours(path: str, epochs: Iterator[pa.RecordBatch], **options: Any) -> None:
    sink, output = DeltaSink(path, **options), OutputId("bench", "orders", "a" * 32)
    table = sink.open(output)
    for epoch, rows in enumerate(epochs):
        stager = sink.stage(_SCHEMA, job=f"{epoch:032x}", task=0)
        stager.write(rows)
        table.commit(epoch, epoch + 1, _SCHEMA, stager.close(), write=str(epoch))
    table.end()
    upkeep = sink.maintain(output)
    for number, pack in enumerate(upkeep.plan()):
        upkeep.commit(pack, upkeep.stage(pack, job=f"f{number:031x}"), write=f"pack-{number}")
    upkeep.end()


def _sparks(path: str, rows: Path) -> None:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", class_path(DELTA).replace(os.pathsep, ","))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    try:
        session.sparkContext.setLogLevel("OFF")
        frame = session.read.parquet(str(rows)).selectExpr("*", "cast(at as date) as at_day")
        frame.write.format("delta").partitionBy("at_day").save(path)
        session.sql(f"optimize delta.`{path}`")
    finally:
        session.stop()


def _readers(path: str, wanted: int) -> dict[str, Callable[[], int]]:
    queries = QueryBuilder().register("t", DeltaTable(path))
    where = f"at_day = date '{_ASKED:%F}' and id = {wanted}"
    of_both = (pl.col("at_day") == _ASKED.date()) & (pl.col("id") == wanted)
    return {
        "deltalake": lambda: int(
            pa.table(queries.execute(f'select "user" from t where {where}').read_all()).num_rows
        ),
        "polars": lambda: pl.scan_delta(path).filter(of_both).select("user").collect().height,
    }


def _timed(run: Callable[[], int]) -> float:
    begun = time.perf_counter()
    if (found := run()) != 1:
        raise RuntimeError(f"{found} rows were found, not 1")
    return time.perf_counter() - begun


def _read(path: str, wanted: int) -> str:
    """Say how much the log leaves to be read, for a filter by day and id."""
    table = DeltaTable(path)
    parted = bool(table.metadata().partition_columns)
    by_day = [("at_day", "=", f"{_ASKED:%F}")] if parted else []
    left = {
        name.rpartition("/")[2] for name in table.file_uris(file_pruning_predicate=[*by_day, ("id", "=", wanted)])
    }
    sizes = {
        str(row["path"]).rpartition("/")[2]: row["size_bytes"]
        for row in pa.table(table.get_add_actions()).to_pylist()
    }
    share = sum(sizes[name] for name in left) / sum(sizes.values())
    return f"{len(left)} of {len(sizes)} files read, {share:.1%} of the bytes"


def measure(room: Room) -> list[Figure]:
    """Write the tables, and ask each reader of ours and of the peer in turns."""
    epochs, rows = room.size(40, 4), room.size(100_000, 1_000)
    wanted = 11 + _DAYS * room.size(70_000, 50)
    room.say(f"tables of {epochs * rows:,} rows in {_DAYS} days")
    ours: dict[str, dict[str, Any]] = {
        "parted": {"partition_by": day("at")},
        "parted and sorted": {"partition_by": day("at"), "sort_by": "id", "file_size": "64KB"},
    }
    for name, options in ours.items():
        _ours(str(room.folder / name.replace(" ", "-")), _epochs(epochs, rows), **options)
    flat = room.folder / "rows.parquet"
    pq.write_table(pa.Table.from_batches(_epochs(epochs, rows)), flat)
    peer: str | None = str(room.folder / "spark")
    try:
        _sparks(str(peer), flat)
    except (JarsNotFetched, JavaMissing) as error:
        room.say(f"without Spark: {error.summary}")
        peer = None
    figures = []
    for name in ours:
        path = str(room.folder / name.replace(" ", "-"))
        others = _readers(peer, wanted) if peer else {}
        note = f"{_read(path, wanted)}; the peer: {_read(peer, wanted)}" if peer else _read(path, wanted)
        for reader, ask in _readers(path, wanted).items():
            turns = [(_timed(ask), _timed(others[reader]) if peer else 0.0) for _ in range(room.size(8, 3))][1:]
            figures.append(
                Figure(
                    f"{reader}, a table that is {name}: one row",
                    "s",
                    ours=tuple(one for one, _ in turns),
                    peer=tuple(other for _, other in turns) if peer else (),
                    peer_name="Spark's Delta, parted",
                    note=note,
                )
            )
    return figures
