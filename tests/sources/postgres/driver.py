"""A driver of a flow that follows the two tables of the machine, in a process of its own: to be killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import tidegauge as tg
from tidegauge.evolution import Evolution
from tidegauge.sources.postgres import held

TABLES = ("alpha", "beta")


def make(
    root: Path, dsn: str, slot: str, tables: Sequence[str] = TABLES, *, schema: Evolution = "strict"
) -> tg.Dataflow:
    """Each table by key, with one log of changes."""
    flow = tg.Dataflow("machine", store=f"sqlite:///{root}/flow.db", tick=0.05)
    source = tg.PostgresSource(dsn, publication="shop", tables=list(tables), slot=slot, folder=str(root / "pg"))
    db = flow.source("db", source)
    for table in tables:
        sink = tg.DeltaSink(str(root / table), envelope="upsert", key="id", order="_sequence")
        flow.sink(table, db.table(table), sink, schema=schema)
    flow.sink("log", db.table(tables[0]).changelog("op"), tg.ParquetSink(str(root / "log")), schema=schema)
    return flow


if __name__ == "__main__":
    if smaller := os.environ.get("RANGE_BYTES"):
        vars(held)["RANGE_BYTES"] = int(smaller)
    followed = os.environ.get("TABLES", ",".join(TABLES)).split(",")
    how: Evolution = "add" if "GROWS" in os.environ else "strict"
    flow, engine = make(Path(sys.argv[1]), sys.argv[2], sys.argv[3], followed, schema=how), tg.LocalEngine(threads=2)
    if sys.argv[4] == "caught-up":
        flow.run(until="caught-up", engine=engine)
    else:
        flow.run(engine=engine)
