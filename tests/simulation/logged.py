"""A flow that reads what a dataflow of bytewax writes: alone, and in a union beside files that come all day."""

from __future__ import annotations

import tidegauge as tg

__all__ = ["FAULTS", "make_flow"]

FAULTS = ("crash", "error", "lost", "full", "away", "slow", "rival", "late", "outputs")


def make_flow() -> tg.Dataflow:
    """Two tables of a log, one of them by small epochs and beside a topic's files."""
    flow = tg.Dataflow("logged", store="sqlite:///logged.db", tick=1.0)
    columns = "id long, name string"
    clicks = flow.source("clicks", tg.BytewaxLogSource("/log", recovery="/recovery", columns=columns))
    few = tg.BytewaxLogSource("/few", recovery="/their", columns=columns, max_records_per_epoch=5)
    live = flow.source("live", tg.FileSource("/in/*.jsonl", format=tg.Json(columns)))
    flow.sink("clicks", clicks, tg.DeltaSink("lake/clicks"))
    flow.sink("ids", clicks.select("id"), tg.ParquetSink("lake/ids"))
    flow.sink("every", flow.source("all", tg.union(live, flow.source("few", few))), tg.DeltaSink("lake/every"))
    return flow
