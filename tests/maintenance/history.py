"""A shop whose orders are loaded from files, each of two rows."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tidegauge as tg
from tidegauge.errors.loads import LoadedAlready

__all__ = ["loaded_together", "rows", "shop", "write"]


def shop(root: Path, place: str | Path | None = None, *, late: bool = False) -> tg.Dataflow:
    """Orders, by loads that are staged in a place, the folder `loads` by default; and numbers of another source."""
    flow = tg.Dataflow("shop", store=f"sqlite:///{root}/shop.db")
    history = flow.source("history", tg.BatchSource(place or root / "loads", columns="id long, name string"))
    flow.sink("orders", history, tg.ParquetSink(str(root / "lake" / "orders")))
    if late:
        flow.sink("late", history, tg.ParquetSink(str(root / "lake" / "late")))
    numbers = flow.source("numbers", tg.GeneratorSource(1, columns="n long"))
    flow.sink("numbers", numbers, tg.ParquetSink(str(root / "lake" / "numbers")))
    return flow


def write(root: Path, *numbers: int) -> None:
    """Have files to load, each named by its number."""
    (root / "in").mkdir(exist_ok=True)
    for n in numbers:
        pq.write_table(pa.table({"id": [n, n + 10], "name": ["a", "b"]}), root / "in" / f"{n}.parquet")


def rows(flow: tg.Dataflow) -> list[tuple[int, int]]:
    """Each order's number and epoch, once the flow has caught up."""
    flow.run("caught-up", engine="local")
    return sorted((row["id"], row["_epoch"]) for row in tg.read_arrow(flow, "orders").to_pylist())


def loaded_together(flow: tg.Dataflow, folder: Path, patterns: Sequence[str]) -> list[str]:
    """Load the files of each pattern, all at one time; return the names of the loads that were made."""
    together = Barrier(len(patterns))

    class Together(tg.LocalEngine):
        def work(self, tasks: Any) -> Any:
            together.wait(60)
            return super().work(tasks)

    def attempt(pattern: str) -> str:
        try:
            return tg.load(flow, "orders", folder / pattern, engine=Together()).name
        except LoadedAlready:
            return ""

    with ThreadPoolExecutor(len(patterns)) as pool:
        return [name for name in pool.map(attempt, patterns) if name]
