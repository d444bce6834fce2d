"""A flow that is pushed at: a source of two streams over one connection, and a topic beside it."""

from __future__ import annotations

import pyarrow as pa

import tidegauge as tg


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every row twice, so that an output has another number of rows than its source."""
    return pa.concat_batches([batch, batch])


def make_flow() -> tg.Dataflow:
    """One stream has two outputs, which may hold different epochs; the other stream shares its connection."""
    flow = tg.Dataflow("news", store="sqlite:///news.db", tick=1.0)
    feed = flow.source(
        "feed",
        tg.SocketSource("nowhere", 9000, columns={"orders": "id long, amount double", "users": "name string"}),
    )
    clicks = flow.source("clicks", tg.KafkaSource("nowhere:9092", topic="clicks", format=tg.Json("n long")))
    orders = feed.stream("orders")
    flow.sink("orders", orders, tg.DeltaSink("lake/orders"))
    flow.sink("large", orders.filter("amount > 0.5").map_batches(doubled), tg.ParquetSink("lake/large"))
    flow.sink("users", feed.stream("users"), tg.ParquetSink("lake/users"))
    flow.sink("clicks", clicks, tg.ParquetSink("lake/clicks"))
    return flow
