"""Names that a table cannot tell apart, or that Tidegauge writes itself, are refused at the start, by name."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2
from tests.sources.formats.registry import serving
from tests.sources.kafka.writing import NOW, write

import tidegauge as tg
from tidegauge.errors.flow import InvalidSchema, ReservedColumn
from tidegauge.errors.formats import NamesAlike, UnknownSchemaId
from tidegauge.remap.binding import Bound
from tidegauge.sources.formats import registry as client
from tidegauge.testing import Endpoint


def record(*names: str) -> dict[str, Any]:
    return {"type": "record", "name": f"R{len(names)}", "fields": [{"name": name, "type": "long"} for name in names]}


def avro(*names: str) -> Any:
    return tg.Avro(record(*names))


def avro_inside(*names: str) -> Any:
    lists = {"type": "array", "items": {"type": "map", "values": record(*names)}}
    return tg.Avro({"type": "record", "name": "Outer", "fields": [{"name": "at", "type": lists}]})


def protobuf(*names: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="shop", syntax="proto3")
    order, outer = file.message_type.add(name="Order"), file.message_type.add(name="Outer")
    for number, name in enumerate(names, 1):
        order.field.add(name=name, json_name=f"j{number}", number=number, type=3, label=1)
    outer.field.add(name="at", number=1, type=11, type_name=".shop.Order", label=3)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def parquet(*names: str) -> Any:
    made = io.BytesIO()
    pq.write_table(pa.table([[1]] * len(names), names=list(names)), made)
    return tg.Parquet().infer_whole(made)


FOUND: dict[str, tuple[Callable[..., Any], str]] = {
    "JSON": (lambda *names: tg.Json().infer_messages([b'{"%s": 1}' % name.encode() for name in names]), ""),
    "JSON, inside": (
        lambda *names: tg.Json().infer(b'{"at": [{%s}]}\n' % ", ".join(f'"{name}": 1' for name in names).encode()),
        "at.",
    ),
    "CSV": (lambda *names: tg.Csv().infer(f"{','.join(names)}\n{','.join('1' for _ in names)}\n".encode()), ""),
    "Parquet": (parquet, ""),
    "Avro": (avro, ""),
    "Avro, inside": (avro_inside, "at."),
    "Protobuf": (lambda *names: tg.Protobuf("shop.Order", descriptor=protobuf(*names)), ""),
    "Protobuf, inside": (lambda *names: tg.Protobuf("shop.Outer", descriptor=protobuf(*names)), "at."),
}


@pytest.mark.parametrize("found", FOUND)
def test_names_that_differ_in_case_only_are_refused_with_both(found: str) -> None:
    make, path = FOUND[found]
    assert make("id", "idle") is not None
    with pytest.raises(NamesAlike) as refused:
        make("id", "amount", "ID")
    assert f"{path + 'id'!r} and {path + 'ID'!r}" in str(refused.value)
    if not path:
        with pytest.raises(ReservedColumn, match="_Epoch"):
            make("id", "_Epoch")


def test_names_that_are_declared_alike_are_refused() -> None:
    for declare in (tg.Json, tg.Csv, tg.Parquet):
        with pytest.raises(InvalidSchema, match="a second column named 'ID'"):
            declare("id long, ID long")
        with pytest.raises(ReservedColumn):
            declare("_epoch long")


@pytest.mark.parametrize("name", ["_offset", "_Offset", "_partition", "_timestamp", "_key", "_headers"])
def test_the_name_of_a_metadata_column_is_taken_only_where_there_are_such_columns(name: str) -> None:
    shop = tg.Protobuf("shop.Order", descriptor=protobuf("id", name))
    for each in (avro("id", name), shop, tg.Json(f"{name} int")):
        assert tg.KafkaSource("localhost:9092", topic="orders", format=each).schema is not None
        with pytest.raises(ReservedColumn, match=name):
            tg.KafkaSource("localhost:9092", topic="orders", format=each, metadata=True)


def test_a_registered_schema_that_is_no_table_says_so_when_no_other_is_one() -> None:
    client._schema.cache_clear()
    with serving() as registry:
        alike = b"\0" + registry.register(record("id", "ID")).to_bytes(4, "big") + b"\2\2"
        unknown = b"\0\0\0\0\7\2"
        made = tg.Avro(registry=registry.url)
        with pytest.raises(NamesAlike, match="'id' and 'ID'"):
            made.infer_messages([b"", alike, unknown])
        with pytest.raises(UnknownSchemaId):
            made.infer_messages([unknown, alike])
        good = b"\0" + registry.register(record("id")).to_bytes(4, "big") + b"\2"
        assert made.infer_messages([alike, unknown, good]) == pa.schema([("id", pa.int64())])
        assert made.infer_messages([b"", None]) is None


def test_a_source_whose_first_messages_are_no_table_says_why(
    kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    source = tg.KafkaSource(kafka_broker.servers, topic=topic, format=tg.Json())
    write(kafka_broker, topic, [b'{"id": 1, "ID": 2}'])
    with pytest.raises(NamesAlike, match="'id' and 'ID'"):
        source.probe(Bound(), now=NOW)
    write(kafka_broker, topic, [b'{"id": 1}'], partition=1)
    assert source.probe(Bound(), now=NOW).schema == pa.schema([("id", pa.int64())])
