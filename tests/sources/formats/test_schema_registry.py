"""Messages with the id of their schema: found once, by name, and a registry in trouble makes no message bad."""

from __future__ import annotations

import base64
import io
import json
import pickle
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.sources.formats.registry import Served, reply, serving

import tidegauge as tg
from tidegauge.errors import Transient
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.formats import InvalidMessageSchema, RegistryFailed, RegistryUnreachable, UnknownSchemaId
from tidegauge.errors.secrets import SecretInClear, SecretUnavailable
from tidegauge.sources.formats import registry as client

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "user", "type": "string"}],
}
LATER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "user", "type": ["null", "string"]},
        {"name": "id", "type": "int"},
        {"name": "city", "type": "string", "default": "unknown"},
    ],
}


@pytest.fixture(scope="module")
def _server() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def registry(_server: Served) -> Served:
    """The module's server, empty; what was asked of it before is forgotten."""
    address = _server.url
    _server.__init__()  # type: ignore[misc]
    _server.url = address
    for kept in (client._schema, client._unknown, client._client):
        kept.cache_clear()
    return _server


def message(number: int, schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(schema)), value)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def test_messages_of_several_schemas_are_rows_of_one_table(decode: Any, registry: Served) -> None:
    old, new = registry.register(ORDER), registry.register(LATER)
    values = [
        message(old, ORDER, {"id": 1, "user": "ada"}),
        message(new, LATER, {"id": 2, "user": None, "city": "Bath"}),
        message(old, ORDER, {"id": 3, "user": "bob"}),
    ]
    first = tg.Avro(registry=registry.url)
    assert first.schema is None
    columns = first.infer_messages([None, *values])
    assert columns == pa.schema([("id", pa.int64()), ("user", pa.string())])
    rows, bad = decode(first, values, schema=columns)
    assert bad == []
    assert [row for _, row in rows] == [
        {"id": 1, "user": "ada"},
        {"id": 2, "user": None},
        {"id": 3, "user": "bob"},
    ]
    rows, bad = decode(tg.Avro(LATER, registry=registry.url), values[1:2])
    assert [row for _, row in rows] == [{"user": None, "id": 2, "city": "Bath"}]


def test_a_column_that_the_writer_did_not_have_is_its_default(decode: Any, registry: Served) -> None:
    tags = {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {"a": 1}}
    fields = [*ORDER["fields"], LATER["fields"][2], tags]
    declared = {**ORDER, "fields": fields}
    old = registry.register(ORDER)
    rows, bad = decode(tg.Avro(declared, registry=registry.url), [message(old, ORDER, {"id": 1, "user": "ada"})])
    assert (rows, bad) == ([(0, {"id": 1, "user": "ada", "city": "unknown", "tags": [("a", 1)]})], [])


def test_a_writer_whose_column_does_not_fit_makes_bad_records_and_no_others(decode: Any, registry: Served) -> None:
    wide, narrow = registry.register(ORDER), registry.register(LATER)
    values = [
        message(wide, ORDER, {"id": 1, "user": "x"}),
        message(narrow, LATER, {"id": 2, "user": "y", "city": "z"}),
    ]
    rows, bad = decode(tg.Avro(registry=registry.url), values, schema=pa.schema([("id", pa.int32())]))
    assert rows == [(1, {"id": 2})]
    assert bad == [(0, "TG-0323", "column id: int64 was written, int32 is declared")]


def test_an_unknown_id_is_the_problem_of_its_messages(decode: Any, registry: Served) -> None:
    known = registry.register(ORDER)
    good = message(known, ORDER, {"id": 1, "user": "ada"})
    other = message(77, ORDER, {"id": 1, "user": "ada"})
    avro = tg.Avro(registry=registry.url)
    columns = avro.infer_messages([other, b"", b"\x01nope", good])
    assert columns is not None
    rows, bad = decode(avro, [other, good, b"", b"\0\0\0", b"\x01" + good[1:], other, None], schema=columns)
    assert [i for i, _ in rows] == [1, 6]
    assert [(i, code) for i, code, _ in bad] == [
        (0, UnknownSchemaId.code), (2, "TG-0323"), (3, "TG-0323"), (4, "TG-0323"), (5, UnknownSchemaId.code),
    ]  # fmt: skip
    assert "no schema 77" in bad[0][2]
    assert registry.url in bad[0][2]


