"""Parquet: whole files, by row groups, nothing changed on the way."""

from __future__ import annotations

import contextlib
import io
import pickle
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.flow import ReservedColumn
from tidegauge.errors.sources import AmbiguousHeader, ColumnTypeMismatch, CorruptFile, OldCalendar, UnsupportedType
from tidegauge.sources.ddl import parse_ddl
from tidegauge.sources.formats import Parquet
from tidegauge.sources.formats.fitted import nearest_type, widens


def file(table: pa.Table, **options: Any) -> io.BytesIO:
    stream = io.BytesIO()
    pq.write_table(table, stream, **options)
    return stream


def rows(stream: io.BytesIO, schema: pa.Schema, first: int = 0, last: int | None = None) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    fmt = Parquet()
    last = len(fmt.groups(stream)) if last is None else last
    for decoded in fmt.decode_groups(stream, first=first, last=last, schema=schema):
        assert decoded.rows.schema == schema
        assert 0 < decoded.rows.num_rows <= 65_536
        found += zip(decoded.positions.to_pylist(), decoded.rows.to_pylist(), strict=True)
    return found


@given(st.lists(st.none() | st.integers(-9, 9), max_size=30), st.integers(1, 7), st.data())
@deep(50)
def test_groups_are_pieces_of_the_file_in_order(values: list[int | None], size: int, data: st.DataObject) -> None:
    stream = file(pa.table({"a": pa.array(values, pa.int32()), "b": values}), row_group_size=size)
    schema = parse_ddl("a long, c string")
    groups = Parquet().groups(stream)
    cut = data.draw(st.integers(0, len(groups)))
    whole = rows(stream, schema)
    assert whole == [(i, {"a": value, "c": None}) for i, value in enumerate(values)]
    assert rows(stream, schema, 0, cut) + rows(stream, schema, cut) == whole
    assert all(group > 0 for group in groups)


def test_a_large_group_comes_in_bounded_batches() -> None:
    stream = file(pa.table({"a": range(150_000)}))
    assert [position for position, _ in rows(stream, parse_ddl("a long"))] == list(range(150_000))
    assert [row["b"] for _, row in rows(stream, parse_ddl("b map<string,array<int>>"))] == [None] * 150_000


NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("array", "ddl", "found"),
    [
        (pa.array([1], pa.uint32()), "long", 1),
        (pa.array([1], pa.int32()), "decimal(12,2)", Decimal("1.00")),
        (pa.array([7], pa.int16()), "float", 7.0),
        (pa.array([0.5], pa.float32()), "double", 0.5),
        (pa.array(["x"], pa.large_string()), "string", "x"),
        (pa.array(["x"]).dictionary_encode(), "string", "x"),
        (pa.array([b"x"], pa.large_binary()), "binary", b"x"),
        (pa.array([b"xy"], pa.binary(2)), "binary", b"xy"),
        (pa.array([NOON], pa.timestamp("ns", "Europe/Berlin")), "timestamp", NOON),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), "timestamp", NOON),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), "timestamp_ntz", NOON.replace(tzinfo=None)),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), "decimal(7,3)", Decimal("1.500")),
        (pa.array([[1, None]], pa.list_(pa.int8())), "array<long>", [1, None]),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), "map<string,int>", [("k", 1)]),
        (
            pa.array(
                [{"x": 1, "y": "b", "w": 0}],
                pa.struct([("x", pa.int8()), ("y", pa.large_string()), ("w", pa.int8())]),
            ),
            "struct<y:string,z:date,x:long>",
            {"y": "b", "z": None, "x": 1},
        ),
        (pa.array([[{"x": 1, "y": 2}]]), "array<struct<y:long>>", [{"y": 2}]),
        (pa.nulls(1), "date", None),
    ],
)
def test_what_a_type_holds_without_loss_is_cast(array: Any, ddl: str, found: Any) -> None:
    schema = parse_ddl(f"a {ddl}")
    stream = file(pa.table({"a": array}))
    assert rows(stream, schema) == [(0, {"a": found})]
    inferred = Parquet().infer_whole(stream)
    assert len(rows(stream, inferred)) == 1


@pytest.mark.parametrize(
    ("array", "ddl"),
    [
        (pa.array([1], pa.int64()), "int"),
        (pa.array([1], pa.int64()), "double"),
        (pa.array([1], pa.uint64()), "long"),
        (pa.array([1]), "string"),
        (pa.array(["1"]), "long"),
        (pa.array([1.5]), "float"),
        (pa.array([Decimal("1.5")], pa.decimal128(5, 1)), "decimal(5,2)"),
        (pa.array([NOON], pa.timestamp("us", "UTC")), "timestamp_ntz"),
        (pa.array([[1]]), "array<int>"),
        (pa.array([{"x": 1}]), "struct<x:string>"),
        (pa.array([None, 1], pa.int64()), "long not null"),
        (pa.array([1_000_000_001], pa.timestamp("ns", "UTC")), "timestamp"),
    ],
)
def test_what_might_lose_something_is_refused_with_the_column_and_both_types(array: Any, ddl: str) -> None:
    with pytest.raises(ColumnTypeMismatch) as caught:
        rows(file(pa.table({"a": array})), parse_ddl(f"a {ddl}"))
    assert caught.value.evidence["column"] == "a"
    assert re.split(r"[\[<]", caught.value.evidence["found"])[0] in str(array.type)
    assert str(parse_ddl(f"a {ddl}").field("a").type) in caught.value.evidence["declared"]


