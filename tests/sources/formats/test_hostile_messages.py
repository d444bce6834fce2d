"""Messages that are made to harm: each is one bad record or the row that it is, soon, and its neighbours are rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

import tidegauge as tg
from tidegauge.sources.formats.records import MAX_RECORD_BYTES

MIB = 1 << 20
ROOM = 900 * MIB
"""More than any of these takes on its way; a count or a length that is believed would take much more."""

JSON = tg.Json("id long, name string, d double, x decimal(20,2), at struct<x: array<decimal(9,0)>, d: array<double>>")
MAPS = tg.Json("id long, m map<string,double>, n map<string,decimal(9,2)>")
CSV = tg.Csv("id long, x decimal(20,2)")


def avro(of: Any) -> Any:
    return tg.Avro({"type": "record", "name": "R", "fields": [{"name": "it", "type": of}]})


def protobuf() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="shop", syntax="proto2")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="name", number=2, type=9, label=1)
    entry = order.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=9, label=1)
    order.field.add(name="by_name", number=3, type=11, type_name=".shop.Order.ByNameEntry", label=3)
    descriptor = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return tg.Protobuf("shop.Order", descriptor=descriptor)


LONGS, PAIRS, PROTOBUF = (
    avro({"type": "array", "items": "long"}),
    avro({"type": "map", "values": "string"}),
    protobuf(),
)
GOOD = {
    id(JSON): b"{}",
    id(MAPS): b"{}",
    id(CSV): b"1,2",
    id(LONGS): b"\0",
    id(PAIRS): b"\0",
    id(PROTOBUF): b"\x08\1",
}
DEEP = b"[" * 10_000 + b"]" * 10_000
DIGITS = b"9" * 1_000_000

BAD: dict[str, tuple[Any, Callable[[], bytes]]] = {
    "JSON nested where a text is": (JSON, lambda: b'{"name": %b}' % DEEP),
    "JSON nested where a list is": (JSON, lambda: b'{"at": {"x": %b}}' % DEEP),
    "JSON nested and not closed": (JSON, lambda: b'{"z": %b}' % (b"[" * 10_000)),
    "JSON nested where a map is": (MAPS, lambda: b'{"m": %b}' % DEEP),
    "a long of a million digits": (JSON, lambda: b'{"id": %b}' % DIGITS),
    "a double of a million digits": (JSON, lambda: b'{"d": %b}' % DIGITS),
    "a double inside": (JSON, lambda: b'{"at": {"d": [1, %b]}}' % DIGITS),
    "a double in a map": (MAPS, lambda: b'{"m": {"a": %b}}' % DIGITS[:400]),
    "a double in a map of more digits": (MAPS, lambda: b'{"m": {"a": %b}}' % DIGITS),
    "a double of a large exponent": (JSON, lambda: b'{"d": 1e999999999}'),
    "a decimal of a million digits": (JSON, lambda: b'{"x": %b}' % DIGITS),
    "a decimal of one digit too many": (JSON, lambda: b'{"x": 1234567890123456789}'),
    "a decimal inside of one digit too many": (JSON, lambda: b'{"at": {"x": [1, -1000000e3]}}'),
    "a decimal of a small exponent": (JSON, lambda: b'{"x": 1e-999999999}'),
    "a decimal of a smaller exponent": (JSON, lambda: b'{"x": 1e-' + b"9" * 30 + b"}"),
    "a decimal that is hidden": (JSON, lambda: b'{"x": 1e-999999999, "x": 1}'),
    "a decimal as a text": (JSON, lambda: b'{"x": "1E-999999999"}'),
    "a decimal as an escaped text": (JSON, lambda: b'{"x": "1\\u0065\\u002d%b"}' % (rb"\u0039" * 9)),
    "a decimal inside": (JSON, lambda: b'{"at": {"x": [0, 0.1e-99999999]}}'),
    "a decimal in a map": (MAPS, lambda: b'{"n": {"a": 1e-999999999}}'),
    "a decimal in CSV": (CSV, lambda: b"1,1e-999999999"),
    "a decimal of many zeros in CSV": (CSV, lambda: b"1,0." + b"0" * 10_000_000 + b"1"),
    "a field of CSV longer than any": (CSV, lambda: b"1," + b"a" * MAX_RECORD_BYTES),
    "delimiters of CSV": (CSV, lambda: b"," * (4 * MIB)),
    "quotes of CSV": (CSV, lambda: b'1,"' + b'"' * (4 * MIB)),
    "carriage returns in CSV": (CSV, lambda: b"1,2" + b"\r" * (4 * MIB) + b"3"),
    "lines of CSV": (CSV, lambda: b"1,2" + b"\n" * (4 * MIB) + b"3"),
    "a block of Avro with fewer items than none": (LONGS, lambda: b"\x09\x04\x02\x04\0"),
    "a block of Avro with the least count": (LONGS, lambda: b"\xff" * 9 + b"\x01" + b"\2" * 20),
    "a block of Avro with the largest count": (LONGS, lambda: b"\xfe" + b"\xff" * 8 + b"\x01" + b"\2" * 20),
    "blocks of Avro without end": (LONGS, lambda: b"\2\2" * (MIB // 4)),
    "a key of Avro that is no text": (PAIRS, lambda: b"\2\2\xff\2a\0"),
    "groups of Protobuf in groups": (PROTOBUF, lambda: b"\xa3\x06" * 10_000 + b"\xa4\x06" * 10_000),
    "groups of Protobuf without end": (PROTOBUF, lambda: b"\xa3\x06" * 10_000),
    "a length of Protobuf": (PROTOBUF, lambda: b"\x12\xff\xff\xff\xff\x07"),
    "a key of Protobuf that is no text": (PROTOBUF, lambda: b"\x1a\x03\x0a\x01\xff"),
}  # fmt: skip

PEAK = """
import resource
from tests.sources.formats.conftest import _decode
from tests.sources.formats.test_hostile_messages import BAD, GOOD

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for made, harmful in BAD.values():
    _decode(made, [GOOD[id(made)], harmful(), GOOD[id(made)]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", BAD)
def test_it_is_one_bad_record(decode: Any, case: str) -> None:
    made, harmful = BAD[case]
    value, good = harmful(), GOOD[id(made)]
    rows, bad = decode(made, [good, value, good])
    assert ([i for i, _ in rows], [(i, code) for i, code, _ in bad]) == ([0, 2], [(1, "TG-0323")])
    assert len(bad[0][2]) < 1000


@pytest.mark.long
def test_all_of_them_together_take_little_room() -> None:
    """In a process of its own: what else this one does is no concern of theirs."""
    here = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", PEAK]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": here}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < ROOM


@pytest.mark.parametrize(
    ("value", "column", "expected"),
    [
        (b'{"z": %b}' % DEEP, "name", None),
        (b'{"z": %b, "name": "site-e-123"}' % DIGITS, "name", "site-e-123"),
        (b'{"d": 0.%b}' % DIGITS, "d", 1.0),
        (b'{"d": 1e-400}', "d", 0.0),
        (b'{"d": Infinity}', "d", float("inf")),
        (b'{"x": 150e-2, "d": 1e-50}', "x", Decimal("1.50")),
        (b'{"x": "1\\u002e5", "name": "5e-4123"}', "x", Decimal("1.50")),
    ],
)  # fmt: skip
def test_what_is_odd_and_right_is_a_row(decode: Any, value: bytes, column: str, expected: Any) -> None:
    rows, bad = decode(JSON, [b"{}", value, b"{}"])
    assert (rows[1][1][column], bad) == (expected, [])


@given(st.integers(-(10**18), 10**18), st.integers(-60, 30), st.integers(0, 45), st.sampled_from(["", "0"]))
def test_a_decimal_is_the_same_in_each_text_or_bad(
    decode: Any, number: int, exponent: int, places: int, zero: str
) -> None:
    text = (
        f"{number}.{'0' * places}e{exponent:+d}"
        if places
        else f"{number}e{'-' if exponent < 0 else ''}{zero}{abs(exponent)}"
    )
    exact = Decimal(text)
    fits = exact.scaleb(2) == exact.scaleb(2).to_integral_value() and abs(exact) < 10**18
    for made, value in ((JSON, b'{"x": %b}'), (JSON, b'{"x": "%b"}'), (MAPS, b'{"n": {"a": %b}}'), (CSV, b"1,%b")):
        rows, bad = decode(made, [value % text.encode()])
        assert len(rows) + len(bad) == 1
        for _, row in rows:
            found = row["x"] if "x" in row else row["n"][0][1]
            assert found == exact
            assert fits


def test_a_large_message_that_is_right_is_a_row(decode: Any) -> None:
    rows, bad = decode(
        tg.Csv("id long, note string"), [b"1,x", b"1," + b"a" * (8 * MIB), b'2,"' + b'""' * MIB + b'"']
    )
    assert ([len(row["note"]) for _, row in rows], bad) == ([1, 8 * MIB, MIB], [])
    rows, bad = decode(PROTOBUF, [b"\xf8\x06\x01" * MIB])
    assert (len(rows), bad) == (1, [])
    assert pa.types.is_int64(PROTOBUF.schema.field("id").type)
