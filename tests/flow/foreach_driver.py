"""A driver to be killed: `python -m tests.flow.foreach_driver ROOT POINT NTH` runs a flow with a function to its end.

The function writes into SQLite, by the recipe (`keyed`) for one output and without it (`naive`) for another. POINT is
`before` or `after` one of the env's effects, or one of `INSIDE`; the driver kills itself the NTH time it comes there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
from tests.killed import killing
from tests.sinks.recipe import FUNCTIONS

import tidegauge as tg

INSIDE = ("before the function", "after keyed", "after naive")


def make(root: Path, strike: Callable[[str], None] = lambda _point: None) -> tg.Dataflow:
    """Return the flow: a table, and two functions."""
    flow = tg.Dataflow("kill", store=f"sqlite:///{root}/flow.db", tick=0.02)
    orders = flow.source(
        "orders", tg.FileSource(str(root / "in" / "*.jsonl"), format=tg.Json("id long"), max_bytes_per_epoch=40)
    )
    flow.sink("lake", orders, tg.ParquetSink(str(root / "lake")))

    def called(name: str, rows: pa.RecordBatchReader, attempt: tg.EpochAttempt) -> None:
        strike("before the function")
        FUNCTIONS[name](f"{root}/{name}.db", rows, attempt)
        strike(f"after {name}")

    for name in ("keyed", "naive"):
        flow.sink(name, orders, tg.ForeachEpochSink(partial(called, name), str(root / "progress" / name)))
    return flow


def main() -> None:
    """Live, and perhaps die."""
    root, point, nth = sys.argv[1:]
    strike = killing(point or None, int(nth))
    make(Path(root), strike).run("caught-up", engine="local", env=tg.Env(point=strike))


if __name__ == "__main__":
    main()
