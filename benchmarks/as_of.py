"""Reading a table as of an epoch, beside Delta's own time travel: the version that had the same rows.

A Delta table of many epochs, a version each. Both sides are asked for an early epoch, one in the middle and the last,
from the opening of the table on, and give an Arrow table. Ours also opens the store, to know that the epoch is
published and whose table this is; and it needs no older version: each row says its epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
from deltalake import DeltaTable

import tidegauge as tg
from benchmarks.figures import Figure
from benchmarks.room import Room
from tidegauge.engine.local import LocalEngine

__all__ = ["measure"]


def _timed(read: Callable[[], pa.Table], rows: int) -> float:
    begun = time.perf_counter()
    found = read()
    taken = time.perf_counter() - begun
    if found.num_rows != rows:
        raise RuntimeError(f"{found.num_rows} rows were read, not {rows}")
    return taken * 1000


def _versions(path: str) -> dict[int, int]:
    """Return the version whose last epoch is each of these."""
    told = DeltaTable(path).history()
    return {int(one["upper"]) - 1: int(one["version"]) for one in told if "upper" in one}


def measure(room: Room) -> list[Figure]:
    """Write the table, and read it in turns."""
    epochs, rows = room.size(200, 8), room.size(10_000, 500)
    room.say(f"a table of {epochs} epochs")
    path = str(room.folder / "orders")
    flow = tg.Dataflow("bench", store=f"sqlite:///{room.folder}/store.db", tick=tg.Manual())
    source = tg.GeneratorSource(
        epochs * rows, columns="id long, user string, amount double", max_records_per_epoch=rows
    )
    flow.sink("orders", flow.source("orders", source), tg.DeltaSink(path))
    with flow.start(engine=LocalEngine(threads=0)) as started:
        for epoch in range(epochs):
            flow.tick()
            flow.wait_for({"orders": {"shard-0": (epoch + 1) * rows}}, timeout=60)
        started.stop()
    versions, figures = _versions(path), []
    for where, epoch in (("early", epochs // 10), ("middle", epochs // 2), ("last", epochs - 1)):

        def ours(epoch: int = epoch) -> pa.Table:
            return tg.read_arrow(flow, "orders", as_of=epoch)

        def theirs(version: int = versions[epoch]) -> pa.Table:
            return DeltaTable(path, version=version).to_pyarrow_table()

        if sorted(ours()["id"].to_pylist()) != sorted(theirs()["id"].to_pylist()):
            raise RuntimeError(f"version {versions[epoch]} has other rows than epoch {epoch}")
        wanted = (epoch + 1) * rows
        turns = [(_timed(ours, wanted), _timed(theirs, wanted)) for _ in range(room.size(8, 3))][1:]
        figures.append(
            Figure(
                f"as of the {where} of {epochs} epochs",
                "ms",
                tuple(one for one, _ in turns),
                tuple(other for _, other in turns),
                "DeltaTable(version=...)",
                note=f"{wanted:,} rows",
            )
        )
    return figures
