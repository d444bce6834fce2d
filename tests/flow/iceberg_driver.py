"""A driver to be killed: `python -m tests.flow.iceberg_driver ROOT POINT NTH` runs a flow to its end.

It writes to a table of Iceberg and to one of Delta. POINT is `before` or `after` one of the env's effects, or one of
`INSIDE`; the driver kills itself the NTH time it comes there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from pyiceberg.catalog.sql import SqlCatalog
from tests.killed import killing

import tidegauge as tg
from tidegauge.sinks.iceberg import change

INSIDE = ("after snapshot", "after metadata", "after swap")
COLUMNS = "id long, name string"


def make(root: Path) -> tg.Dataflow:
    """Return the flow."""
    flow = tg.Dataflow("kill", store=f"sqlite:///{root}/flow.db", tick=0.02)
    file = tg.FileSource(str(root / "in" / "*.jsonl"), format=tg.Json(COLUMNS), max_bytes_per_epoch=80)
    users = flow.source("users", file)
    flow.sink("ice", users, tg.IcebergSink("shop.users", str(root / "lake")))
    flow.sink("delta", users, tg.DeltaSink(str(root / "delta")))
    return flow


def after(
    owner: Any, name: str, strike: Callable[[str], None], point: str, *, kind: Callable[[Any], Any] = lambda f: f
) -> None:
    """Come to a point right after a step, for the rest of this process."""
    step = getattr(owner, name)

    def both(*args: Any, **named: Any) -> Any:
        found = step(*args, **named)
        strike(point)
        return found

    mock.patch.object(owner, name, kind(both)).start()


def main() -> None:
    """Live, and perhaps die."""
    root, point, nth = sys.argv[1:]
    strike = killing(point or None, int(nth))
    after(change, "build", strike, "after snapshot")
    after(SqlCatalog, "_write_metadata", strike, "after metadata", kind=staticmethod)
    after(SqlCatalog, "commit_table", strike, "after swap")
    make(Path(root)).run("caught-up", engine="local", env=tg.Env(point=strike))


if __name__ == "__main__":
    main()
