"""Protobuf messages that are read together have the values that Protobuf's own parser gives each of them alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

import tidegauge as tg
from tidegauge.sources.formats.protobuf import _one_by_one, vectors
from tidegauge.sources.formats.protobuf.descriptor import kind_of
from tidegauge.sources.formats.protobuf.wire import STEPS

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18]
KEYS = [3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 18]
KNOWN = [
    "Timestamp",
    "Duration",
    *(f"{name}Value" for name in ("Int64", "UInt64", "String", "Bool", "Bytes", "Float")),
]
NUMBERS = [1, 2, 3, 15, 16, 2047, 2048, 536_870_911]
ENUM, MESSAGE, GROUP = 14, 11, 10
INTEGERS = [0, 1, -1, 127, 300, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63)]


def proto_of(module: Any) -> Any:
    found = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(found)
    return found


DEPENDENCIES = [proto_of(module) for module in (timestamp_pb2, duration_pb2, wrappers_pb2)]


@lru_cache(maxsize=400)
def made(seed: int, syntax: str) -> tuple[str, bytes, Any]:
    """Make up a message type: its name, its files and the class that writes it."""
    chance = random.Random(seed)
    file = descriptor_pb2.FileDescriptorProto(
        name="f.proto", package="p", syntax=syntax, dependency=[each.name for each in DEPENDENCIES]
    )
    enum = file.enum_type.add(name="E")
    enum.options.allow_alias = True
    for name, number in (("ZERO", 0), ("ONE", 1), ("UNO", 1), ("LEAST", -(2**31)), ("MOST", 2**31 - 1)):
        enum.value.add(name=name, number=number)
    fill(file.message_type.add(name="M"), ".p.M", chance, syntax, depth=2)
    pool = descriptor_pool.DescriptorPool()
    for each in (*DEPENDENCIES, file):
        pool.Add(each)
    files = descriptor_pb2.FileDescriptorSet(file=[*DEPENDENCIES, file]).SerializeToString()
    return "p.M", files, message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))


def fill(message: Any, path: str, chance: random.Random, syntax: str, *, depth: int) -> None:
    for i, number in enumerate(chance.sample(NUMBERS, chance.randint(1, 5))):
        field = message.field.add(name=f"f{i}", number=number, label=Field.LABEL_OPTIONAL)
        what = chance.choice(["scalar", "scalar", "enum", "known", "message", "map"] if depth else ["scalar", "enum"])
        if what == "map":
            entry = message.nested_type.add(name=f"F{i}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=Field.LABEL_OPTIONAL, type=chance.choice(KEYS))
            value = entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL)
            typed(value, chance.choice(["scalar", "enum", "known"]), chance)
            field.type, field.type_name, field.label = MESSAGE, f"{path}.F{i}Entry", Field.LABEL_REPEATED
            continue
        if what == "message":
            fill(message.nested_type.add(name=f"N{i}"), f"{path}.N{i}", chance, syntax, depth=depth - 1)
            field.type, field.type_name = MESSAGE, f"{path}.N{i}"
            if syntax == "proto2" and chance.random() < 0.2:
                field.type, field.name = GROUP, f"n{i}"
        else:
            typed(field, what, chance)
        shaped(message, field, chance, syntax)
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def typed(field: Any, what: str, chance: random.Random) -> None:
    if what == "enum":
        field.type, field.type_name = ENUM, ".p.E"
    elif what == "known":
        field.type, field.type_name = MESSAGE, f".google.protobuf.{chance.choice(KNOWN)}"
    else:
        field.type = chance.choice(SCALARS)


def shaped(message: Any, field: Any, chance: random.Random, syntax: str) -> None:
    """Make a field repeated, packed or not, one of several, optional, required, or leave it as it is."""
    way = chance.choice(["plain", "repeated", "repeated", "oneof", "optional"])
    if way == "repeated":
        field.label = Field.LABEL_REPEATED
        if field.type not in (9, 10, 11, 12):
            field.options.packed = chance.random() < 0.5
    elif way == "oneof":
        if not message.oneof_decl:
            message.oneof_decl.add(name="either")
        field.oneof_index = 0
    elif way == "optional" and syntax == "proto3":
        field.proto3_optional = field.type != MESSAGE
    elif way == "optional" and field.type in (3, 5):
        field.default_value = "7"
    elif way == "plain" and syntax == "proto2" and chance.random() < 0.2:
        field.label = Field.LABEL_REQUIRED


def a_value(field: Any, chance: random.Random, syntax: str) -> Any:
    unsigned = {4: 64, 6: 64, 7: 32, 13: 32}
    if field.type in unsigned:
        return chance.choice([n for n in INTEGERS if 0 <= n < 2 ** unsigned[field.type]])
    if field.type in (3, 5, 15, 16, 17, 18):
        bits = 31 if field.type in (5, 15, 17) else 63
        return chance.choice([n for n in INTEGERS if -(2**bits) <= n < 2**bits])
    choices: dict[int, list[Any]] = {
        1: [0.0, -0.0, 1.5, float("inf"), float("nan")],
        2: [0.0, -0.0, 1.5, float("inf"), float("nan")],
        8: [False, True],
        9: ["", "x", "\u00e9\U0001f600", "a text that is longer than a view"],
        12: [b"", b"\xff", b"abc"],
        ENUM: [0, 1, -(2**31), 2**31 - 1, *([5, -7] if syntax == "proto3" else [])],
    }
    return chance.choice(choices[field.type])


def written(message: Any, chance: random.Random, syntax: str) -> Any:
    """Fill in a message."""
    for field in message.DESCRIPTOR.fields:
        inner = field.message_type
        if not field.is_required and chance.random() < 0.3:
            continue
        if inner is not None and inner.GetOptions().map_entry:
            key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
            for _ in range(chance.randrange(3)):
                entries, name = getattr(message, field.name), a_value(key, chance, syntax)
                if value.message_type is not None:
                    written(entries[name], chance, syntax)
                else:
                    entries[name] = a_value(value, chance, syntax)
        elif field.is_repeated:
            for _ in range(chance.randrange(4)):
                values = getattr(message, field.name)
                if inner is not None:
                    written(values.add(), chance, syntax)
                else:
                    values.append(a_value(field, chance, syntax))
        elif inner is not None:
            getattr(message, field.name).SetInParent()
            written(getattr(message, field.name), chance, syntax)
        else:
            setattr(message, field.name, a_value(field, chance, syntax))
    return message


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


ODD_NUMBERS = [b"\x80\x00", b"\xff" * 9 + b"\x7f", b"\x80" * 9 + b"\x01", b"\x80" * 10 + b"\x01"]
ODD_BYTES = [b"", b"\xff", b"\x08\x01", b"\x08\x05\x08\x06", b"\x10\x02\x08\x01", b"\x0a\x01a\x12\x01b", b"12345678"]


def damaged(value: bytes, numbers: list[int], chance: random.Random) -> bytes:
    """Cut, change or lengthen a message, as damage or another writer might."""
    way = chance.choice(["cut", "change", "insert", "insert", "twice"])
    if way == "twice":
        return value * 2
    if way == "cut":
        return value[: chance.randrange(len(value) + 1)]
    if way == "change":
        at = chance.randrange(len(value) or 1)
        return value[:at] + bytes([chance.randrange(256)]) + value[at + 1 :]
    number, way_of_writing = chance.choice([*numbers, 99]), chance.choice([0, 1, 2, 2, 3, 5, chance.randrange(8)])
    tag = varint(number << 3 | way_of_writing | (chance.random() < 0.05) << 32)
    body = chance.choice(ODD_BYTES)
    payload = {
        0: chance.choice([*ODD_NUMBERS, varint(chance.choice(INTEGERS))]),
        1: bytes(chance.randrange(256) for _ in range(8)),
        2: varint(len(body)) + body,
        3: body + varint(number << 3 | 4),
        5: bytes(chance.randrange(256) for _ in range(4)),
    }.get(way_of_writing, b"")
    at = chance.choice([0, len(value)])
    return value[:at] + tag + payload + value[at:]


def told(part: Any) -> dict[int, str]:
    """Return the rows of a part as text: NaN is not itself, and a time may be beyond the calendar of Python."""
    found = {}
    for k, i in enumerate(part.kept.tolist() if part.kept is not None else range(len(part.rows))):
        try:
            found[i] = repr(part.rows.slice(k, 1).to_pylist())
        except OverflowError:
            found[i] = "beyond the calendar"
    return found


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@deep(60)
@given(seed=st.integers(0, 2**32), chance=st.randoms(use_true_random=False))
def test_together_or_alone_the_rows_are_the_same(syntax: str, seed: int, chance: random.Random) -> None:
    name, files, writer = made(seed, syntax)
    fmt, kind = tg.Protobuf(name, descriptor=files), kind_of(name, files)
    good = [written(writer(), chance, syntax).SerializeToString() for _ in range(4)]
    numbers = [field.number for field in writer.DESCRIPTOR.fields]
    values = [*good, *(damaged(chance.choice(good), numbers, chance) for _ in range(12))]
    alone = _one_by_one(kind, values, fmt.schema)
    bad: list[int] = []
    found = fmt.decode_messages(values, schema=fmt.schema, on_bad=lambda i, *_: bad.append(i))
    found.rows.validate(full=True)
    kept = None if found.indices is None else found.indices.to_numpy()
    assert bad == sorted(alone.wrong)
    assert told(type(alone)(found.rows, kept)) == told(alone)


def simple(*fields: tuple[int, int], syntax: str = "proto3") -> tuple[Any, Any, Any]:
    """Return a type with fields of these labels and kinds: the format, what it is known by, and its class."""
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="s", syntax=syntax)
    message = file.message_type.add(name="M")
    for number, (label, kind) in enumerate(fields, 1):
        message.field.add(name=f"f{number}", number=number, label=label, type=kind)
    files = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made_of = message_factory.GetMessageClass(pool.FindMessageTypeByName("s.M"))
    return tg.Protobuf("s.M", descriptor=files), kind_of("s.M", files), made_of


def odd(kind: Any, *values: bytes) -> list[bool]:
    ends = np.cumsum([len(value) for value in values])
    begins = ends - [len(value) for value in values]
    found: list[bool] = vectors.read(kind.shapes, b"".join(values), begins, ends)[1].tolist()
    return found


def test_what_every_writer_writes_is_read_together() -> None:
    every = [(label, kind) for kind in SCALARS for label in (Field.LABEL_OPTIONAL, Field.LABEL_REPEATED)]
    _, kind, writer = simple(*every)
    value = writer()
    for field in value.DESCRIPTOR.fields:
        one: Any = {9: "x", 12: b"x", 8: True}.get(field.type, 1)
        setattr(value, field.name, one) if not field.is_repeated else getattr(value, field.name).extend([one, one])
    assert odd(kind, b"", value.SerializeToString(), b"\xf8\x07\x01", value.SerializeToString()) == [False] * 4


@pytest.mark.parametrize("count", [1, STEPS, STEPS + 1, 5 * STEPS])
def test_a_message_of_many_fields_is_read_alone(decode: Callable[..., Any], count: int) -> None:
    fmt, kind, writer = simple((Field.LABEL_REPEATED, 9))
    value = writer(f1=[str(i) for i in range(count)]).SerializeToString()
    assert odd(kind, b"", value, b"") == [False, count > STEPS, False]
    assert decode(fmt, [b"", value])[0][1][1]["f1"] == [str(i) for i in range(count)]


def test_a_packed_field_of_half_a_number_is_a_bad_record(decode: Callable[..., Any]) -> None:
    fmt, _, _ = simple((Field.LABEL_REPEATED, 1), (Field.LABEL_REPEATED, 3))
    values = [b"\x0a\x08" + bytes(8), b"\x0a\x09" + bytes(9), b"\x12\x02\x05\x06", b"\x12\x02\x05\x86"]
    rows, bad = decode(fmt, values)
    assert rows == [(0, {"f1": [0.0], "f2": []}), (2, {"f1": [], "f2": [5, 6]})]
    assert [i for i, _, _ in bad] == [1, 3]


def test_the_entries_of_a_map_are_in_the_order_of_their_keys(decode: Callable[..., Any]) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="m", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="ItEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=4)
    message.field.add(name="it", number=1, label=3, type=MESSAGE, type_name=".m.M.ItEntry")
    fmt = tg.Protobuf("m.M", descriptor=descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    keys = ["b", "a", "\u00e9", "ab", "", "\U0001f600", "z"]
    entries = [b"\x0a" + varint(len(key.encode())) + key.encode() + b"\x10" + varint(i) for i, key in enumerate(keys)]
    value = b"".join(b"\x0a" + varint(len(each)) + each for each in entries)
    expected = [(key, Decimal(keys.index(key))) for key in sorted(keys)]
    twice = value + b"\x0a" + varint(len(entries[0])) + entries[0]
    rows, bad = decode(fmt, [value, twice])
    assert ([row["it"] for _, row in rows], bad) == ([expected, expected], [])
    # Protobuf passes over an entry that has another field.
    rows, bad = decode(fmt, [value + b"\x0a\x07\x0a\x01q\x10\x01\x18\x05"])
    assert ([row["it"] for _, row in rows], bad) == ([expected], [])
