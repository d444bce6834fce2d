"""A driver to be killed: `python -m tests.flow.published_driver ROOT POINT NTH` runs a flow with two Iceberg tables.

POINT is as for `iceberg_driver`. One of the tables is slow: each of its commits waits for another one of the quick
table, as far as there is one to come.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

from pyiceberg.catalog.sql import SqlCatalog
from tests.flow.iceberg_driver import COLUMNS, after
from tests.killed import killing

import tidegauge as tg
from tidegauge.sinks.iceberg import change
from tidegauge.sinks.iceberg.table import IcebergTable

PATIENCE = 0.3
"""Seconds for which the slow table waits for a commit of the quick one to begin: at the end none comes any more."""


def make(root: Path) -> tg.Dataflow:
    """Return the flow."""
    flow = tg.Dataflow("kill", store=f"sqlite:///{root}/flow.db", tick=0.02)
    file = tg.FileSource(str(root / "in" / "*.jsonl"), format=tg.Json(COLUMNS), max_bytes_per_epoch=80)
    users = flow.source("users", file)
    for name in ("quick", "slow"):
        flow.sink(name, users, tg.IcebergSink(f"shop.{name}", str(root / "lake")))
    return flow


def slowly() -> Any:
    """Make one table slow, until what is returned is stopped."""
    commit, begun, under_way = IcebergTable.commit, threading.Event(), threading.Lock()

    def slow(self: Any, *args: Any, **named: Any) -> None:
        if self._output.output == "quick":
            with under_way:
                begun.set()
                commit(self, *args, **named)
            return
        begun.clear()
        if under_way.locked() or begun.wait(PATIENCE):
            with under_way:
                pass
        commit(self, *args, **named)

    patched = mock.patch.object(IcebergTable, "commit", slow)
    patched.start()
    return patched


def main() -> None:
    """Live, and perhaps die."""
    root, point, nth = sys.argv[1:]
    strike = killing(point or None, int(nth))
    slowly()
    after(change, "build", strike, "after snapshot")
    after(SqlCatalog, "_write_metadata", strike, "after metadata", kind=staticmethod)
    after(SqlCatalog, "commit_table", strike, "after swap")
    make(Path(root)).run("caught-up", engine="local", env=tg.Env(point=strike))


if __name__ == "__main__":
    main()
