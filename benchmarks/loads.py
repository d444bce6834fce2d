"""A load of Parquet files beside Spark, which reads the same files and writes them to a folder.

Ours reads each file twice, once for the digest that it is known by, decodes, writes and synchronises Parquet files,
and looks again; the second figure adds the run that puts the rows into a table. Spark's files are not synchronised.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidegauge as tg
from benchmarks.figures import Figure
from benchmarks.room import Room, spark_session

__all__ = ["measure"]

_FILES = 16
_COLUMNS = "id long, amount double, note string"


def _written(folder: Path, rows: int) -> int:
    """Write files of random rows, and return their size."""
    folder.mkdir()
    made = np.random.default_rng(7)
    for number in range(_FILES):
        numbers = made.integers(0, 1 << 60, rows)
        table = {"id": numbers, "amount": made.random(rows), "note": np.char.add("n", numbers.astype("U20"))}
        pq.write_table(pa.table(table), folder / f"{number:02}.parquet")
    return sum(path.stat().st_size for path in folder.iterdir())


def _flow(folder: Path) -> tg.Dataflow:
    flow = tg.Dataflow("shop", store=f"sqlite:///{folder}/shop.db")
    history = flow.source("history", tg.BatchSource(folder / "loads", columns=_COLUMNS))
    flow.sink("orders", history, tg.ParquetSink(str(folder / "orders")))
    return flow


def _timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _rows(table: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in table.rglob("*.parquet"))


def _copied(session: Any, pattern: str, copy: Path) -> None:
    session.read.parquet(pattern).write.parquet(str(copy))


def measure(room: Room) -> list[Figure]:
    """Load, run, and let Spark copy, in turns."""
    rows = room.size(1_600_000, 10_000)
    files = room.fresh("files")
    size = _written(files, rows)
    pattern, mb = str(files / "*.parquet"), size / 1e6
    room.say(f"{_FILES} files of {size / 1e9:.2f} GB, {_FILES * rows:,} rows")
    loads, whole, copies = list[float](), list[float](), list[float]()
    with spark_session() as session:
        session.read.parquet(str(files / "00.parquet")).write.parquet(str(room.fresh("warm")))
        for _ in range(room.size(3, 1)):
            folder = room.fresh("ours")
            folder.mkdir()
            flow = _flow(folder)
            load = _timed(partial(tg.load, flow, "orders", pattern))
            run = _timed(partial(flow.run, "caught-up", engine="local"))
            loads.append(mb / load)
            whole.append(mb / (load + run))
            copy = room.fresh("spark")
            copies.append(mb / _timed(partial(_copied, session, pattern, copy)))
            found = [_rows(folder / "orders"), _rows(copy)]
            if found != [_FILES * rows] * 2:
                raise RuntimeError(f"{found} rows were written of {_FILES * rows}")
            room.clear(folder)
            room.clear(copy)
    note = f"{_FILES} files, {mb:,.0f} MB"
    return [
        Figure("a load, durable", "MB/s", tuple(loads), tuple(copies), "Spark, read and write", note=note),
        Figure("a load, and its epoch in a table", "MB/s", tuple(whole), tuple(copies), "Spark, read and write"),
    ]
