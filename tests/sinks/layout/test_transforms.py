"""Partition columns: the values that Iceberg's specification gives them, whatever the machine's time zone."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

from tidegauge.errors.flow import InvalidArgument
from tidegauge.sinks.layout.murmur import hashes
from tidegauge.sinks.layout.transforms import PartitionField, bucket, day, hour, month

INSTANT = pa.timestamp("us", "UTC")
DECIMAL = pa.decimal128(38, 4)


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        (34, pa.int64(), 2017239379),
        (34, pa.int8(), 2017239379),
        (Decimal("14.20"), pa.decimal128(9, 2), -500754589),
        (date(2017, 11, 16), pa.date32(), -653330422),
        (datetime(2017, 11, 16, 22, 31, 8), pa.timestamp("us"), -2047944441),  # noqa: DTZ001
        (datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), INSTANT, -2047944441),
        ("iceberg", pa.string(), 1210000089),
        (b"\x00\x01\x02\x03", pa.binary(), -188683207),
    ],
)
def test_the_hash_is_that_of_icebergs_specification(value: Any, kind: Any, wanted: int) -> None:
    """Its appendix B has these values."""
    assert hashes(pa.array([value], kind)).tolist() == [wanted]


def murmur(data: bytes) -> int:
    """Return the hash, byte by byte as the algorithm is published."""

    def turned(number: int, by: int) -> int:
        return ((number << by) | (number >> (32 - by))) & 0xFFFFFFFF

    def mixed(word: int) -> int:
        return turned(word * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF

    state, whole = 0, len(data) // 4 * 4
    for at in range(0, whole, 4):
        state = turned(state ^ mixed(int.from_bytes(data[at : at + 4], "little")), 13) * 5 + 0xE6546B64 & 0xFFFFFFFF
    if data[whole:]:
        state ^= mixed(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ (state >> shift)) * factor & 0xFFFFFFFF
    return state - (1 << 32) if state >> 31 else state


@deep(200)
@given(values=st.lists(st.text(max_size=40) | st.none(), max_size=8), cut=st.integers(0, 8))
def test_a_text_has_one_hash_wherever_it_lies(values: list[str | None], cut: int) -> None:
    found = hashes(pa.array(values, pa.string()).slice(cut)).tolist()
    assert [one for one, value in zip(found, values[cut:], strict=True) if value is not None] == [
        murmur(value.encode()) for value in values[cut:] if value is not None
    ]


@deep(200)
@given(values=st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=5))
def test_a_decimal_is_hashed_as_the_fewest_bytes_of_its_number(values: list[int]) -> None:
    def fewest(number: int) -> bytes:
        return next(
            number.to_bytes(size, "big", signed=True)
            for size in range(1, 20)
            if -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1)
        )

    given = pa.array([Decimal(value).scaleb(-4) for value in values if abs(value) < 10**28] or [Decimal(0)], DECIMAL)
    unscaled = [int(value.scaleb(4)) for value in given.to_pylist()]
    assert hashes(given).tolist() == [murmur(fewest(number)) for number in unscaled]


INSTANTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59))  # noqa: DTZ001


@deep(200)
@given(times=st.lists(INSTANTS | st.none(), min_size=1, max_size=6), zoned=st.booleans())
def test_days_hours_and_months_are_those_of_utc(times: list[datetime | None], zoned: bool) -> None:
    kind = INSTANT if zoned else pa.timestamp("us")
    rows = pa.table({"at": pa.array(times, pa.timestamp("us")).cast(kind)})
    epoch = datetime(1970, 1, 1)  # noqa: DTZ001

    def of(make: Any) -> list[Any]:
        return [None if one is None else make(one) for one in times]

    assert day("at").of(rows).to_pylist() == of(datetime.date)
    assert hour("at").of(rows).to_pylist() == of(lambda one: f"{one.year:04}-{one:%m-%d-%H}")
    assert month("at").of(rows).to_pylist() == of(lambda one: f"{one.year:04}-{one:%m}")
    assert day("at").ordinals(rows).to_pylist() == of(lambda one: (one - epoch).days)
    assert hour("at").ordinals(rows).to_pylist() == of(lambda one: (one - epoch) // timedelta(hours=1))
    assert month("at").ordinals(rows).to_pylist() == of(lambda one: (one.year - 1970) * 12 + one.month - 1)


def test_the_zone_of_the_machine_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"at": pa.array([datetime(2026, 11, 20, 23, 30, tzinfo=UTC)], INSTANT)})
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert [one.of(rows).to_pylist() for one in (day("at"), hour("at"))] == [
            [date(2026, 11, 20)],
            ["2026-11-20-23"],
        ]
    finally:
        monkeypatch.undo()
        time.tzset()


@deep(100)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=9), buckets=st.integers(1, 100))
def test_a_bucket_is_one_of_so_many_and_that_of_a_null_is_null(values: list[int | None], buckets: int) -> None:
    found = bucket(buckets, "id").of(pa.table({"id": pa.array(values, pa.int64())})).to_pylist()
    wanted = [
        None if one is None else (murmur(one.to_bytes(8, "little", signed=True)) & 0x7FFFFFFF) % buckets
        for one in values
    ]
    assert found == wanted


def test_a_name_tells_the_transform() -> None:
    assert [
        one.name for one in (PartitionField("column", "at"), day("at"), month("at"), hour("at"), bucket(8, "at"))
    ] == [
        "at",
        "at_day",
        "at_month",
        "at_hour",
        "at_bucket_8",
    ]
    for buckets in (0, -1, True, 1.5, 1 << 31):
        with pytest.raises(InvalidArgument):
            bucket(buckets, "id")  # type: ignore[arg-type]
    for column in ("", None):
        with pytest.raises(InvalidArgument):
            day(column)  # type: ignore[arg-type]
