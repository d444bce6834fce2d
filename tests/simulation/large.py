"""A flow over tables of a database whose large values are left out where they do not change: `search` looks here."""

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
    *("crash", "pause", "slow", "error", "lost", "full", "away", "cut", "late", "rival", "stop", "torn"),
    *("retention", "history", "decisions", "rewind", "alter"),
)
KEYS: Final = {"posts": "id", "pages": "path"}
COLUMNS: Final = {
    "public.posts": pa.schema([("id", pa.int64()), ("body", pa.string()), ("votes", pa.int32())]),
    "public.pages": pa.schema([("path", pa.string()), ("html", pa.string()), ("seen", pa.bool_())]),
}
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="tidegauge-large-")
SourceFolder(str(Path(_FOLDER.name, "large", "db"))).keep_columns(COLUMNS)


def make_flow() -> tg.Dataflow:
    """Each table goes to one output by key; that of posts takes columns on, and one more shows its text alone."""
    flow = tg.Dataflow("large", store="sqlite:///large.db", tick=1.0)
    address = "postgresql://nobody@nowhere/large"
    db = flow.source(
        "db", tg.PostgresSource(address, publication="all", tables=[*KEYS], folder=_FOLDER.name, metadata=True)
    )
    flow.sink("posts", db.table("posts"), by_key("posts", "id"), schema="add")
    flow.sink("texts", db.table("posts").select("id", "body AS text", "_sequence"), by_key("texts", "id"))
    flow.sink("pages", db.table("pages"), by_key("pages", "path"))
    return flow
