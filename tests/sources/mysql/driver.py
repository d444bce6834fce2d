"""A driver of a flow that follows the two tables of the machine, in a process of its own: to be killed.

`TABLES` in the environment may name one of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import tidegauge as tg

TABLES = ("alpha", "beta")


def make(root: Path, url: str, tables: Sequence[str] = TABLES) -> tg.Dataflow:
    """Each table by key, with one log of changes."""
    flow = tg.Dataflow("machine", store=f"sqlite:///{root}/flow.db", tick=0.05)
    db = flow.source("db", tg.MySqlSource(url, tables=list(tables), folder=str(root / "my")))
    for table in tables:
        sink = tg.DeltaSink(str(root / table), envelope="upsert", key="id", order="_sequence")
        flow.sink(table, db.table(table), sink)
    flow.sink("log", db.table("alpha").changelog("op"), tg.ParquetSink(str(root / "log")))
    return flow


if __name__ == "__main__":
    followed = os.environ.get("TABLES", ",".join(TABLES)).split(",")
    flow, engine = make(Path(sys.argv[1]), sys.argv[2], followed), tg.LocalEngine(threads=2)
    if sys.argv[3] == "caught-up":
        flow.run(until="caught-up", engine=engine)
    else:
        flow.run(engine=engine)
