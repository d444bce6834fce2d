"""A driver of a flow that follows the two tables of the machine, in a process of its own: to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

import tidegauge as tg

TABLES = ("alpha", "beta")


def make(root: Path, url: str) -> tg.Dataflow:
    """Each table by key, with one log of changes."""
    flow = tg.Dataflow("machine", store=f"sqlite:///{root}/flow.db", tick=0.05)
    db = flow.source("db", tg.MySqlSource(url, tables=list(TABLES), folder=str(root / "my")))
    for table in TABLES:
        sink = tg.DeltaSink(str(root / table), envelope="upsert", key="id", order="_sequence")
        flow.sink(table, db.table(table), sink)
    flow.sink("log", db.table("alpha").changelog("op"), tg.ParquetSink(str(root / "log")))
    return flow


if __name__ == "__main__":
    flow, engine = make(Path(sys.argv[1]), sys.argv[2]), tg.LocalEngine(threads=2)
    if sys.argv[3] == "caught-up":
        flow.run(until="caught-up", engine=engine)
    else:
        flow.run(engine=engine)
