"""A driver to be killed: `python -m tests.flow.postgres_driver ROOT ADDRESS POINT NTH` runs a flow to its end.

It writes to two tables in PostgreSQL, one of them by key. POINT is `before` or `after` one of the env's effects, or
one of `INSIDE`; the driver kills itself the NTH time it comes there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
from tests.killed import killing

import tidegauge as tg
from tidegauge.sinks.postgres import progress, rows

INSIDE = ("after rows", "after upper", "after COMMIT")
COLUMNS = "id long, name string"


def make(root: Path, address: str) -> tg.Dataflow:
    """Return the flow."""
    flow = tg.Dataflow("kill", store=f"sqlite:///{root}/flow.db", tick=0.02)
    file = tg.FileSource(str(root / "in" / "*.jsonl"), format=tg.Json(COLUMNS), metadata=True, max_bytes_per_epoch=80)
    users = flow.source("users", file)
    how = {"staging": f"{root}/staging"}
    flow.sink("added", users, tg.PostgresSink(address, "added", **how))  # type: ignore[arg-type]
    by_id: Any = {"envelope": "upsert", "key": "id", "order": "name", **how}
    flow.sink("by_id", users, tg.PostgresSink(address, "by_id", **by_id))
    return flow


def after(module: Any, name: str, strike: Callable[[str], None], point: str) -> None:
    """Come to a point right after a step, for the rest of this process."""
    step = getattr(module, name)

    def both(*args: Any, **named: Any) -> Any:
        found = step(*args, **named)
        strike(point)
        return found

    mock.patch.object(module, name, both).start()


def main() -> None:
    """Live, and perhaps die."""
    root, address, point, nth = sys.argv[1:]
    strike = killing(point or None, int(nth))
    after(rows, "append", strike, "after rows")
    after(rows, "upsert", strike, "after rows")
    after(progress, "record", strike, "after upper")
    after(psycopg.Connection, "commit", strike, "after COMMIT")
    make(Path(root), address).run("caught-up", engine="local", env=tg.Env(point=strike))


if __name__ == "__main__":
    main()
