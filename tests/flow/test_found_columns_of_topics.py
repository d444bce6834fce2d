"""Columns that messages have from some day on: JSON, and Avro by a schema registry that may be away."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.flow.badinput import begin
from tests.flow.by_hand import World
from tests.sources.formats.registry import reply, serving
from tests.sources.kafka.writing import write

import tidegauge as tg
from tidegauge.sources.formats import registry as clients
from tidegauge.testing import Endpoint

Make = Callable[[World], tg.Dataflow]


def flow_of(source: Callable[[], Any], how: Any = "add") -> Make:
    def make(world: World) -> tg.Dataflow:
        flow = tg.Dataflow("shop", store=world.store)
        orders = flow.source("orders", source())
        flow.sink("t", orders, tg.DeltaSink(str(world.root / "lake" / "t")), schema=how)
        flow.sink("bad", orders.errors, tg.ParquetSink(str(world.root / "lake" / "bad")))
        return flow

    return make


def live(world: World) -> tuple[str, ...]:
    run = begin(world)
    try:
        run.catch_up()
        return run.runner.board.news
    finally:
        run.abandon()


def table(world: World) -> list[dict[str, Any]]:
    found = tg.read_arrow(world.make(world), "t").sort_by("n").to_pylist()
    return [{k: v for k, v in row.items() if v is not None and not k.startswith("_")} for row in found]


def schema(*columns: str) -> dict[str, Any]:
    others = [{"name": name, "type": ["null", "string"], "default": None} for name in columns]
    return {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}, *others]}


def message(number: int, of: dict[str, Any], **row: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(of))), row)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


@pytest.mark.parametrize("metadata", [False, True], ids=["bare", "with metadata"])
def test_messages_of_json_with_a_key_beside_them(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str], metadata: bool
) -> None:
    topic = make_topic()
    world = World(
        tmp_path,
        flow_of(
            lambda: tg.KafkaSource(
                kafka_broker.servers, topic=topic, format=tg.Json(), key=tg.Text(), metadata=metadata
            )
        ),
    )

    def put(rows: Iterable[dict[str, Any]]) -> None:
        write(kafka_broker, topic, [json.dumps(row).encode() for row in rows], key=b"k")

    put([{"n": 0}])
    live(world)
    put([{"n": 1, "VALUE": "not the key's", "user": "ada"}, {"n": 2, "at": {"x": 1}}])
    live(world)
    assert table(world) == [
        {"n": 0, "value": "k"},
        {"n": 1, "value": "k", "user": "ada"},
        {"n": 2, "value": "k", "at": {"x": 1}},
    ]
    known = world.loaded().sources["orders"].schema
    assert known is not None
    assert known.names[:4] == ["value", "n", "user", "at"]


def test_a_schema_of_a_registry_tells_the_columns_with_their_types(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    with serving() as registry:
        avro = tg.Avro(registry=registry.url)
        world = World(tmp_path, flow_of(lambda: tg.KafkaSource(kafka_broker.servers, topic=topic, format=avro)))
        first, second = schema(), schema("user")
        second["fields"].append({"name": "at", "type": ["null", {"type": "int", "logicalType": "date"}]})
        one, two = registry.register(first), registry.register(second)
        write(kafka_broker, topic, [message(one, first, n=0)])
        live(world)
        write(kafka_broker, topic, [message(two, second, n=1, user=None, at=None), message(one, first, n=2)])
        told = live(world)
        assert told == ("source orders has other columns, from epoch 1 on: user: new; at: new",), (
            "though all are null"
        )
        write(kafka_broker, topic, [message(two, second, n=3, user="ada", at=9)])
        live(world)
        assert [row.get("user") for row in table(world)] == [None, None, None, "ada"]


def test_a_registry_that_is_away_stalls_the_source_and_one_that_lost_an_id_gives_a_bad_record(
    tmp_path: Path, kafka_broker: Endpoint, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()

    def away(handler: BaseHTTPRequestHandler) -> None:
        reply(handler, 503, {"error_code": 50302, "message": "not now"})

    with serving() as registry:
        avro = tg.Avro(registry=registry.url)
        world = World(tmp_path, flow_of(lambda: tg.KafkaSource(kafka_broker.servers, topic=topic, format=avro)))
        first, second, third = schema(), schema("user"), schema("user", "note")
        one, two, three = (registry.register(each) for each in (first, second, third))
        write(kafka_broker, topic, [message(one, first, n=0)])
        live(world)
        write(kafka_broker, topic, [message(two, second, n=1, user="ada")])
        registry.answer = away
        run = begin(world)
        for _ in range(4):
            run.step(10)
        assert run.runner.board.sources["orders"].state == "stalled"
        assert run.runner.board.upper == 1, "nothing is bound by the columns of before"
        registry.answer = None
        for _ in range(4):
            run.step(40)
        run.catch_up()
        run.abandon()
        assert table(world)[-1] == {"n": 1, "user": "ada"}
        gone = registry.schemas.pop(three)
        lost = message(three, third, n=2, user="bob", note="lost")
        write(kafka_broker, topic, [lost, message(two, second, n=3, user="eve")])
        live(world)
        assert table(world)[2:] == [{"n": 3, "user": "eve"}], "what nobody can read tells no column"
        registry.schemas[three] = gone
        write(kafka_broker, topic, [message(three, third, n=4, user="bob", note="found")])
        clients._unknown.cache_clear()  # an id stays unknown for some seconds
        live(world)
        assert table(world)[-1] == {"n": 4, "user": "bob", "note": "found"}
        assert tg.read_arrow(world.make(world), "bad").num_rows == 1
