"""A flow of logs whose rotated names its pattern does not have. Epochs are small, and losses are noted."""

from __future__ import annotations

import tidegauge as tg


def make_flow() -> tg.Dataflow:
    """Lines with their places, and some of them."""
    flow = tg.Dataflow("log", store="sqlite:///log.db", tick=1.0)
    source = tg.FileSource(
        "/var/log/app?.jsonl",
        format=tg.Json("id long, name string"),
        metadata=True,
        max_bytes_per_epoch=150,
        on_data_loss="gap",
    )
    lines = flow.source("lines", source)
    flow.sink("lines", lines, tg.ParquetSink("lake/lines"))
    flow.sink("names", lines.select("name"), tg.DeltaSink("lake/names"))
    return flow