@pytest.mark.parametrize(
    ("kind", "text"),
    [("PROTOBUF", 'syntax = "proto3";'), ("AVRO", "{"), ("AVRO", '"Missing"'), ("AVRO", '["int", "long"]')],
)
def test_a_registered_schema_that_is_no_table_makes_bad_records(
    decode: Any, registry: Served, kind: str, text: str
) -> None:
    number, good = registry.register(text, kind=kind), registry.register(ORDER)
    values = [message(number, ORDER, {"id": 1, "user": ""}), message(good, ORDER, {"id": 2, "user": ""})]
    rows, bad = decode(tg.Avro(ORDER, registry=registry.url), values)
    assert [row["id"] for _, row in rows] == [2]
    [(index, code, problem)] = bad
    assert index == 0
    assert code in ("TG-0840", "TG-0841")
    assert f"schema {number}" in problem


def test_a_schema_may_refer_to_others(decode: Any, registry: Served) -> None:
    name = {"name": "name", "type": "string"}
    user = {"type": "record", "name": "User", "namespace": "people", "fields": [name]}
    pair = {"type": "record", "name": "shop.Pair", "fields": [{"name": "a", "type": "people.User"}]}
    whole = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "p", "type": "shop.Pair"}, {"name": "u", "type": "people.User"}],
    }
    registry.register(user, subject="user")
    registry.register(pair, subject="pair", references=[{"name": "people.User", "subject": "user", "version": 1}])
    number = registry.register(whole, references=[{"name": "shop.Pair", "subject": "pair", "version": 1}])
    avro = tg.Avro(registry=registry.url)
    value = b"\0" + number.to_bytes(4, "big") + b"\x06ada\x06bob"
    rows, bad = decode(avro, [value], schema=avro.infer_messages([value]))
    assert (rows, bad) == ([(0, {"p": {"a": {"name": "ada"}}, "u": {"name": "bob"}})], [])


def test_a_process_asks_for_a_schema_once(decode: Any, registry: Served) -> None:
    number = registry.register(ORDER)
    values = [message(number, ORDER, {"id": i, "user": "x"}) for i in range(40_000)]
    for avro in (tg.Avro(ORDER, registry=registry.url), tg.Avro(ORDER, registry=tg.Registry(registry.url))):
        assert len(decode(avro, values)[0]) == len(values)
    assert len(registry.asked) == 1


def test_an_id_that_is_not_known_is_asked_for_again_only_after_a_while(
    decode: Any, registry: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(client, "monotonic", lambda: now)
    avro, value = tg.Avro(ORDER, registry=registry.url), message(1, ORDER, {"id": 1, "user": "ada"})
    for _ in range(3):  # three batches, one request
        [(_, code, _), *_] = decode(avro, [value, value])[1]
        assert code == UnknownSchemaId.code
    assert len(registry.asked) == 1
    registry.register(ORDER)
    assert len(decode(avro, [value])[1]) == 1
    now += client.AGAIN
    assert decode(avro, [value]) == ([(0, {"id": 1, "user": "ada"})], [])
    assert len(registry.asked) == 2


def test_confluents_serializer_writes_what_is_read(decode: Any, registry: Served) -> None:
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(LATER))
    context = SerializationContext("orders", MessageField.VALUE)
    values = [serialize({"user": "ada", "id": i, "city": "Rye"}, context) for i in range(3)]
    rows, bad = decode(tg.Avro(LATER, registry=registry.url), values)
    assert bad == []
    assert [row for _, row in rows] == [{"user": "ada", "id": i, "city": "Rye"} for i in range(3)]


def html(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 200, b"<html>welcome</html>")


def elsewhere(handler: BaseHTTPRequestHandler) -> None:
    reply(handler, 302, b"", Location="http://127.0.0.1:1/secret")


def answering(status: int, content: Any) -> Any:
    return lambda handler: reply(handler, status, content)


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def silent(handler: BaseHTTPRequestHandler) -> None:
    handler.rfile.read(1)  # until the client gives up


