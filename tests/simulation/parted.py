"""A flow whose outputs are parts of one stream, the first rows of its keys, and the elements of its lists."""

from __future__ import annotations

import pyarrow as pa

import tidegauge as tg

__all__ = ["make_flow"]


def listed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A list for each row, some of them empty or null."""
    lists = [None if n is None else [n] * (n % 3) for n in batch["id"].to_pylist()]
    return batch.append_column("items", pa.array(lists, pa.list_(pa.int64())))


def make_flow() -> tg.Dataflow:
    flow = tg.Dataflow("parted", store="sqlite:///parted.db", tick=1.0)
    log = tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long, kind int"))
    orders = flow.source("orders", log)
    files = tg.FileSource("/landing/*.jsonl", format=tg.Json("id long, name string"), metadata=True)
    lines = flow.source("lines", files)
    one, other = orders.partition(2, "id")
    by_kind = orders.split_by("kind", [0, 1])
    flow.sink("one", one, tg.DeltaSink("lake/one"))
    flow.sink("other", other, tg.ParquetSink("lake/other"))
    flow.sink("zero", by_kind[0], tg.ParquetSink("lake/zero"))
    flow.sink("rest", by_kind.rest.dedupe("kind"), tg.ParquetSink("lake/rest"))
    flow.sink("items", orders.map_batches(listed).unnest("items"), tg.DeltaSink("lake/items"))
    flow.sink("firsts", orders.filter("id > 0").dedupe("kind"), tg.DeltaSink("lake/firsts"))
    flow.sink("names", lines.dedupe("name"), tg.ParquetSink("lake/names"))
    return flow