def test_a_column_that_is_there_twice_or_has_a_dot_in_its_name() -> None:
    twice = file(pa.table([[1], [2]], names=["a", "a"]))
    with pytest.raises(AmbiguousHeader):
        rows(twice, parse_ddl("a long"))
    dotted = file(pa.table({"a.b": [1], "a": [{"b": 2, "c": 3}]}))
    assert rows(dotted, parse_ddl("`a.b` long")) == [(0, {"a.b": 1})]
    assert rows(dotted, parse_ddl("a struct<c:long>")) == [(0, {"a": {"c": 3}})]


@pytest.mark.parametrize("ddl", ["timestamp", "timestamp_ntz"])
def test_an_int96_is_the_time_that_it_says_however_far_away(ddl: str) -> None:
    far = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1677, 9, 20, 1, 2, 3, 4, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ]
    near = [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2024, 2, 29, tzinfo=UTC)]
    schema = parse_ddl(f"a {ddl}, b array<{ddl}>, c struct<x:{ddl}>")
    for times in (far, near):
        column = pa.array(times, pa.timestamp("us"))
        nested = {"b": [[time] for time in column], "c": [{"x": time} for time in column]}
        stream = file(pa.table({"a": column, **nested}), use_deprecated_int96_timestamps=True)
        assert Parquet().infer_whole(stream) == parse_ddl(
            "a timestamp_ntz, b array<timestamp_ntz>, c struct<x:timestamp_ntz>"
        )
        expected = [time.replace(tzinfo=UTC if ddl == "timestamp" else None) for time in times]
        assert [row for _, row in rows(stream, schema)] == [
            {"a": time, "b": [time], "c": {"x": time}} for time in expected
        ]


NTZ, UTC_TIME = pa.timestamp("us"), pa.timestamp("us", "UTC")
SPARK_2, SPARK_3 = {"org.apache.spark.version": "2.4.8"}, {"org.apache.spark.version": "3.5.1"}
LEGACY, LEGACY_96 = {"org.apache.spark.legacyDateTime": ""}, {"org.apache.spark.legacyINT96": ""}
OLD = datetime(1899, 12, 31, 23, 59, 59)  # noqa: DTZ001 - of a column without a zone, too


