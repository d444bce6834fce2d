"""A flow whose outputs lead many lives: they come late, begin anew, are made again. `search` looks here."""

from __future__ import annotations

from typing import Final

from tests.simulation.reference import doubled

import tidegauge as tg

FAULTS: Final = ("outputs", "crash", "pause", "stop", "decisions", "add", "anew", "remake")


def make_flow() -> tg.Dataflow:
    """Two sources; tables that come after others, begin where they say, or get their past from another one."""
    flow = tg.Dataflow("lives", store="sqlite:///lives.db", tick=1.0)
    orders = flow.source(
        "orders", tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long, amount double"))
    )
    clicks = flow.source(
        "clicks",
        tg.KafkaSource("nowhere:9092", topic="clicks", format=tg.Json("n long"), max_records_per_epoch=7),
    )
    flow.sink("orders", orders, tg.DeltaSink("lake/orders"))
    flow.sink("large", orders.filter("amount > 0.5"), tg.DeltaSink("lake/large"), after="orders")
    flow.sink("ids", orders.select("id"), tg.DeltaSink("lake/ids"), start=tg.From("orders"), after="large")
    flow.sink("clicks", clicks.map_batches(doubled), tg.DeltaSink("lake/clicks"))
    flow.sink("past", clicks, tg.DeltaSink("lake/past"), timestamps="collapse", after=("orders", "clicks"))
    return flow
