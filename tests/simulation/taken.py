"""A flow whose outputs get their past from the table of another one: `search` looks here."""

from __future__ import annotations

from typing import Final

from tests.simulation.reference import doubled

import tidegauge as tg

FAULTS: Final = ("outputs", "crash", "error", "lost", "stop", "history", "restore", "decisions")


def make_flow() -> tg.Dataflow:
    """Two sources; tables that go on from the rows of others, faithfully and as one epoch."""
    flow = tg.Dataflow("taken", store="sqlite:///taken.db", tick=1.0)
    orders = flow.source(
        "orders", tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long, amount double"))
    )
    clicks = flow.source(
        "clicks",
        tg.KafkaSource("nowhere:9092", topic="clicks", format=tg.Json("n long"), max_records_per_epoch=7),
    )
    large = orders.filter("amount > 0.5")
    flow.sink("orders", orders, tg.DeltaSink("lake/orders"))
    flow.sink("large", large, tg.ParquetSink("lake/large"), start=tg.From("orders"))
    flow.sink("ids", large.select("id"), tg.ParquetSink("lake/ids"), start=tg.From("large"), timestamps="collapse")
    flow.sink("clicks", clicks, tg.DeltaSink("lake/clicks"))
    flow.sink("twice", clicks.map_batches(doubled), tg.DeltaSink("lake/twice"), start=tg.From("clicks"))
    return flow
