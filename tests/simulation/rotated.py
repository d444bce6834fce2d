"""A flow of logs that are rotated within its pattern, of which an epoch takes little."""

from __future__ import annotations

import tidegauge as tg


def make_flow() -> tg.Dataflow:
    """Lines with their places."""
    flow = tg.Dataflow("log", store="sqlite:///log.db", tick=1.0)
    form = tg.Json("id long, name string")
    source = tg.FileSource("/var/log/app*.log", format=form, metadata=True, max_bytes_per_epoch=150)
    flow.sink("lines", flow.source("lines", source), tg.ParquetSink("lake/lines"))
    return flow