@pytest.mark.parametrize(
    ("answer", "expected", "said"),
    [
        (html, RegistryFailed, "no schema"),
        (elsewhere, RegistryFailed, "302"),
        (answering(401, {"error_code": 401, "message": "Unauthorized"}), RegistryFailed, "401"),
        (answering(404, b"<html>not here</html>"), RegistryFailed, "404"),
        (answering(500, {"error_code": 50001, "message": "store timeout"}), RegistryFailed, "store timeout"),
        (answering(200, []), RegistryFailed, "no schema"),
        (answering(200, {"schema": 5}), RegistryFailed, "no schema"),
        (answering(200, b""), RegistryFailed, "no schema"),
        (answering(200, b"[" * 100_000), RegistryFailed, "no schema"),
        (hang_up, RegistryUnreachable, "Error"),
        (silent, RegistryUnreachable, "Timeout"),
    ],
)
def test_a_registry_in_trouble_stalls_and_makes_no_message_bad(
    registry: Served, monkeypatch: pytest.MonkeyPatch, answer: Any, expected: type[Transient], said: str
) -> None:
    if answer is silent:
        monkeypatch.setattr(client, "SECONDS", 0.2)
    monkeypatch.setattr(client, "WAIT", 1)
    registry.answer = answer
    avro = tg.Avro(ORDER, registry=registry.url)
    value = message(registry.register(ORDER), ORDER, {"id": 1, "user": "ada"})
    begun = time.monotonic()
    with pytest.raises(expected, match=said) as failure:
        avro.decode_messages([value], schema=avro.schema, on_bad=lambda *bad: pytest.fail(str(bad)))
    assert time.monotonic() - begun < 30
    assert isinstance(failure.value, Transient)
    assert registry.url in str(failure.value)
    assert tg.Avro(registry=registry.url).schema is None
    with pytest.raises(expected):
        tg.Avro(registry=registry.url).infer_messages([value])
    monkeypatch.undo()
    client._client.cache_clear()
    registry.answer = None
    found = avro.decode_messages([value], schema=avro.schema, on_bad=lambda *bad: pytest.fail(str(bad)))
    assert found.rows.to_pylist() == [{"id": 1, "user": "ada"}]


def test_a_registry_that_is_not_there_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "WAIT", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        avro = tg.Avro(ORDER, registry=f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(RegistryUnreachable):
            avro.decode_messages([b"\0\0\0\0\1\2\2a"], schema=avro.schema, on_bad=lambda *_: None)


def test_credentials_are_sent_and_are_nowhere_else(
    decode: Any, registry: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_LOGIN", "ada:hunter2")
    number = registry.register(ORDER)
    place = tg.Registry(registry.url, {"basic.auth.user.info": "env:THE_LOGIN"})
    avro = tg.Avro(ORDER, registry=place)
    rows, _ = decode(pickle.loads(pickle.dumps(avro)), [message(number, ORDER, {"id": 1, "user": "x"})])
    assert len(rows) == 1
    assert registry.logins == ["Basic " + base64.b64encode(b"ada:hunter2").decode()]
    for shown in (repr(avro), str(avro.describe()), str(pickle.dumps(avro))):
        assert "env:THE_LOGIN" in shown
        assert "hunter2" not in shown


def test_refused_credentials_are_looked_up_anew(
    decode: Any, registry: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def guarded(handler: BaseHTTPRequestHandler) -> None:
        right = handler.headers["Authorization"] == "Basic " + base64.b64encode(b"ada:new").decode()
        reply(handler, *(registry.found(handler.path) if right else (401, {"error_code": 401, "message": "no"})))

    registry.answer = guarded
    value = message(registry.register(ORDER), ORDER, {"id": 1, "user": "x"})
    avro = tg.Avro(ORDER, registry=tg.Registry(registry.url, {"basic.auth.user.info": "env:THE_LOGIN"}))
    monkeypatch.delenv("THE_LOGIN", raising=False)
    with pytest.raises(SecretUnavailable):
        decode(avro, [value])
    monkeypatch.setenv("THE_LOGIN", "ada:old")
    with pytest.raises(RegistryFailed) as failure:
        decode(avro, [value])
    assert "ada:old" not in str(failure.value)
    monkeypatch.setenv("THE_LOGIN", "ada:new")
    assert len(decode(avro, [value])[0]) == 1


@pytest.mark.parametrize(
    "url", ["", "localhost:8081", "ftp://host", "http://", "file:///etc/passwd", "http://h:99999"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        tg.Registry(url)


def test_a_secret_in_the_clear_is_refused() -> None:
    settings = ({"basic.auth.user.info": "ada:hunter2"}, {"bearer.auth.token": "hunter2"})
    for url, given in (("http://ada:hunter2@host", {}), *(("http://host", one) for one in settings)):
        with pytest.raises(SecretInClear) as refused:
            tg.Registry(url, given)
        assert "hunter2" not in str(refused.value)
    with pytest.raises(InvalidArgument):
        tg.Registry("http://host", {"url": "http://other"})


def test_a_message_schema_is_needed_from_somewhere() -> None:
    with pytest.raises(InvalidArgument):
        tg.Avro()
    with pytest.raises(InvalidMessageSchema):
        tg.Avro("{")
