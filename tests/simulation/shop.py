"""A flow over two tables of a database, whose columns the source's folder has, and a topic beside it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa

import tidegauge as tg
from tidegauge.sources.database.folder import SourceFolder

COLUMNS: Final = {
    "public.orders": pa.schema(
        [
            ("id", pa.int64()),
            ("amount", pa.decimal128(10, 2)),
            ("note", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    ),
    "public.items": pa.schema([("name", pa.string()), ("price", pa.float64()), ("sold", pa.bool_())]),
}
_FOLDER: Final = tempfile.TemporaryDirectory(prefix="tidegauge-shop-")
SourceFolder(str(Path(_FOLDER.name, "shop", "db"))).keep_columns(COLUMNS)


def by_key(table: str, key: str) -> tg.DeltaSink:
    return tg.DeltaSink(f"lake/{table}", envelope="upsert", key=key, order="_sequence")


def make_flow() -> tg.Dataflow:
    """Changes of one table go to two outputs, those of the other to one."""
    flow = tg.Dataflow("shop", store="sqlite:///shop.db", tick=1.0)
    db = flow.source(
        "db",
        tg.PostgresSource(
            "postgresql://nobody@nowhere/shop",
            publication="shop",
            tables=["orders", "items"],
            folder=_FOLDER.name,
            metadata=True,
        ),
    )
    clicks = flow.source("clicks", tg.KafkaSource("nowhere:9092", topic="clicks", format=tg.Json("n long")))
    orders = db.table("orders")
    flow.sink("orders", orders, by_key("orders", "id"))
    flow.sink("changes", orders.changelog("op"), tg.ParquetSink("lake/changes"))
    flow.sink("items", db.table("items"), by_key("items", "name"))
    flow.sink("clicks", clicks, tg.ParquetSink("lake/clicks"))
    return flow
