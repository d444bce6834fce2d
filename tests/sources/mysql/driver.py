"""A driver of a flow that follows the two tables of the machine, in a process of its own: to be killed.

`TABLES` in the environment may name one of them. With `DIES` it notes what it has read of first rows every few of
them, and kills itself when it has read so many.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tidegauge as tg
from tidegauge.sources.mysql.firstrows import RowsTransaction

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


def die_after(left: int) -> None:
    """Have this process killed when it has read so many first rows."""
    rows, setup = RowsTransaction.rows, tg.MySqlSource.setup.fget  # type: ignore[attr-defined]

    def read(*given: Any) -> Any:
        nonlocal left
        for found in rows(*given):
            for row in found:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield [row]

    RowsTransaction.rows = read  # type: ignore[assignment, method-assign]
    tg.MySqlSource.setup = property(lambda one: replace(setup(one), piece=1 << 13))  # type: ignore[assignment]


if __name__ == "__main__":
    if "DIES" in os.environ:
        die_after(int(os.environ["DIES"]))
    followed = os.environ.get("TABLES", ",".join(TABLES)).split(",")
    flow, engine = make(Path(sys.argv[1]), sys.argv[2], followed), tg.LocalEngine(threads=2)
    if sys.argv[3] == "caught-up":
        flow.run(until="caught-up", engine=engine)
    else:
        flow.run(engine=engine)
