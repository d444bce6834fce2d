"""Avro messages: what its own encoder writes is read back, and a message's fate is its own."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.depth import deep

import tidegauge as tg
from tidegauge.errors.formats import InvalidMessageSchema, SchemaWithoutColumns
from tidegauge.errors.sources import UnreadableRecord
from tidegauge.sources.formats.avro import vectors
from tidegauge.sources.formats.avro.rows import alone
from tidegauge.sources.formats.avro.schema import node_of
from tidegauge.sources.formats.gather import Refused

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def record(**fields: Any) -> dict[str, Any]:
    """A record of these fields; named types in them get names of their own."""
    number = count()

    def renamed(schema: Any) -> Any:
        if isinstance(schema, list):
            return [renamed(branch) for branch in schema]
        if not isinstance(schema, dict):
            return schema
        if schema["type"] == "record":
            parts = [{**field, "type": renamed(field["type"])} for field in schema["fields"]]
            return {**schema, "name": f"n{next(number)}", "fields": parts}
        if schema["type"] in ("enum", "fixed"):
            return {**schema, "name": f"n{next(number)}"}
        return {key: renamed(value) if key in ("items", "values") else value for key, value in schema.items()}

    return {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": name, "type": renamed(of)} for name, of in fields.items()],
    }


LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=20)),
    ("string", TEXT),
]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema, and its values as both fastavro writes and Arrow shows them."""
    kind = draw(
        st.sampled_from(["leaf", "leaf", "enum", "fixed", "null", "array", "map", "record"][: 8 if depth else 4])
    )
    if kind == "enum":
        return {"type": "enum", "name": "named", "symbols": ["a", "b", "c"]}, st.sampled_from("abc")
    if kind == "fixed":
        size = draw(st.integers(1, 17))
        return {"type": "fixed", "name": "named", "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "leaf":
        leaf: tuple[Any, st.SearchStrategy[Any]] = draw(st.sampled_from(LEAVES))
        return leaf
    inner, values = draw(schemas(depth - 1))
    if kind == "null":
        assume(not isinstance(inner, list) and inner != "null")
        return draw(st.permutations(["null", inner])), st.none() | values
    if kind == "array":
        assume(not empty(inner))
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(TEXT, values, max_size=3)
    other, more = draw(schemas(depth - 1))
    fields = [{"name": "x", "type": inner}, {"name": "y", "type": other}]
    return {"type": "record", "name": "named", "fields": fields}, st.fixed_dictionaries({"x": values, "y": more})


def empty(schema: Any) -> bool:
    return schema == "null" or (
        isinstance(schema, dict) and schema["type"] == "record" and all(empty(f["type"]) for f in schema["fields"])
    )


def shown(schema: Any, values: list[Any]) -> list[Any]:
    """Values as Arrow shows them, through Arrow's own conversion."""
    of = node_of(record(it=schema)).inner[0].column
    return list(pa.array([entries(schema, value) for value in values], of).to_pylist())


def entries(schema: Any, value: Any) -> Any:
    """A value with its maps as entries."""
    if isinstance(schema, list):
        return None if value is None else entries(next(branch for branch in schema if branch != "null"), value)
    if isinstance(schema, dict) and schema["type"] == "array":
        return [entries(schema["items"], item) for item in value]
    if isinstance(schema, dict) and schema["type"] == "map":
        return [(key, entries(schema["values"], item)) for key, item in value.items()]
    if isinstance(schema, dict) and schema["type"] == "record":
        return {field["name"]: entries(field["type"], value[field["name"]]) for field in schema["fields"]}
    return value


@deep(150)
@given(st.data())
def test_what_fastavro_writes_is_read_back(decode: Any, data: st.DataObject) -> None:
    schema, values = data.draw(schemas())
    given = data.draw(st.lists(values, max_size=6))
    whole = record(it=schema)
    found, bad = decode(tg.Avro(whole), [written(whole, {"it": value}) for value in given])
    assert bad == []
    assert [row["it"] for _, row in found] == shown(schema, given)


CORRUPT = st.sampled_from(["cut", "more", "flip", "empty", "noise"])


def corrupted(message: bytes, how: str, data: st.DataObject) -> bytes:
    if how == "cut":
        return message[: data.draw(st.integers(0, max(0, len(message) - 1)))]
    if how == "more":
        return message + data.draw(st.binary(min_size=1, max_size=3))
    if how == "flip" and message:
        i = data.draw(st.integers(0, len(message) - 1))
        return message[:i] + bytes([message[i] ^ data.draw(st.integers(1, 255))]) + message[i + 1 :]
    return b"" if how == "empty" else data.draw(st.binary(max_size=30))


@deep(200)
@given(st.data())
def test_both_ways_of_reading_agree_on_any_bytes(data: st.DataObject) -> None:
    schema, values = data.draw(schemas())
    node = node_of(record(it=schema))
    messages = [
        written(record(it=schema), {"it": value}) for value in data.draw(st.lists(values, min_size=1, max_size=6))
    ]
    messages = [corrupted(m, data.draw(CORRUPT), data) if data.draw(st.booleans()) else m for m in messages]
    ends = np.cumsum([len(message) for message in messages])
    array, failed = vectors.read(node, b"".join(messages), ends - [len(message) for message in messages], ends)
    array.validate(full=True)
    for i, message in enumerate(messages):
        try:
            single = pa.array([alone(node, message)], node.wire)
        except Refused:
            assert failed[i], "read together, and refused alone"
        else:
            # Only equal keys are left to the other way.
            assert failed[i] or str(array[i]) == str(single[0])


@deep(150)
@given(st.data())
def test_a_corrupt_message_changes_no_other(decode: Any, data: st.DataObject) -> None:
    schema, values = data.draw(schemas())
    whole = record(it=schema, last="long")
    good = [
        written(whole, {"it": value, "last": i}) for i, value in enumerate(data.draw(st.lists(values, max_size=5)))
    ]
    messages: list[bytes | None] = [*good]
    for _ in range(data.draw(st.integers(1, 3))):
        wrong = corrupted(data.draw(st.sampled_from(good)) if good else b"", data.draw(CORRUPT), data)
        messages.insert(data.draw(st.integers(0, len(messages))), data.draw(st.sampled_from([wrong, None])))
    avro = tg.Avro(whole)
    found, bad = decode(avro, messages)
    cut = data.draw(st.integers(0, len(messages)))
    first, second = decode(avro, messages[:cut]), decode(avro, messages[cut:])
    assert repr(found) == repr(first[0] + [(i + cut, row) for i, row in second[0]])
    assert bad == first[1] + [(i + cut, code, text) for i, code, text in second[1]]


AT = datetime(2026, 11, 21, 17, 30, 5, 123456, UTC)
AT_US = (AT - EPOCH) // timedelta(microseconds=1)
UTC_US, LOCAL_US = pa.timestamp("us", "UTC"), pa.timestamp("us")


def local(microsecond: int) -> datetime:
    return datetime(1970, 1, 1, microsecond=microsecond)  # noqa: DTZ001


def decimal(precision: int, **more: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, **more}


LOGICAL: list[tuple[Any, Any, Any, Any]] = [
    ({"type": "int", "logicalType": "date"}, 20_778, pa.date32(), date(2026, 11, 21)),
    ({"type": "long", "logicalType": "timestamp-millis"}, AT_US // 1000, UTC_US, AT.replace(microsecond=123000)),
    ({"type": "long", "logicalType": "timestamp-micros"}, AT_US, UTC_US, AT),
    ({"type": "long", "logicalType": "timestamp-nanos"}, AT_US * 1000 + 999, UTC_US, AT),
    ({"type": "long", "logicalType": "timestamp-nanos"}, -1, UTC_US, EPOCH - timedelta(microseconds=1)),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, 1, LOCAL_US, local(1000)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, 1, LOCAL_US, local(1)),
    ({"type": "int", "logicalType": "time-millis"}, 5, pa.int32(), 5),
    ({"type": "long", "logicalType": "time-micros"}, 5, pa.int64(), 5),
    ({"type": "string", "logicalType": "uuid"}, "0b8e-", pa.string(), "0b8e-"),
    (decimal(5, scale=2), b"\xff", pa.decimal128(5, 2), Decimal("-0.01")),
    (decimal(5), b"\x00\x01\x00", pa.decimal128(5, 0), Decimal(256)),
    (
        {**decimal(38, scale=38), "type": "fixed", "name": "F", "size": 17},
        (10**38 - 1).to_bytes(17, "big", signed=True),
        pa.decimal128(38, 38),
        Decimal("0." + "9" * 38),
    ),
    ({"type": "bytes", "logicalType": "no-such-thing"}, b"x", pa.binary(), b"x"),
    ({"type": "string", "logicalType": "date"}, "x", pa.string(), "x"),
]


def plain(schema: Any) -> Any:
    return {key: value for key, value in schema.items() if key != "logicalType"}


@pytest.mark.parametrize(("schema", "value", "of", "expected"), LOGICAL)
def test_a_logical_type_has_its_column(decode: Any, schema: Any, value: Any, of: Any, expected: Any) -> None:
    for wrap, wrapped, shown_as in (
        (lambda it: it, value, expected),
        (lambda it: ["null", it], value, expected),
        (lambda it: {"type": "array", "items": it}, [value, value], [expected, expected]),
        (lambda it: {"type": "map", "values": it}, {"a": value, "b": value}, [("a", expected), ("b", expected)]),
        (lambda it: ["null", {"type": "map", "values": ["null", it]}], {"a": value}, [("a", expected)]),
    ):
        avro = tg.Avro(record(it=wrap(schema)))
        assert avro.schema is not None
        found = avro.schema.field(0).type
        assert of in (found, getattr(found, "value_type", None), getattr(found, "item_type", None))
        message = written(record(it=wrap(plain(schema))), {"it": wrapped})
        assert decode(avro, [message]) == ([(0, {"it": shown_as})], [])
        if "null" in wrap(schema):
            assert decode(avro, [b"\0", message, b"\0"])[0] == [
                (0, {"it": None}),
                (1, {"it": shown_as}),
                (2, {"it": None}),
            ]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, (100).to_bytes(2, "big")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x01" * 5000),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**62),
    ],
)
def test_a_value_without_a_meaning_is_a_bad_record(decode: Any, schema: Any, value: Any) -> None:
    good = {"long": 7, "bytes": b"\x07"}[schema["type"]]
    for wrap, wrapped in (
        (lambda it: it, lambda it: it),
        (lambda it: {"type": "map", "values": it}, lambda it: {"a": good, "b": it}),
    ):
        messages = [written(record(it=wrap(plain(schema))), {"it": wrapped(each)}) for each in (good, value, good)]
        rows, bad = decode(tg.Avro(record(it=wrap(schema))), messages)
        assert [i for i, _ in rows] == [0, 2]
        assert [(i, text.split(":")[0]) for i, _, text in bad] == [(1, "column it")]


