"""Keys are equal where their values are, whatever holds them; and their parts never change."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.flow import UnknownColumn
from tidegauge.errors.steps import KeyCannotTell
from tidegauge.job.keys import check_key, parts_of, values_of
from tidegauge.sinks.layout.transforms import bucket

MOST = (1 << 31) - 1
AT = datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC)


def rows_of(values: list[Any], kind: Any) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values, kind)})


def murmur(data: bytes) -> int:
    """Murmur3 of 32 bits with seed 0, as its author has it (A. Appleby, MurmurHash3_x86_32)."""
    mask, state = 0xFFFFFFFF, 0
    whole = len(data) // 4 * 4

    def scrambled(word: int) -> int:
        word = word * 0xCC9E2D51 & mask
        return ((word << 15 | word >> 17) & mask) * 0x1B873593 & mask

    for at in range(0, whole, 4):
        state ^= scrambled(int.from_bytes(data[at : at + 4], "little"))
        state = ((state << 13 | state >> 19) & mask) * 5 + 0xE6546B64 & mask
    if data[whole:]:
        state ^= scrambled(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & mask
    state = (state ^ state >> 13) * 0xC2B2AE35 & mask
    return state ^ state >> 16


@pytest.mark.parametrize(
    ("value", "kind", "hashed"),
    [
        (34, pa.int64(), 2017239379),
        (34, pa.int32(), 2017239379),
        (34, pa.uint16(), 2017239379),
        ("iceberg", pa.string(), 1210000089),
        ("iceberg", pa.large_string(), 1210000089),
        ("iceberg", pa.string_view(), 1210000089),
        ("iceberg", pa.dictionary(pa.int8(), pa.string()), 1210000089),
        (b"\x00\x01\x02\x03", pa.binary(), -188683207),
        (b"\x00\x01\x02\x03", pa.binary(4), -188683207),
        (Decimal("14.20"), pa.decimal128(9, 2), -500754589),
        (date(2017, 11, 16), pa.date32(), -653330422),
        (date(2017, 11, 16), pa.date64(), -653330422),
        (AT.replace(tzinfo=None), pa.timestamp("us"), -2047944441),
        (AT.replace(tzinfo=None), pa.timestamp("s"), -2047944441),
        (AT, pa.timestamp("ns", "Europe/Oslo"), -2047944441),
        (True, pa.bool_(), 1392991556),
        (1, pa.int8(), 1392991556),
        (None, pa.string(), 0),
    ],
)
def test_the_hash_is_the_one_of_icebergs_specification(value: Any, kind: Any, hashed: int) -> None:
    assert parts_of(rows_of([value], kind), ("k",), MOST).tolist() == [(hashed & MOST) % MOST]


def test_the_parts_of_these_keys_are_these_for_ever() -> None:
    rows = pa.record_batch(
        {
            "id": pa.array([0, 1, -1, 2**40, None, 7]),
            "city": pa.array(["", "Oslo", "Málaga", "東京", "Oslo", None]),
        }
    )
    assert parts_of(rows, ("id",), 10).tolist() == [6, 6, 2, 8, 0, 9]
    assert parts_of(rows, ("city",), 10).tolist() == [0, 7, 5, 6, 7, 0]
    assert parts_of(rows, ("id", "city"), 10).tolist() == [4, 3, 5, 4, 7, 7]
    assert parts_of(rows, ("city", "id"), 1).tolist() == [0] * 6
    shown = pa.record_batch({"id": [34], "text": ["iceberg"], "on": [date(2017, 11, 16)]})
    keys = [("id",), ("text",), ("on",), ("id", "text")]
    assert [parts_of(shown, key, 16).tolist() for key in keys] == [[3], [9], [10], [6]], "as the page shows"


@given(st.lists(st.text(max_size=6), min_size=1), st.integers(1, 99))
def test_a_part_is_the_bucket_of_that_number(keys: list[str], parts: int) -> None:
    rows = pa.record_batch({"k": keys})
    assert parts_of(rows, ("k",), parts).tolist() == bucket(parts, "k").of(rows).to_pylist()


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=9)), min_size=1), st.integers(1, 99))
def test_a_key_of_several_columns_has_the_hash_that_the_reference_says(
    keys: list[tuple[int, str]], parts: int
) -> None:
    rows = pa.record_batch({"a": [a for a, _ in keys], "b": [b for _, b in keys]})
    wanted = [
        ((31 * murmur(a.to_bytes(8, "little", signed=True)) + murmur(b.encode())) & 0x7FFFFFFF) % parts
        for a, b in keys
    ]
    assert parts_of(rows, ("a", "b"), parts).tolist() == wanted


@given(st.lists(st.one_of(st.none(), st.integers(0, 127))), st.integers(1, 9), st.data())
def test_what_holds_a_value_does_not_matter(values: list[int | None], parts: int, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([pa.int8(), pa.int32(), pa.uint32(), pa.dictionary(pa.int32(), pa.int64())]))
    wide, narrow = rows_of(values, pa.int64()), rows_of(values, kind)
    assert parts_of(wide, ("k",), parts).tolist() == parts_of(narrow, ("k",), parts).tolist()
    assert values_of(wide, ("k",)) == values_of(narrow, ("k",))
    start = data.draw(st.integers(0, len(values)))
    assert parts_of(wide.slice(start), ("k",), parts).tolist() == parts_of(wide, ("k",), parts).tolist()[start:]


@given(st.lists(st.timedeltas(timedelta(-(10**5)), timedelta(10**5)), min_size=1))
def test_an_instant_is_one_key_in_every_zone_and_unit(since: list[timedelta]) -> None:
    instants = [datetime(1970, 1, 1, tzinfo=UTC) + one for one in since]
    kinds = [pa.timestamp("us", "UTC"), pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("us", "America/Lima")]
    found = [rows_of(instants, kind) for kind in kinds]
    assert len({tuple(parts_of(rows, ("k",), 1000).tolist()) for rows in found}) == 1
    assert len({tuple(values_of(rows, ("k",))) for rows in found}) == 1


@pytest.mark.parametrize(
    ("kind", "value", "alike"),
    [
        (pa.int64(), 1, 1),
        (pa.uint8(), 255, 255),
        (pa.bool_(), True, True),
        (pa.string(), "ø", "ø"),
        (pa.large_binary(), b"\x00", b"\x00"),
        (pa.decimal128(9, 2), Decimal("1.50"), Decimal("1.5")),
        (pa.date32(), date(1970, 1, 2), date(1970, 1, 2)),
    ],
    ids=str,
)
def test_keys_are_plain_values_and_a_null_is_equal_to_a_null(kind: Any, value: Any, alike: Any) -> None:
    [found, nothing, again] = values_of(rows_of([value, None, alike], kind), ("k",))
    assert nothing is None
    assert (found, hash(found)) == (again, hash(again))
    assert type(found) in {int, str, bytes, Decimal}
    assert values_of(rows_of([value] * 2, kind), ("k", "k")) == [(found, found)] * 2


def test_another_process_has_the_same_parts() -> None:
    code = (
        "import pyarrow as pa; from tidegauge.job.keys import parts_of;"
        "print(parts_of(pa.record_batch({'k': ['a', 'b', 'Oslo']}), ('k',), 1000).tolist())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert said == {f"{parts_of(rows_of(['a', 'b', 'Oslo'], pa.string()), ('k',), 1000).tolist()}\n"}


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (pa.float64(), "need not be equal"),
        (pa.dictionary(pa.int8(), pa.float32()), "need not be equal"),
        (pa.uint64(), "other numbers in Spark"),
        (pa.list_(pa.int64()), "none of them"),
        (pa.struct([("a", pa.int64())]), "none of them"),
        (pa.time64("us"), "none of them"),
        (pa.null(), "none of them"),
    ],
)
def test_a_column_whose_values_cannot_be_told_apart_is_no_key(kind: Any, why: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("k", kind)])
    with pytest.raises(KeyCannotTell, match=why):
        check_key(("id", "k"), schema, where="dedupe of output 'x'")
    with pytest.raises(UnknownColumn, match="the nearest is 'id'"):
        check_key(("idd",), schema, where="dedupe of output 'x'")
