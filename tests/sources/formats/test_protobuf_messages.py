"""Protobuf messages: what its own encoder writes is read back, and a message's fate is its own."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep
from tests.sources.formats.registry import serving

import tidegauge as tg
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.formats import InvalidMessageSchema, SchemaWithoutColumns
from tidegauge.sources.ddl import to_ddl

Field = descriptor_pb2.FieldDescriptorProto
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
UINT32, UINT64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
SCALARS: dict[str, tuple[int, st.SearchStrategy[Any], str]] = {
    "a_double": (Field.TYPE_DOUBLE, st.floats(allow_nan=False), "DOUBLE"),
    "a_float": (Field.TYPE_FLOAT, st.floats(width=32, allow_nan=False), "FLOAT"),
    "an_int32": (Field.TYPE_INT32, INT32, "INT"),
    "an_int64": (Field.TYPE_INT64, INT64, "BIGINT"),
    "a_uint32": (Field.TYPE_UINT32, UINT32, "BIGINT"),
    "a_uint64": (Field.TYPE_UINT64, UINT64, "DECIMAL(20,0)"),
    "a_sint32": (Field.TYPE_SINT32, INT32, "INT"),
    "a_sint64": (Field.TYPE_SINT64, INT64, "BIGINT"),
    "a_fixed32": (Field.TYPE_FIXED32, UINT32, "BIGINT"),
    "a_fixed64": (Field.TYPE_FIXED64, UINT64, "DECIMAL(20,0)"),
    "an_sfixed32": (Field.TYPE_SFIXED32, INT32, "INT"),
    "an_sfixed64": (Field.TYPE_SFIXED64, INT64, "BIGINT"),
    "a_bool": (Field.TYPE_BOOL, st.booleans(), "BOOLEAN"),
    "a_string": (Field.TYPE_STRING, TEXT, "STRING"),
    "some_bytes": (Field.TYPE_BYTES, st.binary(max_size=8), "BINARY"),
}


def file(name: str = "shop.proto", *, syntax: str = "proto3", imports: tuple[str, ...] = ()) -> Any:
    return descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax=syntax, dependency=imports)


def put(
    message: Any, name: str, kind: int, type_name: str | None = None, *, label: int = Field.LABEL_OPTIONAL
) -> Any:
    number = len(message.field) + 1
    return message.field.add(name=name, number=number, type=kind, type_name=type_name, label=label)


def files(*found: Any) -> bytes:
    return bytes(descriptor_pb2.FileDescriptorSet(file=found).SerializeToString())


def generated(name: str, *found: Any) -> Any:
    """The class that protoc would generate."""
    pool = descriptor_pool.DescriptorPool()
    known = "google/protobuf/timestamp.proto", "google/protobuf/duration.proto", "google/protobuf/wrappers.proto"
    for path in known:
        proto = descriptor_pb2.FileDescriptorProto()
        descriptor_pool.Default().FindFileByName(path).CopyToProto(proto)
        pool.Add(proto)
    for one in found:
        pool.Add(one)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def whole() -> Any:
    """A file with a message that has every kind of field."""
    made = file(
        imports=(
            "google/protobuf/timestamp.proto",
            "google/protobuf/duration.proto",
            "google/protobuf/wrappers.proto",
        )
    )
    color = made.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=7)
    point = made.message_type.add(name="Point")
    put(point, "x", Field.TYPE_INT32)
    put(point, "tags", Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    order = made.message_type.add(name="Order")
    for name, (kind, _, _) in SCALARS.items():
        put(order, name, kind)
    optional = put(order, "maybe", Field.TYPE_INT64)
    optional.proto3_optional = True
    order.oneof_decl.add(name="either")
    for name, kind in (("this", Field.TYPE_STRING), ("that", Field.TYPE_INT32)):
        put(order, name, kind).oneof_index = 0
    order.oneof_decl.add(name="_maybe")
    optional.oneof_index = 1
    put(order, "color", Field.TYPE_ENUM, ".shop.Color")
    put(order, "point", Field.TYPE_MESSAGE, ".shop.Point")
    put(order, "numbers", Field.TYPE_SINT64, label=Field.LABEL_REPEATED)
    put(order, "points", Field.TYPE_MESSAGE, ".shop.Point", label=Field.LABEL_REPEATED)
    entry = order.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    put(entry, "key", Field.TYPE_STRING)
    put(entry, "value", Field.TYPE_MESSAGE, ".shop.Point")
    put(order, "by_name", Field.TYPE_MESSAGE, ".shop.Order.ByNameEntry", label=Field.LABEL_REPEATED)
    put(order, "at", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    put(order, "took", Field.TYPE_MESSAGE, ".google.protobuf.Duration")
    put(order, "boxed", Field.TYPE_MESSAGE, ".google.protobuf.Int64Value")
    return made


FILE = whole()
ORDER = generated("shop.Order", FILE)
FORMAT = tg.Protobuf("shop.Order", descriptor=files(FILE))

POINTS = st.fixed_dictionaries({"x": INT32, "tags": st.lists(TEXT, max_size=3)})
EARLIEST, LATEST = datetime(1, 1, 2), datetime(9999, 12, 30)  # noqa: DTZ001
TIMES = st.datetimes(EARLIEST, LATEST, timezones=st.just(UTC))
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        **{name: values for name, (_, values, _) in SCALARS.items()},
        "maybe": INT64,
        "this": TEXT,
        "color": st.sampled_from([0, 7, 99]),
        "point": POINTS,
        "numbers": st.lists(INT64, max_size=3),
        "points": st.lists(POINTS, max_size=3),
        "by_name": st.dictionaries(TEXT, POINTS, max_size=3),
        "at": TIMES,
        "took": st.timedeltas(min_value=timedelta(days=-9999), max_value=timedelta(days=9999)),
        "boxed": INT64,
    },
)
ZERO: dict[int, Any] = {Field.TYPE_BOOL: False, Field.TYPE_STRING: "", Field.TYPE_BYTES: b""}


def made(fields: dict[str, Any]) -> Any:
    """The message that has these fields."""
    apart = ("at", "took", "boxed", "point", "points", "by_name")
    message = ORDER(**{name: value for name, value in fields.items() if name not in apart})
    if "at" in fields:
        message.at.FromDatetime(fields["at"])
    if "took" in fields:
        message.took.FromTimedelta(fields["took"])
    if "boxed" in fields:
        message.boxed.value = fields["boxed"]
    if "point" in fields:
        message.point.SetInParent()
        message.point.x = fields["point"]["x"]
        message.point.tags.extend(fields["point"]["tags"])
    for point in fields.get("points", []):
        message.points.add(**point)
    for key, point in fields.get("by_name", {}).items():
        message.by_name[key].x = point["x"]
        message.by_name[key].tags.extend(point["tags"])
    return message


def expected(fields: dict[str, Any]) -> dict[str, Any]:
    found = {name: fields.get(name, ZERO.get(kind, 0)) for name, (kind, _, _) in SCALARS.items()}
    for name in ("a_uint64", "a_fixed64"):
        found[name] = Decimal(found[name])
    took = fields.get("took")
    return {
        **found,
        "maybe": fields.get("maybe"),
        "this": fields.get("this"),
        "that": None,
        "color": {0: "RED", 7: "BLUE", 99: "99"}[fields.get("color", 0)],
        "point": fields.get("point"),
        "numbers": fields.get("numbers", []),
        "points": fields.get("points", []),
        "by_name": sorted(fields.get("by_name", {}).items()),
        "at": fields.get("at"),
        "took": None if took is None else took // timedelta(microseconds=1),
        "boxed": fields.get("boxed"),
    }


def sorted_maps(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "by_name": sorted(row["by_name"])}


def test_each_type_has_its_column() -> None:
    ddl = to_ddl(FORMAT.schema)
    assert ddl.startswith(", ".join(f"{name} {of}" for name, (_, _, of) in SCALARS.items()))
    assert ddl.endswith(
        "maybe BIGINT, this STRING, that INT, color STRING, point STRUCT<x:INT,tags:ARRAY<STRING>>, "
        "numbers ARRAY<BIGINT>, points ARRAY<STRUCT<x:INT,tags:ARRAY<STRING>>>, "
        "by_name MAP<STRING,STRUCT<x:INT,tags:ARRAY<STRING>>>, at TIMESTAMP, took BIGINT, boxed BIGINT"
    )


@deep(40)
@given(st.lists(MESSAGES, max_size=5))
def test_what_protobuf_writes_is_read_back(decode: Any, given: list[dict[str, Any]]) -> None:
    rows, bad = decode(FORMAT, [made(fields).SerializeToString() for fields in given])
    assert bad == []
    assert [sorted_maps(row) for _, row in rows] == [expected(fields) for fields in given]


@deep(40)
@given(st.lists(MESSAGES.map(lambda fields: made(fields).SerializeToString()), max_size=5), st.data())
def test_a_corrupt_message_changes_no_other(decode: Any, good: list[bytes], data: st.DataObject) -> None:
    values: list[bytes | None] = [*good]
    for wrong in data.draw(st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=3)):
        values.insert(data.draw(st.integers(0, len(values))), wrong)
    rows, bad = decode(FORMAT, values)
    cut = data.draw(st.integers(0, len(values)))
    first, second = decode(FORMAT, values[:cut]), decode(FORMAT, values[cut:])
    assert repr(rows) == repr(first[0] + [(i + cut, row) for i, row in second[0]])
    assert bad == first[1] + [(i + cut, code, text) for i, code, text in second[1]]


def test_fields_that_are_not_known_are_ignored(decode: Any) -> None:
    later = whole()
    put(later.message_type[1], "new", Field.TYPE_STRING)
    value = generated("shop.Order", later)(an_int32=5, new="x").SerializeToString()
    rows, bad = decode(FORMAT, [value])
    assert (rows[0][1]["an_int32"], bad) == (5, [])


def test_a_value_without_a_place_is_a_bad_record_and_no_other_is(decode: Any) -> None:
    far = made({"an_int32": 2})
    far.at.seconds = 2**62
    values = [made({"an_int32": 1}).SerializeToString(), far.SerializeToString(), made({}).SerializeToString()]
    rows, bad = decode(FORMAT, values)
    assert [i for i, _ in rows] == [0, 2]
    assert [(i, code) for i, code, _ in bad] == [(1, "TG-0323")]


ATTRIBUTES = ["Clear", "HasField", "ListFields", "IsInitialized", "FromString", "SerializeToString", "DESCRIPTOR"]


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_a_field_may_be_called_like_what_every_message_has(decode: Any, syntax: str) -> None:
    names = [*ATTRIBUTES, "FindInitializationErrors", "__class__", "HasField_field", "value", "from", "None"]
    made_of = file(syntax=syntax)
    inner, outer = made_of.message_type.add(name="Inner"), made_of.message_type.add(name="Outer")
    for name in names:
        put(inner, name, Field.TYPE_STRING).proto3_optional = syntax == "proto3"
        if syntax == "proto3":
            inner.field[-1].oneof_index = len(inner.oneof_decl)
            inner.oneof_decl.add(name=f"_{name}")
    label = Field.LABEL_REQUIRED if syntax == "proto2" else Field.LABEL_OPTIONAL
    put(outer, "id", Field.TYPE_INT32, label=label)
    put(outer, "HasField", Field.TYPE_MESSAGE, ".shop.Inner")
    put(outer, "ListFields", Field.TYPE_MESSAGE, ".shop.Inner", label=Field.LABEL_REPEATED)
    absent = b"".join(bytes([number << 3 | 2, 1]) + name[:1].encode() for number, name in enumerate(names, 1))[3:]
    value = b"\x08\x05" + bytes([0x12, len(absent)]) + absent + b"\x1a\x03\x0a\x01x"
    rows, bad = decode(tg.Protobuf("shop.Outer", descriptor=files(made_of)), [value])
    found = {name: None if i == 0 else name[:1] for i, name in enumerate(names)}
    only = {name: "x" if i == 0 else None for i, name in enumerate(names)}
    assert (rows, bad) == ([(0, {"id": 5, "HasField": found, "ListFields": [only]})], [])


def test_a_type_that_only_has_the_name_of_a_known_one_is_a_message(decode: Any) -> None:
    known = descriptor_pb2.FileDescriptorProto(name="own.proto", package="google.protobuf", syntax="proto3")
    put(known.message_type.add(name="Timestamp"), "seconds", Field.TYPE_STRING)
    put(known.message_type.add(name="Int64Value"), "number", Field.TYPE_INT64)
    made_of = file(imports=("own.proto",))
    order = made_of.message_type.add(name="Order")
    put(order, "at", Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    put(order, "boxed", Field.TYPE_MESSAGE, ".google.protobuf.Int64Value")
    rows, bad = decode(
        tg.Protobuf("shop.Order", descriptor=files(known, made_of)), [b"\x0a\x03\x0a\x01x\x12\x02\x08\x05"]
    )
    assert (rows, bad) == ([(0, {"at": {"seconds": "x"}, "boxed": {"number": 5}})], [])


def test_text_that_is_not_utf8_is_a_bad_record_in_both_syntaxes(decode: Any) -> None:
    for syntax in ("proto2", "proto3"):
        old = file(syntax=syntax)
        put(old.message_type.add(name="Note"), "text", Field.TYPE_STRING)
        rows, bad = decode(
            tg.Protobuf("shop.Note", descriptor=files(old)), [b"\x0a\x01a", b"\x0a\x01\xff", b"\x0a\x01b"]
        )
        assert [row["text"] for _, row in rows] == ["a", "b"]
        assert [i for i, _, _ in bad] == [1]


def test_a_required_field_that_is_missing_makes_a_bad_record(decode: Any) -> None:
    old = file(syntax="proto2")
    note = old.message_type.add(name="Note")
    put(note, "id", Field.TYPE_INT32, label=Field.LABEL_REQUIRED)
    put(note, "text", Field.TYPE_STRING).default_value = "none"
    rows, bad = decode(tg.Protobuf("shop.Note", descriptor=files(old)), [b"\x08\x01", b"", b"\x08\x02\x12\x01a"])
    assert [row for _, row in rows] == [{"id": 1, "text": None}, {"id": 2, "text": "a"}]
    assert [(i, "required id" in text) for i, _, text in bad] == [(1, True)]


def test_columns_are_found_by_name_and_must_fit(decode: Any) -> None:
    value = made({"an_int32": 5}).SerializeToString()
    wider = pa.schema([("new", pa.string()), ("an_int32", pa.int64())])
    assert decode(FORMAT, [value], schema=wider) == ([(0, {"new": None, "an_int32": 5})], [])
    rows, [(index, code, problem)] = decode(FORMAT, [value], schema=pa.schema([("an_int32", pa.string())]))
    assert (rows, index, code) == ([], 0, "TG-0323")
    assert "int32 was written, string is declared" in problem


def framed(name: str, made_of: Any) -> tuple[Any, Any]:
    return generated(name, made_of), tg.Protobuf(name, descriptor=files(made_of), framed=True)


def test_confluents_serializer_writes_what_is_read(decode: Any) -> None:
    nested = file()
    put(nested.message_type.add(name="First"), "id", Field.TYPE_INT32)
    outer = nested.message_type.add(name="Outer")
    put(outer, "id", Field.TYPE_INT32)
    for name in ("A", "B"):
        put(outer.nested_type.add(name=name), "id", Field.TYPE_INT32)
    with serving() as registry:
        context = SerializationContext("orders", MessageField.VALUE)
        written = {}
        for name in ("shop.First", "shop.Outer", "shop.Outer.B"):
            made_of, _ = framed(name, nested)
            client = SchemaRegistryClient({"url": registry.url})
            serialize = ProtobufSerializer(made_of, client, {"use.deprecated.format": False})
            written[name] = serialize(made_of(id=5), context)
    for name in written:
        rows, bad = decode(framed(name, nested)[1], [*written.values(), b"", b"\1\0\0\0\1\0", b"\0\0\0\0", None])
        place = list(written).index(name)
        assert [(i, row["id"]) for i, row in rows] == [(place, 5), (6, None)]
        assert [i for i, _, _ in bad] == [i for i in range(6) if i != place]


def recursive() -> Any:
    made_of = file()
    node = made_of.message_type.add(name="Node")
    put(node, "next", Field.TYPE_MESSAGE, ".shop.Node")
    return made_of


def test_what_is_no_column_is_refused_when_it_is_declared() -> None:
    bare = file()
    bare.message_type.add(name="Bare")
    for name, made_of in (("shop.Node", recursive()), ("shop.Bare", bare)):
        with pytest.raises(SchemaWithoutColumns):
            tg.Protobuf(name, descriptor=files(made_of))
    with pytest.raises(SchemaWithoutColumns):
        tg.Protobuf(struct_pb2.Struct)


def test_a_descriptor_that_is_none_is_refused() -> None:
    astray, circle = file(imports=("no/such.proto",)), file(imports=("shop.proto",))
    for name, descriptor in (
        ("shop.Order", b"\xff"), ("shop.Missing", files(FILE)), ("", files(FILE)), ("shop.Order", b""),
        ("shop.Order", files(astray)), ("shop.Order", files(circle)), ("shop", files(FILE)),
    ):  # fmt: skip
        with pytest.raises(InvalidMessageSchema):
            tg.Protobuf(name, descriptor=descriptor)
    with pytest.raises(InvalidMessageSchema):
        tg.Protobuf(int)
    with pytest.raises(InvalidArgument):
        tg.Protobuf("shop.Order")
    with pytest.raises(InvalidArgument):
        tg.Protobuf(timestamp_pb2.Timestamp, descriptor=b"")


def test_it_is_a_value_without_a_class(decode: Any) -> None:
    by_class = tg.Protobuf(ORDER)
    again = pickle.loads(pickle.dumps(by_class))
    assert again == by_class
    assert b"Order" in pickle.dumps(by_class)
    assert json.loads(json.dumps(again.describe()))["files"][-1] == "shop.proto"
    assert again.schema == FORMAT.schema
    rows, _ = decode(again, [made({"an_int32": 5}).SerializeToString()])
    assert rows[0][1]["an_int32"] == 5


def test_many_chunks_and_a_bad_record_in_one(decode: Any) -> None:
    values = [timestamp_pb2.Timestamp(seconds=i).SerializeToString() for i in range(40_000)]
    values[20_000] = b"\xff"
    rows, bad = decode(tg.Protobuf(timestamp_pb2.Timestamp), values)
    assert [i for i, _, _ in bad] == [20_000]
    assert all(row["seconds"] == i for i, row in rows)