@pytest.mark.parametrize(
    "schema",
    [
        ["int", "string"],
        ["null", "int", "string"],
        ["null"],
        [],
        {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]},
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "N", "fields": [{"name": "x", "type": "null"}]}},
        {"type": "record", "name": "None", "fields": []},
        {"type": "bytes", "logicalType": "decimal", "precision": 39},
    ],
)
def test_what_is_no_column_is_refused_when_it_is_declared(schema: Any) -> None:
    with pytest.raises(SchemaWithoutColumns):
        tg.Avro({"type": "record", "name": "R", "fields": [{"name": "it", "type": schema}]})


def test_a_type_that_contains_itself_is_called_so() -> None:
    with pytest.raises(SchemaWithoutColumns, match=r"the type shop\.Node contains itself"):
        tg.Avro({"type": "record", "name": "shop.Node", "fields": [{"name": "next", "type": ["null", "Node"]}]})


def bomb(depth: int) -> Any:
    """A schema of a few lines with 2 ** depth fields."""
    inner: Any = "long"
    for i in range(depth):
        inner = {
            "type": "record",
            "name": f"R{i}",
            "fields": [{"name": "a", "type": inner}, {"name": "b", "type": f"R{i - 1}" if i else "long"}],
        }
    return inner


@pytest.mark.parametrize(
    "schema",
    [
        "", "{", "[1]", "null and void", "Missing", {}, 5, {"type": "record"}, {"type": "record", "name": "R"},
        {"type": "record", "name": "R", "fields": [{}]}, {"type": "record", "name": "R", "fields": "x"},
        {"type": "enum", "name": "E"}, {"type": "enum", "name": "E", "symbols": ["a", "a"]},
        {"type": "fixed", "name": "F"}, {"type": "fixed", "name": "F", "size": 0}, {"type": "array"}, "[" * 100_000,
        bomb(25),
    ],
)  # fmt: skip
def test_a_schema_that_is_none_is_refused(schema: Any) -> None:
    with pytest.raises((InvalidMessageSchema, SchemaWithoutColumns)):
        tg.Avro(schema)


