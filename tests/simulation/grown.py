"""A flow over tables of a database that get columns while it runs: `search` looks here."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa
from tests.simulation.shop import COLUMNS, by_key

import tidegauge as tg
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.testing.simulation.plan import FaultKind

FAULTS: Final[tuple[FaultKind, ...]] = (
    *("alter", "gain", "crash", "pause", "slow", "error", "lost", "full", "away", "cut", "late", "rival", "stop"),
    *("torn", "retention", "history", "decisions", "restore", "rewind"),
)
KEYS: Final = {"orders": "id", "items": "name", "users": "id"}
_USERS: Final = pa.schema([("id", pa.int64()), ("mail", pa.string())])
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="tidegauge-grown-")
SourceFolder(str(Path(_FOLDER.name, "grown", "db"))).keep_columns({**COLUMNS, "public.users": _USERS})


def make_flow() -> tg.Dataflow:
    """All outputs of orders and of items take columns on; that of users does not."""
    flow = tg.Dataflow("grown", store="sqlite:///grown.db", tick=1.0)
    address = "postgresql://nobody@nowhere/grown"
    db = flow.source(
        "db", tg.PostgresSource(address, publication="all", tables=[*KEYS], folder=_FOLDER.name, metadata=True)
    )
    flow.sink("orders", db.table("orders"), by_key("orders", "id"), schema="add")
    flow.sink("changes", db.table("orders").changelog("op"), tg.ParquetSink("lake/changes"), schema="add")
    flow.sink("items", db.table("items"), by_key("items", "name"), schema="evolve")
    flow.sink("users", db.table("users"), by_key("users", "id"))
    return flow