@pytest.mark.parametrize(
    ("footer", "kind", "value", "int96", "refused"),
    [
        (SPARK_2, pa.date32(), date(1582, 10, 14), False, True),
        (SPARK_2, pa.date32(), date(1582, 10, 15), False, False),
        (SPARK_3, pa.date32(), date(1, 1, 1), False, False),
        ({}, pa.date32(), date(1, 1, 1), False, False),
        (SPARK_3 | LEGACY, pa.date32(), date(1, 1, 1), False, True),
        (SPARK_3 | LEGACY_96, pa.date32(), date(1, 1, 1), False, False),
        (SPARK_2, UTC_TIME, OLD, False, True),
        (SPARK_3 | LEGACY, UTC_TIME, OLD, False, True),
        (SPARK_3 | LEGACY, UTC_TIME, OLD + timedelta(seconds=1), False, False),
        (SPARK_3 | LEGACY, NTZ, OLD, False, False),
        (SPARK_3 | LEGACY_96, NTZ, OLD, True, True),
        (SPARK_2, NTZ, OLD, True, True),
        (SPARK_3 | LEGACY, NTZ, OLD, True, False),
        (SPARK_3, NTZ, OLD, True, False),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_values_in_the_old_calendar_are_refused_and_no_others(
    footer: dict[str, str], kind: Any, value: date, int96: bool, refused: bool, nested: bool
) -> None:
    values = pa.array([value, None, datetime(2024, 2, 29, tzinfo=UTC)], kind)
    maps = pa.MapArray.from_arrays([0, 1, 1, 3], pa.array(["a", "b", "c"]), values)
    column = pa.StructArray.from_arrays([pa.array([None, [1], []], pa.list_(pa.int64())), maps], ["x", "y"])
    table = pa.table({"more": values, "a": column if nested else values})
    stream = file(table.replace_schema_metadata(footer), use_deprecated_int96_timestamps=int96)
    schema = pa.schema([("a", Parquet().infer_whole(stream).field("a").type)])
    if not refused:
        assert [row["a"] for _, row in rows(stream, schema)] == table["a"].cast(schema.field("a").type).to_pylist()
        return
    with pytest.raises(OldCalendar, match=r"'a' has 1 values before 1(582|900)-"):
        rows(stream, schema)
    assert len(rows(stream, parse_ddl("b long"))) == 3


def test_a_value_that_has_no_place_is_said_with_its_row() -> None:
    values = [*range(70_000), 2**62, 2**62, *range(10)]
    stream = file(pa.table({"a": pa.array(values, pa.timestamp("ms"))}), row_group_size=40_000)
    with pytest.raises(ColumnTypeMismatch, match=f"row 70000: .*out of bounds timestamp: {2**62}"):
        rows(stream, parse_ddl("a timestamp"))
    with pytest.raises(ColumnTypeMismatch, match=f"row 70000: .*out of bounds timestamp: {2**62}"):
        rows(stream, parse_ddl("a timestamp"), 1, 2)
    absent = file(pa.table({"a": [1, None, 2, None]}))
    with pytest.raises(ColumnTypeMismatch, match="row 1 is null"):
        rows(absent, parse_ddl("a long not null"))


def test_what_an_int96_has_beyond_a_microsecond_is_cut_off() -> None:
    times = pa.array([-1999, -1, 1, 1999], pa.timestamp("ns"))
    stream = file(pa.table({"a": times}), use_deprecated_int96_timestamps=True)
    start = datetime(1970, 1, 1, tzinfo=UTC)
    assert [(row["a"] - start) // timedelta(microseconds=1) for _, row in rows(stream, parse_ddl("a timestamp"))] == [
        -2, -1, 0, 1,
    ]  # fmt: skip


def test_columns_are_inferred_from_the_file() -> None:
    table = pa.table(
        {
            "a": pa.array([1], pa.uint8()),
            "b": pa.array(["x"]).dictionary_encode(),
            "c": pa.array([NOON], pa.timestamp("ns", "UTC")),
            "d": pa.array([[{"x": 1}]]),
            "e": pa.nulls(1),
        }
    )
    assert Parquet().infer_whole(file(table)) == parse_ddl(
        "a short, b string, c timestamp, d array<struct<x:long>>, e string"
    )
    with pytest.raises(UnsupportedType, match="'a'"):
        Parquet().infer_whole(file(pa.table({"a": pa.array([1], pa.time32("s"))})))
    with pytest.raises(ReservedColumn):
        Parquet().infer_whole(file(pa.table({"_epoch": [1]})))


def test_a_file_is_complete_when_its_footer_is_there_and_can_be_read() -> None:
    data = file(pa.table({"a": range(1000)})).getvalue()
    assert Parquet().complete(io.BytesIO(data))
    for cut in (0, 4, 11, 12, len(data) // 2, len(data) - 1):
        assert not Parquet().complete(io.BytesIO(data[:cut]))
    assert not Parquet().complete(io.BytesIO(data + b"x"))
    assert not Parquet().complete(io.BytesIO(data[:-8] + b"\xff\xff\xff\x7fPAR1"))
    assert not Parquet().complete(io.BytesIO(data[:-8] + b"\x08\x00\x00\x00PAR1"))


@example(1036, b"\xd5\x89+").via("found: the footer describes no column, of which Arrow must not be asked")
@example(1413, b"-").via("found: the same")
@given(st.integers(4, 10**6), st.binary(min_size=1, max_size=8))
@deep(150)
def test_damage_is_a_corrupt_file_or_other_rows_and_nothing_else(at: int, noise: bytes) -> None:
    data = bytearray(DAMAGED)
    at %= len(data)
    data[at : at + len(noise)] = noise
    stream = io.BytesIO(bytes(data))
    schema = parse_ddl("a long, b string")
    with contextlib.suppress(CorruptFile, ColumnTypeMismatch, AmbiguousHeader):
        rows(stream, schema)
    Parquet().complete(stream)


DAMAGED = file(pa.table({"a": range(50), "b": ["x" * (i % 5) for i in range(50)]}), row_group_size=20).getvalue()


def test_text_that_is_not_utf8_is_a_corrupt_file() -> None:
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    with pytest.raises(CorruptFile, match="UTF"):
        rows(file(pa.table({"a": text})), parse_ddl("a string"))


def test_an_error_of_the_disk_is_no_corrupt_file() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        Parquet().groups(Failing(DAMAGED))


INTEGERS = st.sampled_from(
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
)
NUMBERS = INTEGERS | st.sampled_from(
    [pa.float32(), pa.float64(), pa.decimal128(3, 0), pa.decimal128(10, 2), pa.decimal128(20, 0)]
)


@given(INTEGERS, NUMBERS)
def test_an_integer_type_widens_to_another_iff_its_extremes_survive_the_cast(found: Any, wanted: Any) -> None:
    bits = found.bit_width
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pa.types.is_signed_integer(found) else (0, 2**bits - 1)
    extremes = pa.array([low, high, high - 1], found)
    try:
        survives = [int(value) for value in extremes.cast(wanted).to_pylist()] == [low, high, high - 1]
    except pa.ArrowInvalid:
        survives = False
    assert widens(found, wanted) == survives


@given(INTEGERS)
def test_the_nearest_type_holds_everything(found: Any) -> None:
    assert widens(found, nearest_type(found, "a"))


def test_a_format_is_a_value() -> None:
    fmt = Parquet("a long, b array<string>")
    assert pickle.loads(pickle.dumps(fmt)) == fmt
    assert fmt.describe() == {"format": "parquet", "schema": "a BIGINT, b ARRAY<STRING>"}