def test_a_named_type_may_be_used_again(decode: Any) -> None:
    point = {"type": "record", "name": "Point", "namespace": "geo", "fields": [{"name": "x", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "Line",
        "namespace": "geo",
        "fields": [{"name": "a", "type": point}, {"name": "b", "type": "Point"}, {"name": "c", "type": "geo.Point"}],
    }
    rows, bad = decode(tg.Avro(json.dumps(schema)), [b"\x02\x04\x06"])
    assert (rows, bad) == ([(0, {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}})], [])


def test_a_schema_that_is_no_record_is_one_column(decode: Any) -> None:
    rows, bad = decode(tg.Avro('"string"'), [b"\x02a", b"\x00", b"", None])
    assert (rows, [i for i, _, _ in bad]) == ([(0, {"value": "a"}), (1, {"value": ""}), (3, {"value": None})], [2])


HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
"""The length 2 ** 63 - 1."""


LISTS = [{"type": "array", "items": "boolean"}, {"type": "map", "values": "string"}]
LIES = [HUGE, HUGE + b"aaaa", b"\x01", b"\x01\x02", b"\x80" * 50, b"\xff" * 12, b"\x80\x80\x80\x80\x20abc"]


@pytest.mark.parametrize("of", ["string", "bytes", *LISTS])
@pytest.mark.parametrize("value", LIES)
def test_a_length_that_is_a_lie_is_a_bad_record_and_allocates_nothing(decode: Any, of: Any, value: bytes) -> None:
    rows, bad = decode(tg.Avro(record(it=of)), [b"\x00", value, b"\x00"])
    assert ([i for i, _ in rows], [i for i, _, _ in bad]) == ([0, 2], [1])


def test_blocks_of_any_size_are_one_list(decode: Any) -> None:
    array = tg.Avro(record(it={"type": "array", "items": "long"}))
    values = [b"\x02\x02\x04\x04\x06\x00", b"\x03\x04\x02\x04\x02\x06\x00", b"\x00", b"\x02\x02", b"\x02\x02\x00\x00"]
    rows, bad = decode(array, values)
    assert [(i, row["it"]) for i, row in rows] == [(0, [1, 2, 3]), (1, [1, 2, 3]), (2, [])]
    assert [i for i, _, _ in bad] == [3, 4]


def test_long_lists_of_few_messages_are_read_alone(decode: Any) -> None:
    schema = record(it={"type": "array", "items": {"type": "map", "values": "int"}})
    value = {"it": [{"a": i, "b": -i} for i in range(3000)]}
    rows, bad = decode(tg.Avro(schema), [written(schema, {"it": []}), written(schema, value)])
    assert bad == []
    assert rows[1][1]["it"] == [[("a", i), ("b", -i)] for i in range(3000)]


def test_of_equal_keys_the_last_counts(decode: Any) -> None:
    avro = tg.Avro(record(it={"type": "map", "values": "int"}))
    rows, bad = decode(avro, [b"\x04\x02a\x02\x02a\x04\x00", b"\x02\x02a\x06\x00"])
    assert ([row["it"] for _, row in rows], bad) == ([[("a", 2)], [("a", 3)]], [])


def test_many_chunks_and_a_bad_record_in_one(decode: Any) -> None:
    schema = record(id="long", name="string")
    values = [written(schema, {"id": i, "name": f"n{i}"}) for i in range(40_000)]
    values[20_000] = b"\x02"
    rows, bad = decode(tg.Avro(schema), values)
    assert bad == [(20_000, UnreadableRecord.code, "a length of 1 where there are 0 bytes")]
    assert [i for i, _ in rows] == [i for i in range(40_000) if i != 20_000]
    assert all(row == {"id": i, "name": f"n{i}"} for i, row in rows)


def test_it_is_a_value_that_can_be_sent() -> None:
    avro = tg.Avro(record(id="long"))
    again = pickle.loads(pickle.dumps(avro))
    assert again == avro
    assert json.loads(json.dumps(again.describe()))["schema"] == record(id="long")
