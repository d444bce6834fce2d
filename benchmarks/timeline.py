"""A timeline of a million bindings: loading it, asking it, extending it, and reclocking columns by it.

One binding an epoch, of one partition, of 100, and of 10,000 in turn; positions go up by 10 a binding. Each shape is
loaded in a process of its own, because the kernel keeps the peak of a process for its life.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks import minting
from benchmarks.core.timing import per
from benchmarks.figures import Figure, Goal
from benchmarks.processes import Peaks
from benchmarks.room import Room
from tidegauge.env import Env
from tidegauge.reclock import epochs_of, pieces
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import LeaseHolder, SourceSpec, Store
from tidegauge.remap.table import RemapTable
from tidegauge.remap.times import EpochTimes

__all__ = ["case", "measure"]

_SEED: Final = 20261120
_STEP: Final = 10
_BEGUN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SHAPES: Final = (1, 100, 10_000)


_QUICK: Final = {"epoch_of", "frontier_at", "inverse", "slices of 5 epochs", "at_time", "view"}


def _name(partition: int) -> str:
    return f"p{partition:05d}"


def _minted(epoch: int) -> datetime:
    return _BEGUN + timedelta(seconds=epoch)


def _fill(folder: Path, bindings: int, partitions: int) -> None:
    """Make a store with the bindings, written as rows: it is read here."""
    folder.mkdir()
    env = Env()
    store = Store.open(f"sqlite:///{folder}/store.db", env=env)
    lease = store.acquire("bench", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({"kind": "bench"})}, outputs={})
    lease.release()
    store.close()
    with closing(sqlite3.connect(folder / "store.db")) as rows, rows:
        [source], [flow] = (rows.execute(f"SELECT id FROM {table}").fetchone() for table in ("sources", "flows"))
        rows.executemany(
            "INSERT INTO partitions (id, source_id, key) VALUES (?, ?, ?)",
            ((i, source, _name(i)) for i in range(partitions)),
        )
        rows.executemany(
            "INSERT INTO changes (source_id, epoch, partition_id, position) VALUES (?, ?, ?, ?)",
            ((source, e, e % partitions, _STEP * (1 + e // partitions)) for e in range(bindings)),
        )
        rows.executemany(
            "INSERT INTO timeline (flow_id, epoch, minted_at, published_at, write_id) VALUES (?, ?, ?, ?, '')",
            ((flow, e, at := _minted(e).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), at) for e in range(bindings)),
        )
        rows.execute("UPDATE flows SET upper = ?, published = ? WHERE id = ?", (bindings, bindings, flow))


def case(folder: str, bindings: int, partitions: int) -> dict[str, list[float]]:
    """Load a store and ask; return samples: seconds, bytes, and microseconds a call."""
    chance = random.Random(_SEED)
    env = Env()
    store = Store.open(f"sqlite:///{folder}/store.db", env=env)
    store.flow("bench")

    def load() -> tuple[RemapTable, EpochTimes]:
        return store.load("bench").sources["orders"].table, store.times("bench")

    before = Peaks()
    before.look()
    loading = per(load, times=1, turns=1)
    after = Peaks()
    after.look()
    loading += per(load, times=1, turns=2)
    table, times = load()
    last = _STEP * (bindings // partitions)
    width = 5

    def anywhere() -> int:
        return chance.randrange(bindings - width)

    def look(frontier: Frontier) -> object:
        return len(frontier)

    def some(of: Callable[[int], object]) -> Callable[[], object]:
        return lambda: of(anywhere())

    questions: dict[str, Callable[[], object]] = {
        "epoch_of": lambda: table.epoch_of(_name(chance.randrange(partitions)), chance.randrange(last)),
        "frontier_at": some(table.frontier_at),
        "inverse": some(table.inverse),
        "inverse, all positions looked at": some(lambda epoch: look(table.inverse(epoch))),
        "slices of 5 epochs": some(lambda epoch: table.slices(epoch, epoch + width)),
        "at_time": some(lambda epoch: times.at_time(_minted(epoch))),
        "view": table.view,
    }
    found: dict[str, list[float]] = {"load": list(loading), "bytes": [after.one["driver"] - before.one["driver"]]}
    for name, question in questions.items():
        found[name] = [1e6 * taken for taken in per(question, times=500, turns=5)]
    one = some(lambda epoch: store.bindings("bench", first=epoch, last=epoch))
    found["bindings of one epoch, read from the store"] = [1e6 * taken for taken in per(one, times=20, turns=5)]
    whole = per(lambda: store.bindings("bench"), times=1, turns=1)
    found["bindings of all epochs, read from the store"] = [1e6 * taken for taken in whole]
    store.close()
    return found


def _apart(folder: Path, bindings: int, partitions: int) -> dict[str, list[float]]:
    """Run a case in a process of its own."""
    code = "import json, sys; from benchmarks.timeline import case; print(json.dumps(case(*json.loads(sys.argv[1]))))"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([str(folder), bindings, partitions])],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _table(bindings: int, partitions: int) -> RemapTable:
    epochs = np.arange(bindings)
    positions = _STEP * (1 + epochs // partitions)
    names = [_name(i) for i in range(partitions)]
    return RemapTable.of_columns("orders", names, epochs, epochs % partitions, positions, upper=bindings)


def _extended(bindings: int, partitions: int) -> Callable[[], None]:
    """Return what extends a table of many bindings by one more."""
    table = _table(bindings, partitions)
    at = dict.fromkeys(range(partitions), _STEP * (1 + bindings // partitions))

    def extend() -> None:
        moved = table.upper % partitions
        at[moved] += _STEP
        table.extend(table.upper, {_name(moved): at[moved]})

    return extend


def _extending(many: tuple[int, int], few: tuple[int, int]) -> Figure:
    """Measure what one more binding costs a table that has many bindings or partitions, beside one that has few."""
    ours, peer = _extended(*many), _extended(*few)
    samples = [(per(ours, times=2000, turns=1)[0], per(peer, times=2000, turns=1)[0]) for _ in range(7)]
    what, than = (f"{bindings:,} bindings, {partitions:,} partitions" for bindings, partitions in (many, few))
    a, b = (tuple(1e6 * taken for taken in side) for side in zip(*samples, strict=True))
    return Figure(f"extending by one a table of {what}", "us", a, b, than, Goal("ratio", "<=", 2.0))


def _columns(table: RemapTable, rows: int, partitions: int) -> list[Figure]:
    """Measure reclocking unsorted rows, by how they are encoded and how they lie."""
    chance = np.random.default_rng(_SEED)
    of = chance.integers(0, partitions, rows)
    last = int(table.frontier[_name(0)])
    near = last // 2 + np.arange(rows) // partitions  # what a topic's partitions look like, taken in turn
    far = chance.integers(0, last, rows)
    names = pa.array([_name(i) for i in range(partitions)])
    encoded = pa.DictionaryArray.from_arrays(pa.array(of, pa.int32()), names)
    goal = Goal("ours", ">=", 50e6)
    figures = []
    for what, partition, position, aim in (
        ("rows anywhere in the timeline", encoded, far, goal),
        ("rows of a stretch of the timeline, partitions mixed", encoded, near, goal),
        ("the same, partitions as plain text", encoded.cast(pa.string()), near, goal),
    ):
        taken = per(partial(epochs_of, table, partition, pa.array(position)), times=1, turns=7)
        name = f"reclocking {what}; {len(table):,} bindings, {partitions:,} partitions, batches of {rows:,}"
        figures.append(Figure(name, "rows/s", ours=tuple(rows / seconds for seconds in taken), goal=aim))
    return figures


def _batch(table: RemapTable, rows: int) -> Callable[[], object]:
    """Return what cuts a sorted batch that lies in ten epochs."""
    first = int(table.frontier[_name(0)]) // 2 // _STEP * _STEP
    at = first + np.arange(rows) * _STEP * 10 // rows
    batch = pa.record_batch({"_partition": pa.repeat(_name(0), rows).dictionary_encode(), "_offset": at})
    if len(pieces(table, batch)) != 10:
        raise AssertionError("the batch is not of ten epochs")
    return lambda: pieces(table, batch)


def _sorted(table: RemapTable, rows: int, fewer: int) -> Figure:
    """Measure cutting a large sorted batch beside a small one: nothing is copied, whatever its size."""
    large, small = _batch(table, rows), _batch(table, fewer)
    samples = [(per(large, times=200, turns=1)[0], per(small, times=200, turns=1)[0]) for _ in range(7)]
    a, b = (tuple(1e6 * taken for taken in side) for side in zip(*samples, strict=True))
    what = f"cutting a sorted batch of {rows:,} rows into ten epochs"
    return Figure(what, "us", a, b, f"{fewer:,} rows", Goal("ratio", "<=", 2.0))


def measure(room: Room) -> list[Figure]:
    """Measure it all; it takes about a minute."""
    bindings = room.size(1_000_000, 20_000)
    figures: list[Figure] = []
    for partitions in _SHAPES:
        room.say(f"{bindings:,} bindings of {partitions:,} partitions")
        folder = room.folder / f"{partitions}"
        _fill(folder, bindings, partitions)
        found = {name: tuple(samples) for name, samples in _apart(folder, bindings, partitions).items()}
        room.clear(folder)
        of = f"{bindings:,} bindings, {partitions:,} partitions"
        figures.append(Figure(f"load, {of}", "s", found.pop("load"), goal=Goal("ours", "<=", 2.0)))
        memory = tuple(taken / 2**20 for taken in found.pop("bytes"))
        figures.append(Figure(f"peak memory of the first load, {of}", "MiB", memory, goal=Goal("ours", "<=", 500.0)))
        figures += [
            Figure(f"{name}, {of}", "us", samples, goal=Goal("ours", "<=", 50.0) if name in _QUICK else None)
            for name, samples in found.items()
        ]
    room.say("extending")
    figures.append(_extending((bindings, 10_000), (bindings, 10)))
    figures.append(_extending((bindings, 100), (1_000, 100)))
    room.say("columns")
    for partitions in _SHAPES:
        table = _table(bindings, partitions)
        figures += _columns(table, room.size(1_000_000, 20_000), partitions)
    figures.append(_sorted(_table(bindings, 100), 1_000_000, 1_000))
    return figures + minting.measure(room)
