"""A flow whose tables gather epochs for their commits, each in its own way. `search` looks here."""

from __future__ import annotations

from typing import Final

import tidegauge as tg

FAULTS: Final = ("outputs", "crash", "pause", "stop", "error", "lost", "decisions", "add", "remake")


def make_flow() -> tg.Dataflow:
    """Two sources, and beside what is committed at once tables that wait for a time, for epochs, and for bytes."""
    flow = tg.Dataflow("gathered", store="sqlite:///gathered.db", tick=1.0)
    orders = flow.source(
        "orders", tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long, amount double"))
    )
    clicks = flow.source(
        "clicks",
        tg.KafkaSource("nowhere:9092", topic="clicks", format=tg.Json("n long"), max_records_per_epoch=7),
    )
    flow.sink("orders", orders, tg.DeltaSink("lake/orders"), commit_every="5s")
    flow.sink("large", orders.filter("amount > 0.5"), tg.DeltaSink("lake/large"), commit_every=3)
    flow.sink("ids", orders.select("id"), tg.DeltaSink("lake/ids"), start=tg.From("orders"), commit_every="1kB")
    flow.sink("clicks", clicks, tg.DeltaSink("lake/clicks"))
    return flow
