"""A flow over tables of a database, some of whose rows are in partitions: `search` looks here."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa
from tests.simulation.shop import by_key

import tidegauge as tg
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.testing.simulation.plan import FaultKind

FAULTS: Final[tuple[FaultKind, ...]] = (
    *("alter", "crash", "pause", "slow", "error", "lost", "full", "away", "cut", "late", "rival", "stop", "clock"),
    *("retention", "history", "decisions", "rewind", "promote"),
)
KEYS: Final = {"orders": "id", "users": "id"}
COLUMNS: Final = {
    "public.orders": pa.schema([("id", pa.int64()), ("amount", pa.decimal128(10, 2)), ("note", pa.string())]),
    "public.users": pa.schema([("id", pa.int64()), ("mail", pa.string())]),
}
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="tidegauge-parts-")
SourceFolder(str(Path(_FOLDER.name, "parts", "db"))).keep_columns(COLUMNS)


def make_flow() -> tg.Dataflow:
    """Each table is kept by key, and all changes of one of them as well."""
    flow = tg.Dataflow("parts", store="sqlite:///parts.db", tick=1.0)
    address = "postgresql://nobody@nowhere/parts"
    db = flow.source(
        "db", tg.PostgresSource(address, publication="all", tables=[*KEYS], folder=_FOLDER.name, metadata=True)
    )
    for table, key in KEYS.items():
        flow.sink(table, db.table(table), by_key(table, key), schema="add")
    flow.sink("changes", db.table("orders").changelog("op"), tg.ParquetSink("lake/changes"), schema="add")
    return flow
