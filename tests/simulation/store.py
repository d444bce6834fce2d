"""A flow over two tables of a MariaDB, and the same over those of MySQLs: the source's folder has the columns."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa
from tests.simulation.shop import by_key

import tidegauge as tg
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.mysql.servers import MARIADB_SERVER, MYSQL8_SERVER, MYSQL_SERVER, ServerKind

COLUMNS: Final = {
    "store.orders": pa.schema(
        [
            ("id", pa.int64()),
            ("amount", pa.decimal128(10, 2)),
            ("note", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    ),
    "store.items": pa.schema(
        [("name", pa.string()), ("price", pa.float64()), ("day", pa.date32()), ("n", pa.int16())]
    ),
}
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="tidegauge-store-")


def flow_of(kind: str, server: ServerKind) -> tg.Dataflow:
    """Changes of one table go to two outputs, those of the other to one."""
    folder = SourceFolder(str(Path(_FOLDER.name, kind, "db")))
    if folder.columns() is None:
        folder.keep_columns(COLUMNS)
        folder.note("server.json", {"clock": server.clock.kind, "server": server.name}, durable=True)
    flow = tg.Dataflow(kind, store="sqlite:///store.db", tick=1.0)
    url, tables = "mysql://nobody@nowhere/store", ["orders", "items"]
    db = flow.source("db", tg.MySqlSource(url, tables=tables, folder=_FOLDER.name, metadata=True))
    orders = db.table("orders")
    flow.sink("orders", orders, by_key("orders", "id"))
    flow.sink("changes", orders.changelog("op"), tg.ParquetSink("lake/changes"))
    flow.sink("items", db.table("items"), by_key("items", "name"))
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
