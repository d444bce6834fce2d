"""The parts that other figures rest on: a frontier's advance, minting, questions to a long timeline."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure, Goal
from benchmarks.room import Room
from tidegauge.dataflow import INT, InputHandle, Probe, Worker
from tidegauge.env import Env
from tidegauge.remap.binding import Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Holder, SourceSpec, Store
from tidegauge.remap.table import RemapTable

__all__ = ["measure"]

_SEED: Final = 20261120
_PARTITIONS: Final = 100


def _per(function: Callable[[], object], *, times: int, turns: int) -> tuple[float, ...]:
    """Return the seconds a call takes, in several turns of `times` calls."""
    samples = []
    for _ in range(turns):
        begun = time.perf_counter()
        for _ in range(times):
            function()
        samples.append((time.perf_counter() - begun) / times)
    return tuple(samples)


def _advance(operators: int, *, times: int) -> tuple[float, ...]:
    """Return the seconds that one advance of the input's frontier takes in a chain of operators."""
    worker = Worker(monotonic=time.monotonic)
    with worker.dataflow("chain", order=INT) as scope:
        orders, stream = scope.input("orders")
        for _ in range(operators):
            stream = stream.map(_same)
        probe = stream.probe()
    return _per_advance(worker, orders, probe, times=times)


def _per_advance(worker: Worker, orders: InputHandle, probe: Probe, *, times: int) -> tuple[float, ...]:
    """Return the seconds from advancing an input until its probe knows."""
    epoch = 0

    def advance() -> None:
        nonlocal epoch
        epoch += 1
        orders.advance_to(epoch)
        while probe.less_than(epoch):
            worker.step()

    return _per(advance, times=times, turns=5)


def _same(row: object) -> object:
    return row


def _beside(idle: int, *, times: int) -> tuple[float, ...]:
    """Return the seconds of an advance beside operators that have nothing to do."""
    worker = Worker(monotonic=time.monotonic)
    with worker.dataflow("busy", order=INT) as scope:
        orders, stream = scope.input("orders")
        probe = stream.map(_same).probe()
    with worker.dataflow("idle", order=INT) as scope:
        _held, quiet = scope.input("held")
        for _ in range(idle):
            quiet = quiet.map(_same)
        quiet.probe()
    worker.step()
    return _per_advance(worker, orders, probe, times=times)


def _mint(folder: Path, *, partitions: int, times: int) -> tuple[float, ...]:
    """Return the seconds of a durable append that moves one partition of many."""
    env = Env()
    store = Store.open(f"sqlite:///{folder}/store.db", env=env)
    lease = store.acquire("bench", holder=Holder.current(env))
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
    samples = _per(append, times=times, turns=5)
    lease.release()
    store.close()
    return samples


def _filled(folder: Path, bindings: int) -> Store:
    """Return a store with a binding an epoch, each of one of 100 partitions, written as rows: it is read here."""
    env = Env()
    store = Store.open(f"sqlite:///{folder}/long.db", env=env)
    lease = store.acquire("bench", holder=Holder.current(env))
    store.register(lease, sources={"orders": SourceSpec({"kind": "bench"})}, outputs={})
    lease.release()
    with closing(sqlite3.connect(folder / "long.db")) as rows, rows:
        [source], [flow] = (rows.execute(f"SELECT id FROM {table}").fetchone() for table in ("sources", "flows"))
        rows.executemany(
            "INSERT INTO partitions (id, source_id, key) VALUES (?, ?, ?)",
            ((i, source, f"p{i:02d}") for i in range(_PARTITIONS)),
        )
        rows.executemany(
            "INSERT INTO bindings (source_id, epoch, partition_id, position) VALUES (?, ?, ?, ?)",
            ((source, epoch, epoch % _PARTITIONS, 10 * (1 + epoch // _PARTITIONS)) for epoch in range(bindings)),
        )
        rows.execute("UPDATE flows SET upper = ? WHERE id = ?", (bindings, flow))
    return store


def _questions(folder: Path, *, bindings: int, turns: int) -> list[Figure]:
    """Measure loading a long timeline from its store, and the questions that are asked of it."""
    chance = random.Random(_SEED)
    store = _filled(folder, bindings)
    loading = _per(lambda: store.load("bench"), times=1, turns=3)
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
        samples = tuple(1e6 * taken for taken in _per(question, times=2000, turns=turns))
        what = f"{name}, {bindings:,} bindings, {_PARTITIONS} partitions"
        figures.append(Figure(what, "us", ours=samples, goal=Goal("ours", "<=", 50.0)))
    return figures


def _slices(table: RemapTable, epoch: int) -> object:
    return table.slices(epoch, epoch + 1)


def measure(room: Room) -> list[Figure]:
    """Measure them all; none takes more than seconds."""
    room.folder.mkdir(exist_ok=True)
    long, short = 101, 1
    times = room.size(400, 40)
    chains = {length: _advance(length, times=times) for length in (short, long)}
    each = tuple(1e6 * (b - a) / (long - short) for a, b in zip(chains[short], chains[long], strict=True))
    room.say("frontiers")
    alone, beside = (_beside(idle, times=times) for idle in (0, 1000))
    partitions = room.size(10_000, 1_000)
    minting = _mint(room.folder, partitions=partitions, times=room.size(40, 5))
    room.say("minting")
    return [
        Figure("one frontier advance through one operator", "us", ours=each, goal=Goal("ours", "<=", 10.0)),
        Figure(
            "one frontier advance beside 1,000 idle operators",
            "us",
            ours=tuple(1e6 * taken for taken in beside),
            peer=tuple(1e6 * taken for taken in alone),
            peer_name="alone",
            goal=Goal("ratio", "<=", 1.2),
        ),
        Figure(
            f"minting, 1 changed partition of {partitions:,}, durable",
            "ms",
            ours=tuple(1e3 * taken for taken in minting),
            goal=Goal("ours", "<=", 5.0),
        ),
        *_questions(room.folder, bindings=room.size(1_000_000, 20_000), turns=5),
    ]
