"""A flow over tables of a database that are declared one after the other: `search` looks here."""

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
    *("gain", "crash", "pause", "slow", "error", "lost", "full", "away", "cut", "late", "rival", "stop", "torn"),
    *("retention", "history", "decisions", "remake", "restore", "rewind"),
)
KEYS: Final = {"orders": "id", "items": "name", "users": "id"}
_USERS: Final = pa.schema([("id", pa.int64()), ("mail", pa.string())])
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="tidegauge-joined-")
SourceFolder(str(Path(_FOLDER.name, "joined", "db"))).keep_columns({**COLUMNS, "public.users": _USERS})


def make_flow() -> tg.Dataflow:
    """The flow begins without items and users, in worlds in which others declare them."""
    flow = tg.Dataflow("joined", store="sqlite:///joined.db", tick=1.0)
    address = "postgresql://nobody@nowhere/joined"
    db = flow.source(
        "db", tg.PostgresSource(address, publication="all", tables=[*KEYS], folder=_FOLDER.name, metadata=True)
    )
    for table, key in KEYS.items():
        flow.sink(table, db.table(table), by_key(table, key))
    flow.sink("changes", db.table("items").changelog("op"), tg.ParquetSink("lake/changes"))
    return flow
