"""A flow whose sources gain columns while it runs: `search` looks here."""

from __future__ import annotations

from typing import Final

from tests.simulation.reference import doubled

import tidegauge as tg

LIVING: Final = (
    *("gain", "outputs", "crash", "pause", "slow", "error", "lost", "rival", "stop", "torn"),
    *("history", "decisions", "add", "anew", "remake"),
)
FAULTS: Final = (*LIVING, "restore", "rewind")
"""Also those that put back an older store, which does not know of some columns."""


def make_flow() -> tg.Dataflow:
    """Orders gain up to two columns, and clicks one. All outputs take them on but one, which does without."""
    flow = tg.Dataflow("gained", store="sqlite:///gained.db", tick=1.0)
    columns = "id long, amount double, note string, place int"
    orders = flow.source("orders", tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json(columns)))
    clicks_log = tg.KafkaSource(
        "nowhere:9092", topic="clicks", format=tg.Json("n long, page string"), max_records_per_epoch=7
    )
    clicks = flow.source("clicks", clicks_log)
    flow.sink("orders", orders, tg.DeltaSink("lake/orders"), schema="add")
    flow.sink("large", orders.filter("amount > 0.5"), tg.IcebergSink("shop.large", "lake"), schema="evolve")
    flow.sink("ids", orders.select("id"), tg.ParquetSink("lake/ids"))
    flow.sink("clicks", clicks, tg.DeltaSink("lake/clicks"), schema="add")
    flow.sink("twice", clicks.map_batches(doubled), tg.ParquetSink("lake/twice"), schema="add")
    return flow
