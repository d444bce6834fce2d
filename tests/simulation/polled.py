"""A flow over sources that are polled, one for each merge strategy."""

from __future__ import annotations

from typing import get_args

import tidegauge as tg
from tidegauge.sources.polls.merging import Merges

__all__ = ["make_flow"]


def make_flow() -> tg.Dataflow:
    """A table of each source, with operations as plain data."""
    flow = tg.Dataflow("polled", store="sqlite:///polled.db", tick=1.0)
    for merge in get_args(Merges):
        source = tg.PollingSource(
            lambda _state: tg.Fetched([]),
            columns="id long, name string",
            staging="/nowhere",
            merge=merge,
            key=() if merge == "append" else "id",
        )
        rows = flow.source(merge, source)
        flow.sink(
            f"{merge}_table",
            rows if merge in ("append", "ledger") else rows.changelog("op"),
            tg.DeltaSink(f"lake/{merge}"),
        )
    return flow
