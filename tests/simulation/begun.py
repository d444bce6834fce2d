"""A flow whose outputs begin where they say, or have one epoch for their past: `search` looks here."""

from __future__ import annotations

from typing import Final

from tests.simulation.reference import doubled

import tidegauge as tg

FAULTS: Final = ("outputs", "crash", "error", "lost", "stop", "history", "restore", "decisions")


def make_flow() -> tg.Dataflow:
    """One table from the start, one from now on, and those whose past is collapsed."""
    flow = tg.Dataflow("begun", store="sqlite:///begun.db", tick=1.0)
    orders = flow.source(
        "orders", tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long, amount double"))
    )
    clicks = flow.source(
        "clicks",
        tg.KafkaSource("nowhere:9092", topic="clicks", format=tg.Json("n long"), max_records_per_epoch=7),
    )
    flow.sink("orders", orders, tg.DeltaSink("lake/orders"))
    flow.sink("new", orders.filter("amount > 0.5"), tg.ParquetSink("lake/new"), start="now")
    flow.sink("past", orders.select("id"), tg.ParquetSink("lake/past"), timestamps="collapse")
    flow.sink("clicks", clicks.map_batches(doubled), tg.DeltaSink("lake/clicks"), timestamps="collapse")
    return flow
