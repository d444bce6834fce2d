"""A flow that lists files in three ways: each version again, in order by small epochs, and compressed."""

from __future__ import annotations

import tidegauge as tg

__all__ = ["FAULTS", "make_flow"]

FAULTS = ("crash", "error", "full", "retention", "spoil", "slow")


def make_flow() -> tg.Dataflow:
    """A table of each source."""
    flow = tg.Dataflow("listed", store="sqlite:///listed.db", tick=1.0)
    lines = tg.Json("id long, name string")
    again = flow.source(
        "again",
        tg.ListingSource("/in/**/*.jsonl", format=lines, staging="/nowhere", on_change="again", on_data_loss="gap"),
    )
    ordered = flow.source(
        "ordered",
        tg.ListingSource(
            "s3://lake/in/*.jsonl", format=lines, staging="/nowhere", ordered=True, max_bytes_per_epoch=100
        ),
    )
    zipped = flow.source("zipped", tg.ListingSource("/in/*.jsonl.gz", format=lines, staging="/nowhere"))
    flow.sink("again_table", again, tg.DeltaSink("lake/again"))
    flow.sink("again_bad", again.errors, tg.ParquetSink("lake/again_bad"))
    flow.sink("ordered_table", ordered, tg.DeltaSink("lake/ordered"))
    flow.sink("zipped_table", zipped.select("id"), tg.ParquetSink("lake/zipped"))
    return flow
