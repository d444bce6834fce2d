"""A flow into which files are loaded: alone by small epochs, and in a union beside files that come all day."""

from __future__ import annotations

import tidegauge as tg

__all__ = ["FAULTS", "make_flow"]

FAULTS = ("crash", "error", "lost", "full", "away", "slow", "spoil", "rival", "late", "outputs")


def make_flow() -> tg.Dataflow:
    """A table of loads, and one of loads and a topic's files."""
    flow = tg.Dataflow("loaded", store="sqlite:///loaded.db", tick=1.0)
    columns = "id long, name string"
    history = flow.source("history", tg.BatchSource("/nowhere/history", columns=columns, max_records_per_epoch=5))
    older = flow.source("older", tg.BatchSource("/nowhere/older", columns=columns))
    live = flow.source("live", tg.FileSource("/in/*.jsonl", format=tg.Json(columns)))
    flow.sink("orders", flow.source("every", tg.union(live, history)), tg.DeltaSink("lake/orders"))
    flow.sink("loads", history.select("id"), tg.ParquetSink("lake/loads"))
    flow.sink("old", older, tg.DeltaSink("lake/old"))
    return flow
