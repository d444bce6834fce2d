"""Formats: messages of five columns become Arrow rows, in one process, on one core.

The peers read the same messages one by one and make the same columns: `json.loads`, `csv.reader`, fastavro's
`schemaless_reader` and Protobuf's own parser, each with `RecordBatch.from_pylist`. Both sides' rows are compared
once. One line has a bad record among its messages.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable
from typing import Any, Final

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import tidegauge as tg
from benchmarks.figures import Figure, Goal
from benchmarks.room import Room

__all__ = ["measure"]

_REPETITIONS: Final = 5
_DDL: Final = "id long, user string, amount double, paid boolean, note string"
_TYPES: Final = {"id": "long", "user": "string", "amount": "double", "paid": "boolean", "note": "string"}
_AVRO: Final = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": of} for name, of in _TYPES.items()],
}
_NUMBERS: Final = {"long": 3, "string": 9, "double": 1, "boolean": 8}
"""Types in descriptor.proto."""

Way = tuple[str, Any, list[bytes], Callable[[bytes], dict[str, Any]] | None]


def _rows(count: int) -> list[dict[str, Any]]:
    return [
        {"id": i * 1000, "user": f"user{i % 997}", "amount": i / 3, "paid": i % 2 == 0, "note": f"some note {i}"}
        for i in range(count)
    ]


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, of) in enumerate(_TYPES.items(), 1):
        order.field.add(name=name, number=number, type=_NUMBERS[of], label=1)
    return file


def _ways(rows: list[dict[str, Any]]) -> list[Way]:
    texts = [json.dumps(row).encode() for row in rows]
    return [
        ("raw", tg.Raw(), texts, None),
        ("text", tg.Text(), texts, None),
        _json(texts),
        _csv(rows),
        *_binary(rows),
    ]


def _json(texts: list[bytes]) -> Way:
    return "JSON", tg.Json(_DDL), texts, json.loads


def _csv(rows: list[dict[str, Any]]) -> Way:
    values = [",".join(map(str, row.values())).encode() for row in rows]

    def read(value: bytes) -> dict[str, Any]:
        [(number, user, amount, paid, note)] = csv.reader([value.decode()])
        return {"id": int(number), "user": user, "amount": float(amount), "paid": paid == "True", "note": note}

    return "CSV", tg.Csv(_DDL), values, read


def _binary(rows: list[dict[str, Any]]) -> list[Way]:
    schema = fastavro.parse_schema(dict(_AVRO))
    avro = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, row)
        avro.append(stream.getvalue())
    file, pool = _file(), descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()

    def read_avro(value: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(value), schema, None)

    def read_protobuf(value: bytes) -> dict[str, Any]:
        order = made.FromString(value)
        return {name: getattr(order, name) for name in _TYPES}

    return [
        ("Avro", tg.Avro(_AVRO), avro, read_avro),
        (
            "Protobuf",
            tg.Protobuf("shop.Order", descriptor=files),
            [made(**row).SerializeToString() for row in rows],
            read_protobuf,
        ),
    ]


def _ours(made: Any, values: list[bytes], *, bad: int) -> tuple[float, pa.RecordBatch]:
    found: list[int] = []
    begun = time.perf_counter()
    rows = made.decode_messages(values, schema=made.schema, on_bad=lambda i, *_: found.append(i)).rows
    taken = time.perf_counter() - begun
    if len(found) != bad or rows.num_rows + bad != len(values):
        raise AssertionError(f"{rows.num_rows} rows and {len(found)} bad records of {len(values)} messages")
    return len(values) / taken, rows


def _peer(made: Any, values: list[bytes], read: Callable[[bytes], dict[str, Any]]) -> tuple[float, pa.RecordBatch]:
    begun = time.perf_counter()
    rows = pa.RecordBatch.from_pylist([read(value) for value in values], made.schema)
    return len(values) / (time.perf_counter() - begun), rows


def measure(room: Room) -> list[Figure]:
    """Measure six formats, and each with a bad record, in about half a minute."""
    figures: list[Figure] = []
    for name, made, values, read in _ways(_rows(room.size(200_000, 2_000))):
        room.say(name)
        ours, peers, hurt = [], [], []
        damaged = [*values[: len(values) // 2], b"\xff{", *values[len(values) // 2 + 1 :]]
        for _ in range(_REPETITIONS):
            speed, rows = _ours(made, values, bad=0)
            ours.append(speed)
            hurt.append(_ours(made, damaged, bad=int(name != "raw"))[0])
            if read is not None:
                speed, expected = _peer(made, values, read)
                peers.append(speed)
                if not rows.equals(expected):
                    raise AssertionError(f"the rows of {name} are not the peer's")
        goal = {"raw": Goal("ours", ">=", 0.8e6), "Avro": Goal("ours", ">=", 0.5e6)}.get(name)
        figures.append(
            Figure(
                f"decode {name}", "rows/s", tuple(ours), tuple(peers), "row by row" if peers else "", goal,
                f"{sorted(hurt)[len(hurt) // 2]:,.0f} rows/s with one bad record" if name != "raw" else "",
                {"with one bad record": hurt},
            )
        )  # fmt: skip
    return figures
