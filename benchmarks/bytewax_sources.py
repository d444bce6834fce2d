"""A source of bytewax through our loop, beside bytewax itself: the same partition and items, to Arrow and to Parquet.

The partition is bytewax's `TestingSource` over dicts of three columns. The first figures are of the loop alone: ours
gives the rows of each poll, which are dropped; bytewax's output makes an Arrow table of as many items, and drops it.
The last ones are of a whole run: ours stages the items durably, and writes a table with epochs; bytewax writes one
Parquet file, with no recovery. Both sides take turns in one process, one worker on bytewax's side.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import TestingSource, run_main

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.peers.environments import BYTEWAX
from benchmarks.room import Room
from tidegauge.sources.bytewax.fetching import BytewaxFetch

__all__ = ["measure"]

_COLUMNS = pa.schema([("id", pa.int64()), ("user", pa.string()), ("amount", pa.float64())])
_GROUP = 65_536
"""Rows of a table, on both sides."""

_Take = Callable[[pa.Table], object]


class _Tables(DynamicSink[Any]):
    """Gives items to a function, as tables of `_GROUP` rows."""

    def __init__(self, take: _Take) -> None:
        self._take = take

    def build(self, _step: str, _worker: int, _workers: int) -> StatelessSinkPartition[Any]:
        take = self._take

        class Part(StatelessSinkPartition[Any]):
            def __init__(self) -> None:
                self.held = list[Any]()

            def write_batch(self, items: list[Any]) -> None:
                self.held += items
                if len(self.held) >= _GROUP:
                    self.close()

            def close(self) -> None:
                take(pa.Table.from_pylist(self.held, _COLUMNS))
                self.held = []

        return Part()


def _theirs(source: TestingSource[Any], take: _Take) -> None:
    dataflow = Dataflow("theirs")
    op.output("out", op.input("in", dataflow, source), _Tables(take))
    run_main(dataflow)  # type: ignore[no-untyped-call]


def _loop(source: TestingSource[Any]) -> int:
    """Return how many rows come through our loop."""
    fetch = BytewaxFetch(
        source="it", connector=source, stateful=True, step="it", columns=_COLUMNS, row=None, timeout=60.0, run="it"
    )
    rows, state = 0, None
    while (brought := fetch(state)) is not None:
        rows, state = rows + brought.rows.num_rows, brought.state
    fetch.close()
    return rows


def _run(source: TestingSource[Any], root: Path) -> int:
    """Return how many rows a flow writes to its table."""
    flow = tg.Dataflow("ours", store=f"sqlite:///{root}/flow.db", tick=0.1)
    rows = flow.source("rows", tg.BytewaxSource(source, columns=_COLUMNS, staging=root / "staged"))
    flow.sink("rows", rows, tg.ParquetSink(str(root / "rows")))
    flow.run("caught-up", engine="local")
    return sum(pq.read_metadata(path).num_rows for path in (root / "rows").rglob("*.parquet"))


def _rate(count: int, job: Callable[[], int]) -> float:
    begun = time.perf_counter()
    found = job()
    taken = time.perf_counter() - begun
    if found != count:
        raise RuntimeError(f"{found} rows of {count}")
    return count / taken


def _their_loop(source: TestingSource[Any]) -> int:
    counts = list[int]()
    _theirs(source, lambda table: counts.append(table.num_rows))
    return sum(counts)


def _their_file(source: TestingSource[Any], path: Path) -> int:
    with pq.ParquetWriter(path, _COLUMNS) as out:
        _theirs(source, out.write_table)
    return int(pq.read_metadata(path).num_rows)


def measure(room: Room) -> list[Figure]:
    """Measure the loop by batches of 1, 100 and 1,000 items, and a whole run by batches of 1,000."""
    repetitions, count = room.size(5, 1), room.size(1_000_000, 20_000)
    items = [{"id": i, "user": f"user-{i % 1000}", "amount": i * 0.5} for i in range(count)]
    figures = list[Figure]()
    for size in (1, 100, 1000):
        pairs = list[tuple[float, float]]()
        for _ in range(repetitions):
            peer = _rate(count, partial(_their_loop, TestingSource(items, size)))
            pairs.append((_rate(count, partial(_loop, TestingSource(items, size))), peer))
        figures.append(_figure(f"items in batches of {size:,}, to Arrow", pairs, Goal("ratio", ">=", 0.8)))
    pairs = []
    for _ in range(repetitions):
        root = room.fresh("whole")
        root.mkdir(parents=True, exist_ok=True)
        peer = _rate(count, partial(_their_file, TestingSource(items, 1000), root / "theirs.parquet"))
        pairs.append((_rate(count, partial(_run, TestingSource(items, 1000), root)), peer))
    return [*figures, _figure("a whole run, to Parquet", pairs, None)]


def _figure(what: str, pairs: list[tuple[float, float]], goal: Goal | None) -> Figure:
    ours, peer = zip(*pairs, strict=True)
    return Figure(what, "items/s", ours, peer, peer_name=f"bytewax {BYTEWAX}", goal=goal)
