"""The flow of `joined` over a MariaDB, and the same over those of MySQLs: `search` looks here."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa
from tests.simulation.shop import by_key
from tests.simulation.store import COLUMNS

import tidegauge as tg
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.mysql.servers import MARIADB_SERVER, MYSQL8_SERVER, MYSQL_SERVER, ServerKind
from tidegauge.sources.mysql.source import KIND_NOTE
from tidegauge.testing.simulation.plan import FaultKind

FAULTS: Final[tuple[FaultKind, ...]] = (
    *("gain", "crash", "pause", "slow", "error", "lost", "full", "away", "cut", "late", "rival", "stop", "torn"),
    *("retention", "history", "decisions", "remake", "restore", "rewind", "alter"),
)
KEYS: Final = {"orders": "id", "items": "name", "users": "id"}
_USERS: Final = pa.schema([("id", pa.int64()), ("mail", pa.string())])
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="tidegauge-joined-")


def flow_of(name: str, kind: ServerKind) -> tg.Dataflow:
    """The flow begins without items and users, in worlds in which others declare them."""
    folder = SourceFolder(str(Path(_FOLDER.name, name, "db")))
    if folder.columns() is None:
        folder.keep_columns({**COLUMNS, "store.users": _USERS})
        folder.note(KIND_NOTE, {"clock": kind.clock.kind, "server": kind.name}, durable=True)
    flow = tg.Dataflow(name, store="sqlite:///joined.db", tick=1.0)
    url = "mysql://nobody@nowhere/store"
    db = flow.source("db", tg.MySqlSource(url, tables=[*KEYS], folder=_FOLDER.name, metadata=True))
    for table, key in KEYS.items():
        flow.sink(table, db.table(table), by_key(table, key))
    flow.sink("changes", db.table("items").changelog("op"), tg.ParquetSink("lake/changes"))
    return flow


def make_flow() -> tg.Dataflow:
    """The flow over a MariaDB."""
    return flow_of("mariadb", MARIADB_SERVER)


def of_mysql() -> tg.Dataflow:
    """The flow over a MySQL 5.6."""
    return flow_of("mysql", MYSQL_SERVER)


def of_mysql8() -> tg.Dataflow:
    """The flow over a MySQL 8.0."""
    return flow_of("mysql8", MYSQL8_SERVER)
