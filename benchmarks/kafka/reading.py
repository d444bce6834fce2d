"""What a core reads: one partition through `source.read`, in one process, by the processor time of all its threads.

So the client's own threads count as well, which fetch and check what the broker sends.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import fastavro

import tidegauge as tg
from benchmarks.data import COLUMNS
from benchmarks.figures import Figure, Goal
from benchmarks.kafka.topics import fill, orders
from benchmarks.room import Room
from tidegauge.sources.formats.messages import MessageFormat
from tidegauge.sources.kafka.planning import KafkaSplit, Range
from tidegauge.testing import Endpoint

__all__ = ["measure"]

_TYPES: Final = {
    "id": "long",
    "user": "string",
    "amount": "double",
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "page": "string",
}
_AVRO: Final = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": of} for name, of in _TYPES.items()],
}


def _in_avro(count: int) -> Iterator[list[bytes]]:
    schema = fastavro.parse_schema(dict(_AVRO))
    for run in orders(count):
        written = []
        for text in run:
            order, stream = json.loads(text), io.BytesIO()
            fastavro.schemaless_writer(stream, schema, {**order, "at": datetime.fromisoformat(order["at"])})
            written.append(stream.getvalue())
        yield written


def _read(broker: Endpoint, topic: str, form: MessageFormat, rows: int) -> tuple[float, float]:
    """Return rows a second of processor time, and of time."""
    source: Any = tg.KafkaSource(broker.servers, topic=topic, format=form)
    split = KafkaSplit(epoch=0, ranges=(Range(f"{topic}-0", 0, rows),), schema=source.schema)
    begun, worked = time.perf_counter(), time.process_time()
    read = sum(batch.num_rows for batch in source.read(split, _never))
    taken, work = time.perf_counter() - begun, time.process_time() - worked
    if read != rows:
        raise RuntimeError(f"{read} rows of {rows} came out of {topic}")
    return rows / work, rows / taken


def _never(record: object) -> None:
    raise RuntimeError(f"a bad record: {record}")


def measure(room: Room, broker: Endpoint) -> list[Figure]:
    """Measure plain bytes, JSON and Avro, in turns."""
    rows = room.size(500_000, 20_000)
    for topic, runs in (("json-one", orders(rows)), ("avro-one", _in_avro(rows))):
        fill(broker.servers, broker.create_topic(topic), runs, partitions=1)
    cases: dict[str, tuple[str, MessageFormat, Goal | None]] = {
        "plain bytes": ("json-one", tg.Raw(), Goal("ours", ">=", 0.8e6)),
        "JSON": ("json-one", tg.Json(COLUMNS), None),
        "Avro": ("avro-one", tg.Avro(_AVRO), Goal("ours", ">=", 0.5e6)),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for turn in range(room.size(6, 2)):
        for name, (topic, form, _) in cases.items():
            sample = _read(broker, topic, form, rows)
            if turn:  # the first pays for what is loaded once
                found[name].append(sample)
    return [
        Figure(
            f"{name} from one partition, by processor time", "rows/s a core", tuple(work for work, _ in samples),
            goal=cases[name][2], details={"rows": rows, "by time": [taken for _, taken in samples]},
        )
        for name, samples in found.items()
    ]  # fmt: skip
