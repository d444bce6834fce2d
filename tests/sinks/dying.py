"""What writes to a table and is killed (SIGKILL) at an instant: functions for a process of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.remap.history import NO_HISTORY
from tidegauge.sinks import DeltaSink, OutputId, ParquetSink
from tidegauge.sinks.delta import creating

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
OUTPUT = OutputId("shop", "orders", "a" * 32)
SINKS: dict[str, Any] = {"delta": DeltaSink, "parquet": ParquetSink}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, name: str, strike: Callable[..., None]) -> None:
    """Let `strike` hear of a function before and after it is called."""
    real = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        strike("before", *arguments)
        result = real(*arguments, **named)
        strike("after", *arguments)
        return result

    setattr(owner, name, wrapped)


def commit(kind: str, path: str, instant: str) -> None:
    """Commit one epoch of two rows, and die at the instant."""
    sink = SINKS[kind](path)
    table = sink.open(OUTPUT)
    stager = sink.stage(SCHEMA, job="a" * 16 + "c" * 16, task=0)
    columns = {"user": ["new", "new"], "amount": [1.0, 2.0], "_epoch": [table.upper] * 2}
    stager.write(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))
    if instant == "staging":
        die()
    files = stager.close()
    if instant == "staged":
        die()

    def at_commit(side: str, *_: object) -> None:
        if instant == f"{side} commit":
            die()

    def at_rename(side: str, _source: object, target: Any) -> None:
        if instant == "gathering" and side == "after":
            die()
        if "from_epoch=" in Path(target).name:
            at_commit(side)

    if kind == "delta":
        around(creating, "create_table_with_add_actions", at_commit)
        around(os, "link", at_commit)
    else:
        around(Path, "rename", at_rename)
    table.commit(table.upper, table.upper + 1, SCHEMA, files, write="a" * 16 + "c" * 16)


def mend(kind: str, path: str, dies: int) -> None:
    """Replace the damaged epochs of a table, and die at the given one of the instants around renames and links."""
    steps = 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps == dies:
            die()

    sink = SINKS[kind](path)
    table = sink.mend(OUTPUT)
    epochs = table.whole(table.damage.epochs)
    files = []
    for one in epochs:
        stager = sink.stage(SCHEMA, job="a" * 16 + f"{dies:016x}", task=one.start)
        columns = {"user": ["ada"] * len(one), "amount": [1.5] * len(one), "_epoch": list(one)}
        stager.write(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))
        files += stager.close()
    around(os, "link", step)
    around(Path, "rename", step)
    write = "a" * 16 + f"{dies:016x}"
    table.replace(epochs, table.upper, SCHEMA, files, write=write, told=lambda _lower, _upper: NO_HISTORY)


def race(kind: str, path: str, name: str, gate: Any, results: Any) -> None:
    """Commit eight epochs, each at the same instant as others do; say which were won."""
    sink = SINKS[kind](path)
    table = sink.open(OUTPUT)
    for epoch in range(8):
        stager = sink.stage(SCHEMA, job=f"{os.getpid():032x}", task=epoch)
        stager.write(pa.RecordBatch.from_pydict({"user": [name], "amount": [0.0], "_epoch": [epoch]}, schema=SCHEMA))
        files = stager.close()
        gate.wait()
        try:
            table.commit(epoch, epoch + 1, SCHEMA, files, write=f"{os.getpid()}-{epoch}")
            results.put((name, epoch))
        except TableUpperMismatch:
            table.discard(files)
        gate.wait()
    results.put(None)


def replace(kind: str, path: str, instant: str) -> None:
    """Put the rows of all files into one, and die before or after the commit."""
    sink = SINKS[kind](path)
    table = sink.open(OUTPUT)
    old = table.files()
    stager = sink.stage(SCHEMA, job="a" * 16 + "d" * 16, task=0)
    columns = {"user": ["ada"] * 3, "amount": [1.5] * 3, "_epoch": [0, 1, 2]}
    stager.write(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))
    files = stager.close()

    def at_rename(side: str, _source: object, target: Any) -> None:
        if instant == f"{side} commit" and "from_epoch=" in Path(target).name:
            die()

    def at_link(side: str, *_: object) -> None:
        if instant == f"{side} commit":
            die()

    around(os, "link", at_link)
    around(Path, "rename", at_rename)
    table.commit(3, 3, SCHEMA, files, remove=old, write="a" * 16 + "d" * 16)


def swap(kind: str, path: str, dies: int, upper: int) -> None:
    """Put other rows in the place of all, one an epoch, and die at the given one of the instants around renames."""
    sink = SINKS[kind](path)
    stager = sink.stage(SCHEMA, job="a" * 16 + f"{dies:016x}", task=0)
    columns = {"user": ["new"] * upper, "amount": [1.0] * upper, "_epoch": list(range(upper))}
    stager.write(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))
    files = stager.close()
    steps = 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps == dies:
            die()

    around(os, "link", step)
    around(Path, "rename", step)
    table = sink.open(OUTPUT).replacement("e" * 32)
    table.commit(0, upper, SCHEMA, files, write="a" * 16 + f"{dies:016x}")


def look(path: str, stop: Any, results: Any) -> None:
    """Read a Parquet table until told to stop, with and without Tidegauge; tell of each look what was seen.

    That is the users and epochs by somebody who lists the folder, then by Tidegauge, None where a file was gone
    before it was read; and the upper.
    """
    import duckdb

    listing = f"select user, _epoch from read_parquet('{path}/from_epoch=*/*.parquet', hive_partitioning=false)"
    while not stop.is_set():
        listed = ours = None
        with suppress(duckdb.IOException):
            listed = duckdb.execute(listing).fetchall()
        table = SINKS["parquet"](path).open(OUTPUT)
        files, upper = table.files(), table.upper
        with suppress(FileNotFoundError):
            found = ds.dataset(table.uris(files), schema=SCHEMA, format="parquet").to_table()
            ours = list(zip(found["user"].to_pylist(), found["_epoch"].to_pylist(), strict=True))
        results.put((listed, ours, upper))
