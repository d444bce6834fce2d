"""The state of a polled source: frozen, opaque, of bounded size, and one text for each."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.fromtime import InvalidState, NotCanonical, StateTooLarge
from tidegauge.remap.fromtime import LARGEST_STATE, SourceState

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
numbers = st.integers(-(2**63), 2**64 - 1) | st.integers(2**53 - 1, 2**53 + 1)
values = st.binary(max_size=20) | st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))])
moments = st.none() | st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)  # noqa: DTZ001


@st.composite
def states(draw: st.DrawFn) -> SourceState:
    return SourceState(kind=draw(names), source_id=draw(names), value=draw(values), watermark=draw(moments))


def state(value: Any, **more: Any) -> SourceState:
    return SourceState(**{"kind": "cursor", "source_id": "rates", "value": value, **more})


@given(states())
def test_a_state_comes_back_from_its_text(one: SourceState) -> None:
    found = SourceState.decode(one.encode())
    assert found == one
    assert (found.value, hash(found), found.encode()) == (one.value, hash(one), one.encode())


@given(states(), states())
def test_states_are_equal_iff_their_texts_are(one: SourceState, other: SourceState) -> None:
    assert (one == other) == (one.encode() == other.encode())
    assert one == SourceState(kind=one.kind, source_id=one.source_id, value=one.value, watermark=one.watermark)


def test_the_order_of_keys_does_not_count() -> None:
    assert state({"a": 1, "b": [2]}).encode() == state({"b": [2], "a": 1}).encode()


def test_what_is_alike_in_python_and_differs_in_json_differs() -> None:
    alike: list[Any] = [True, 1, b"AQ==", "AQ==", {"base64": "AQ=="}, {"json": 1}, b"\x01", None, "null", ""]
    assert len({state(value) for value in alike}) == len(alike)
    assert [state(value).value for value in alike] == alike
    assert [type(state(value).value) for value in alike] == [type(value) for value in alike]


def test_a_state_cannot_be_changed_from_outside() -> None:
    value: Any = {"pages": [1, 2]}
    kept = state(value)
    before = kept.encode()
    value["pages"].append(3)
    taken: Any = kept.value
    taken["pages"].append(4)
    assert (kept.encode(), kept.value) == (before, {"pages": [1, 2]})
    with pytest.raises(dataclasses.FrozenInstanceError):
        kept.kind = "other"  # type: ignore[misc]


def test_a_watermark_is_an_instant_whatever_its_zone() -> None:
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    there = state(1, watermark=noon.astimezone(timezone(timedelta(hours=-8))))
    assert there == state(1, watermark=noon)
    assert '"watermark":"2026-11-20T12:00:00.000000Z"' in there.encode()
    early = state(1, watermark=datetime(33, 4, 3, tzinfo=UTC))
    assert SourceState.decode(early.encode()) == early


@pytest.mark.parametrize(
    "value",
    [
        *(1.0, math.nan, math.inf, 1e3, [[1.5]], 2**64, -(2**63) - 1),
        *("\ud800", {"\ud800": 1}, {1: 2}, (1, 2), {1}, [b"x"], bytearray(b"x")),
        *(object, datetime(2026, 1, 1, tzinfo=UTC)),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_what_json_does_not_keep_as_it_is_cannot_be_a_value(value: Any) -> None:
    with pytest.raises(InvalidState, match="TG-0577"):
        state(value)


@pytest.mark.parametrize(
    "other",
    [
        *({"kind": ""}, {"kind": 5}, {"kind": "x" * 1025}),
        *({"source_id": ""}, {"source_id": "a\0"}, {"source_id": "\ud800"}),
        *({"watermark": datetime(2026, 1, 1)}, {"watermark": "2026-01-01"}, {"watermark": 5}),  # noqa: DTZ001
        {"watermark": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))},
    ],
    ids=lambda other: ascii(other)[:40],
)
def test_neither_can_what_is_no_name_or_no_instant(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidState, match="TG-0577"):
        state(1, **other)


def test_depth_is_bounded_and_a_cycle_has_no_end() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    cycle: list[Any] = []
    cycle.append(cycle)
    for value in (deep, cycle):
        with pytest.raises(InvalidState, match="nested deeper than"):
            state(value)
    while deep:
        deep = deep.pop()


def test_size_is_bounded_and_no_error_shows_the_value() -> None:
    room = LARGEST_STATE - len(state("").encode())
    assert len(state("s" * room).encode()) == LARGEST_STATE
    with pytest.raises(StateTooLarge, match="TG-0578") as refused:
        state("secret" + "s" * (room - 5))
    for value in (["secret", 1.5], {"secret": 2**64}):
        with pytest.raises(InvalidState) as unkept:
            state(value)
        assert "secret" not in str(unkept.value)
    assert "secret" not in str(refused.value) + repr(state("secret"))


VALUE = '{"json":{"page":3}}'
GOOD = f'{{"kind":"cursor","source_id":"rates","value":{VALUE},"watermark":null}}'
PAGES = ["3.0", "1e3", "NaN", "-Infinity", "03", "-0", str(2**64), "9" * 5000, '"\\ud800"', "3,", "3 "]
VALUES = [
    *("3", '{"json":{"page":3,"page":3}}', '{"json":{"z":1,"a":2}}', '{"json":{"page":3},"more":1}'),
    *('{"base64":"AQ"}', '{"base64":"AR=="}', '{"base64":"A*Q="}', '{"base64":"AQ==","json":1}', '{"base64":5}'),
    '{"json":' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"json":"' + "x" * LARGEST_STATE + '"}',
]


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", GOOD + " ", GOOD[:-1], GOOD.replace('"kind"', '"a":1,"kind"')),
        *(GOOD.replace("cursor", written) for written in ("", "\\u0063ursor", "a\\u0000")),
        *(GOOD.replace("null", written) for written in ("5", '"2026-11-20"', '"2026-11-20T12:00:00.0Z"')),
        *(GOOD.replace("3", written) for written in PAGES),
        *(GOOD.replace(VALUE, written) for written in VALUES),
    ],
    ids=lambda text: text[:80],
)
def test_what_we_do_not_write_is_not_read(text: str) -> None:
    assert SourceState.decode(GOOD).value == {"page": 3}
    with pytest.raises(NotCanonical, match="TG-0574"):
        SourceState.decode(text)
