"""Debezium's changes in Avro and Protobuf: what a record means does not depend on how it is written."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.enveloped import HAPPENINGS, Happening, Pair
from tests.kafka import unique
from tests.sources.formats.registry import serving
from tests.sources.formats.test_protobuf_messages import Field, file, files, generated, put
from tests.sources.kafka.test_envelopes import HERE, said, short, tried

import tidegauge as tg
from tidegauge.errors.changes import NoChangeRecords, TableTruncated, ValueUnavailable
from tidegauge.errors.flow import InvalidArgument
from tidegauge.sources.kafka.decoding import MessageDecoder, key_and_value
from tidegauge.sources.kafka.enveloping import Envelope
from tidegauge.testing import KafkaBroker

ROW: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "n", "type": ["null", "int"], "default": None},
    ],
}
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.users",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]},
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
KEY = {"type": "record", "name": "Key", "namespace": "shop.users", "fields": [{"name": "id", "type": "long"}]}


def in_avro(schema: Any, content: Any, number: int | None = None) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), content)
    return (b"" if number is None else b"\0" + number.to_bytes(4, "big")) + stream.getvalue()


def proto() -> Any:
    made = file()
    row = made.message_type.add(name="Value")
    put(row, "id", Field.TYPE_INT64)
    put(row, "name", Field.TYPE_STRING)
    put(row, "n", Field.TYPE_INT32)
    source = made.message_type.add(name="Source")
    put(source, "lsn", Field.TYPE_INT64)
    record = made.message_type.add(name="Envelope")
    for name, kind in (("before", "Value"), ("after", "Value"), ("source", "Source")):
        put(record, name, Field.TYPE_MESSAGE, f".shop.{kind}")
    put(record, "op", Field.TYPE_STRING)
    put(record, "ts_ms", Field.TYPE_INT64)
    key = made.message_type.add(name="Key")
    put(key, "id", Field.TYPE_INT64)
    return made


PROTO = proto()
PROTO_RECORD, PROTO_KEY = generated("shop.Envelope", PROTO), generated("shop.Key", PROTO)

AVRO_FORMATS = tg.Avro(KEY), tg.Avro(RECORD)
PROTO_FORMATS = (
    tg.Protobuf("shop.Key", descriptor=files(PROTO)),
    tg.Protobuf("shop.Envelope", descriptor=files(PROTO)),
)


def avro(key: Any, record: Any) -> Pair:
    return None if key is None else in_avro(KEY, key), None if record is None else in_avro(RECORD, record)


def protobuf(key: Any, record: Any) -> Pair:
    return (
        None if key is None else PROTO_KEY(**key).SerializeToString(),
        None if record is None else PROTO_RECORD(**record).SerializeToString(),
    )


WAYS = {"avro": (avro, *AVRO_FORMATS), "protobuf": (protobuf, *PROTO_FORMATS)}


def written(one: Happening, write: Callable[[Any, Any], Pair]) -> list[Pair]:
    """What happens, as messages in another format than JSON. A bad value has an operation that nobody knows."""
    record = {**one.record, "op": "m"} if one.what == "bad value" else one.record
    key, value = write({"id": one.id}, record)
    if one.what in ("bad key", "withdrawn"):
        bad = b"\xff" if one.id % 2 else None
        return [(bad, value if one.what == "bad key" else None)]
    return [(key, value), *([(key, None)] if one.what == "gone" and one.told else [])]


def decoder(envelope: Envelope, key: Any, value: Any) -> MessageDecoder:
    source = tg.KafkaSource(HERE, topic="t", key=key, format=value, envelope=envelope)
    assert source.schema is not None
    how: dict[str, Any] = {"metadata": False, "source": "t", "envelope": envelope}
    keys, values = key_and_value(source.schema, source._keys, source._values, **how)
    return MessageDecoder(value, key, False, source.schema, keys, values, envelope)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("envelope", ["debezium", "cdc"])
@deep(60)
@given(happenings=st.lists(HAPPENINGS, min_size=1, max_size=10))
def test_a_record_means_the_same_in_avro_and_protobuf_as_in_json(
    envelope: Envelope, way: str, happenings: list[Happening]
) -> None:
    write, key, value = WAYS[way]
    messages: list[Pair] = []
    wanted: tuple[list[Any], list[Any]] = [], []
    for one in happenings:
        if way == "protobuf":  # its third version knows no null, and nothing apart from a zero
            one = Happening(one.what, one.id or 7, one.n or 1, one.wrapped, one.op, one.told)
        rows, bad = said(one, envelope, len(messages))
        mine = written(one, write)
        wanted[0].extend(rows)
        wanted[1].extend((at, mine[0][0]) for at, _raw in bad)
        messages += mine
    kept = ("id", "name", "n", "op" if envelope == "cdc" else "_op")
    found, bad_ones = tried(decoder(envelope, key, value), messages)
    assert short(found, *kept) == short(wanted[0], *kept)
    assert [(at, raw) for at, _, raw, _ in bad_ones] == wanted[1]


@pytest.mark.parametrize("way", WAYS)
def test_all_changes_need_no_key_then_rows_have_all_columns_of_the_record(way: str) -> None:
    write, _key, value = WAYS[way]
    record = {"after": {"id": 1, "name": "ada", "n": 2}, "op": "c", "source": {"lsn": 3}}
    rows, bad = tried(decoder("cdc", None, value), [write({"id": 1}, record), (None, None)])
    assert (rows, bad) == ([{"id": 1, "name": "ada", "n": 2, "op": "insert"}], [])


def test_what_nobody_sends_again_is_refused_in_avro_too() -> None:
    found = decoder("debezium", *AVRO_FORMATS)
    text = "__debezium_unavailable_value"
    change = {"after": {"id": 1, "name": text, "n": 1}, "op": "u", "source": {"lsn": 1}}
    with pytest.raises(ValueUnavailable, match="after/name"):
        tried(found, [avro({"id": 1}, change)])
    with pytest.raises(TableTruncated):
        tried(found, [avro(None, {"op": "t", "source": {"lsn": 1}})])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (tg.Avro(ROW), "no struct 'after'"),
        (tg.Avro({**RECORD, "fields": [one for one in RECORD["fields"] if one["name"] != "op"]}), "no text 'op'"),
        (tg.Protobuf("shop.Value", descriptor=files(PROTO)), "no struct 'after'"),
        (tg.Text(), "no struct 'after'"),
    ],
)
def test_a_schema_of_something_else_than_changes_is_refused(value: Any, why: str) -> None:
    with pytest.raises(NoChangeRecords, match=why):
        tg.KafkaSource(HERE, topic="t", key=tg.Json("id long"), format=value, envelope="debezium")


def test_without_the_columns_of_the_key_nobody_knows_which_are_the_values() -> None:
    key = tg.Avro(registry="http://localhost:1")
    with pytest.raises(InvalidArgument, match="key"):
        tg.KafkaSource(HERE, topic="t", key=key, format=tg.Avro(RECORD), envelope="debezium")


@pytest.mark.long
def test_columns_of_changes_are_those_that_the_registry_has(kafka_broker: KafkaBroker, tmp_path: Any) -> None:
    """As Confluent's converter writes them: each message begins with the id of its schema."""
    from confluent_kafka import Producer

    topic = kafka_broker.create_topic(unique("avro"), partitions=1)
    with serving() as registry:
        ids = registry.register(KEY, subject=f"{topic}-key"), registry.register(RECORD, subject=f"{topic}-value")
        wider = {**ROW, "fields": [*ROW["fields"], {"name": "city", "type": "string", "default": ""}]}
        later = {**RECORD, "fields": [{**RECORD["fields"][0], "type": ["null", wider]}, *RECORD["fields"][1:]]}
        third = registry.register(later, subject=f"{topic}-value")
        producer = Producer({"bootstrap.servers": kafka_broker.servers})

        def send(schema: Any, number: int, id: int, op: str, after: Any) -> None:
            record = {"before": None, "after": after, "source": {"lsn": 1}, "op": op, "ts_ms": 1}
            producer.produce(topic, in_avro(schema, record, number), key=in_avro(KEY, {"id": id}, ids[0]))

        send(RECORD, ids[1], 1, "r", {"id": 1, "name": "ada", "n": 1})
        send(RECORD, ids[1], 2, "r", {"id": 2, "name": "bob", "n": 2})
        send(RECORD, ids[1], 1, "d", None)
        send(later, third, 2, "u", {"id": 2, "name": "eve", "n": 3, "city": "Rome"})
        producer.flush(30)
        flow = tg.Dataflow("shop", store=f"sqlite:///{tmp_path}/shop.db")
        users = flow.source(
            "users",
            tg.KafkaSource(
                kafka_broker.servers,
                topic=topic,
                key=tg.Avro(KEY, registry=registry.url),
                format=tg.Avro(registry=registry.url),
                envelope="debezium",
                metadata=True,
            ),
        )
        table = tg.DeltaSink(str(tmp_path / "users"), envelope="upsert", key="id", order="_offset")
        flow.sink("users", users, table)
        flow.run(until="caught-up", engine="local")
        found = tg.read_arrow(flow, "users")
    assert isinstance(found, pa.Table)
    assert [{name: row[name] for name in ("id", "name", "n")} for row in found.to_pylist()] == [
        {"id": 2, "name": "eve", "n": 3}
    ]
