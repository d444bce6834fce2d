"""The timeline: minting durably, and the questions to a long one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.core.timing import per
from benchmarks.figures import Figure, Goal
from benchmarks.room import Room
from tidegauge.env import Env
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import LeaseHolder, SourceSpec, Store
from tidegauge.remap.table import RemapTable

__all__ = ["measure"]

_SEED: Final = 20261120
_PARTITIONS: Final = 100


def _mint(folder: Path, *, partitions: int, times: int) -> tuple[float, ...]:
    """Return the seconds of a durable append that moves one partition of many."""
    env = Env()
    store = Store.open(f"sqlite:///{folder}/store.db", env=env)
    lease = store.acquire("bench", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({"kind": "bench"})}, outputs={})
    positions = {f"p{i:05d}": 1 for i in range(partitions)}
    epoch = 0

    def append() -> None:
        nonlocal epoch
        bound = Proposal(frontier=Frontier(positions))
        store.append(lease, expected=epoch, at=datetime.now(UTC), proposals={"orders": bound})
        positions[f"p{epoch % partitions:05d}"] += 10
        epoch += 1

    append()
    samples = per(append, times=times, turns=5)
    lease.release()
    store.close()
    return samples


def _filled(folder: Path, bindings: int) -> Store:
    """Return a store with a binding an epoch, each of one of 100 partitions, written as rows: it is read here."""
    env = Env()
    store = Store.open(f"sqlite:///{folder}/long.db", env=env)
    lease = store.acquire("bench", holder=LeaseHolder.current(env))
    store.register(lease, sources={"orders": SourceSpec({"kind": "bench"})}, outputs={})
    lease.release()
    with closing(sqlite3.connect(folder / "long.db")) as rows, rows:
        [source], [flow] = (rows.execute(f"SELECT id FROM {table}").fetchone() for table in ("sources", "flows"))
        rows.executemany(
            "INSERT INTO partitions (id, source_id, key) VALUES (?, ?, ?)",
            ((i, source, f"p{i:02d}") for i in range(_PARTITIONS)),
        )
        rows.executemany(
            "INSERT INTO changes (source_id, epoch, partition_id, position) VALUES (?, ?, ?, ?)",
            ((source, epoch, epoch % _PARTITIONS, 10 * (1 + epoch // _PARTITIONS)) for epoch in range(bindings)),
        )
        rows.execute("UPDATE flows SET upper = ? WHERE id = ?", (bindings, flow))
    return store


def _questions(folder: Path, *, bindings: int, turns: int) -> list[Figure]:
    """Measure loading a long timeline from its store, and the questions that are asked of it."""
    chance = random.Random(_SEED)
    store = _filled(folder, bindings)
    loading = per(lambda: store.load("bench"), times=1, turns=3)
    table = store.load("bench").sources["orders"].table
    store.close()
    last = 10 * (bindings // _PARTITIONS)
    questions: list[tuple[str, Callable[[], object]]] = [
        ("epoch_of", lambda: table.epoch_of(f"p{chance.randrange(_PARTITIONS):02d}", chance.randrange(last))),
        ("inverse, of the newest 256 epochs", lambda: table.inverse(bindings - chance.randrange(256))),
        ("inverse, of any epoch", lambda: table.inverse(chance.randrange(bindings))),
        ("slices of one epoch", lambda: _slices(table, chance.randrange(bindings - 1))),
    ]
    figures = [Figure(f"load {bindings:,} bindings from the store", "s", ours=loading, goal=Goal("ours", "<=", 2.0))]
    for name, question in questions:
        samples = tuple(1e6 * taken for taken in per(question, times=2000, turns=turns))
        what = f"{name}, {bindings:,} bindings, {_PARTITIONS} partitions"
        figures.append(Figure(what, "us", ours=samples, goal=Goal("ours", "<=", 50.0)))
    return figures


def _slices(table: RemapTable, epoch: int) -> object:
    return table.slices(epoch, epoch + 1)


def measure(room: Room) -> list[Figure]:
    """Measure minting and the questions; it takes seconds."""
    partitions = room.size(10_000, 1_000)
    minting = _mint(room.folder, partitions=partitions, times=room.size(40, 5))
    return [
        Figure(
            f"minting, 1 changed partition of {partitions:,}, durable",
            "ms",
            ours=tuple(1e3 * taken for taken in minting),
            goal=Goal("ours", "<=", 5.0),
        ),
        *_questions(room.folder, bindings=room.size(1_000_000, 20_000), turns=5),
    ]
