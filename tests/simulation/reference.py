"""The flow that is simulated most: two sources that differ, and outputs of each kind of step."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

import tidegauge as tg
from tidegauge.testing.simulation.plan import APART, KINDS

FAULTS: Final = tuple(kind for kind in KINDS if kind not in APART)
"""What goes wrong where `search` looks here, and in seeds that were found before there were decisions."""


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every row twice, so that an output has another number of rows than its source."""
    return pa.concat_batches([batch, batch])


def make_flow() -> tg.Dataflow:
    """Orders lose records to retention and go on; of clicks an epoch takes few, so that a backlog is many epochs."""
    flow = tg.Dataflow("shop", store="sqlite:///shop.db", tick=1.0)
    orders = flow.source(
        "orders",
        tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long, amount double"), on_data_loss="gap"),
    )
    clicks = flow.source(
        "clicks",
        tg.KafkaSource(
            "nowhere:9092", topic="clicks", format=tg.Json("n long, page string"), max_records_per_epoch=7
        ),
    )
    flow.sink("orders", orders, tg.DeltaSink("lake/orders"))
    flow.sink("large", orders.filter("amount > 0.5").select("id"), tg.ParquetSink("lake/large"))
    flow.sink("clicks", clicks.map_batches(doubled), tg.ParquetSink("lake/clicks"))
    return flow
