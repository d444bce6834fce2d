"""Orders from Kafka to Parquet in bytewax, in its own environment: `... benchmarks.peers.kafka_with_bytewax SERVERS`.

Each line of the input, `TOPIC WAY BATCH FILE`, reads a topic from its beginning to its end with bytewax's own Kafka
source, in batches of so many messages, in one of the `WAYS`, and writes one file. It is answered by a line of JSON:
the seconds from starting the dataflow to the file's end, and its rows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

__all__ = ["WAYS"]

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("page", pa.string()),
    ]
)
_GROUP = 100_000
"""Rows of a row group, about."""


def _as_users_write_it(messages: list[Any]) -> list[pa.RecordBatch]:
    rows = []
    for message in messages:
        row = json.loads(message.value)
        row["at"] = datetime.fromisoformat(row["at"])
        rows.append(row)
    return [pa.RecordBatch.from_pylist(rows, _SCHEMA)]


def _arrow(messages: list[Any]) -> list[pa.RecordBatch]:
    text = b"\n".join([message.value for message in messages])
    options = pyarrow.json.ParseOptions(explicit_schema=_SCHEMA)
    table = pyarrow.json.read_json(pa.BufferReader(text), parse_options=options)
    return list(table.to_batches())


WAYS: dict[str, Callable[[list[Any]], list[pa.RecordBatch]]] = {
    "as_users_write_it": _as_users_write_it,
    "arrow": _arrow,
}
"""The task, written in two ways."""


class _File(StatelessSinkPartition[Any]):
    """One Parquet file, written by large row groups."""

    def __init__(self, path: str) -> None:
        self._writer = pyarrow.parquet.ParquetWriter(path, _SCHEMA)
        self._waiting: list[pa.RecordBatch] = []

    def write_batch(self, items: list[pa.RecordBatch]) -> None:
        self._waiting += items
        if sum(batch.num_rows for batch in self._waiting) >= _GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting, _SCHEMA))
        self._waiting = []


class _Files(DynamicSink[Any]):
    def __init__(self, path: str) -> None:
        self._path = path

    def build(self, _step_id: str, _worker: int, _workers: int) -> _File:
        return _File(self._path)


def _run(servers: str, topic: str, way: str, batch: int, path: str) -> dict[str, Any]:
    flow = Dataflow("orders")
    source = KafkaSource([servers], [topic], tail=False, batch_size=batch)
    made = op.flat_map_batch("decode", op.input("orders", flow, source), WAYS[way])
    op.output("file", made, _Files(path))
    begun = time.perf_counter()
    run_main(flow)  # type: ignore[no-untyped-call]
    taken = time.perf_counter() - begun
    return {"seconds": taken, "rows": pyarrow.parquet.read_metadata(path).num_rows}


def main() -> None:
    """Answer each line of the input."""
    for line in sys.stdin:
        topic, way, batch, path = line.split()
        print(json.dumps(_run(sys.argv[1], topic, way, int(batch), path)), flush=True)


if __name__ == "__main__":
    main()
