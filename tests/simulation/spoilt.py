"""A flow whose upstreams have records that cannot be decoded, and what becomes of them: `search` looks here."""

from __future__ import annotations

from typing import Final

import tidegauge as tg

FAULTS: Final = ("spoil", "crash", "error", "stop")


def make_flow() -> tg.Dataflow:
    """Bad orders and bad lines are collected; clicks and visits fail of theirs."""
    flow = tg.Dataflow("spoilt", store="sqlite:///spoilt.db", tick=1.0)
    columns = tg.Json("id long, name string")
    orders = flow.source("orders", tg.KafkaSource("nowhere:9092", topic="orders", format=columns))
    clicks = flow.source("clicks", tg.KafkaSource("nowhere:9092", topic="clicks", format=columns))
    lines = flow.source("lines", tg.FileSource("/landing/*.jsonl", format=columns, metadata=True))
    visits = flow.source("visits", tg.FileSource("/visits/*.jsonl", format=columns))
    flow.sink("orders", orders, tg.DeltaSink("lake/orders"))
    flow.sink("bad_orders", orders.errors, tg.ParquetSink("lake/bad_orders"))
    flow.sink("clicks", clicks, tg.ParquetSink("lake/clicks"))
    flow.sink("lines", lines, tg.DeltaSink("lake/lines"))
    flow.sink("bad_lines", lines.errors, tg.ParquetSink("lake/bad_lines"))
    flow.sink("visits", visits.select("name"), tg.ParquetSink("lake/visits"))
    return flow
