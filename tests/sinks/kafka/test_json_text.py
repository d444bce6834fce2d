"""The JSON text of columns says what the rows say, whatever they hold and however the arrays lie in memory."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.kafkasink import NotInJson
from tidegauge.sinks.kafka.jsontext import objects, texts

INSTANT = pa.timestamp("us", tz="UTC")
ITEM = pa.struct([("n", pa.int64()), ("s", pa.string())])
TYPES: dict[Any, Any] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.string(): st.text(max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates(),
    pa.decimal128(38, 10): st.decimals(
        allow_nan=False, allow_infinity=False, places=10, min_value=-(10**20), max_value=10**20
    ),
    INSTANT: st.datetimes(timezones=st.just(UTC)),
    pa.timestamp("us"): st.datetimes(),
    ITEM: st.fixed_dictionaries({"n": st.none() | st.integers(-5, 5), "s": st.none() | st.text(max_size=3)}),
    pa.list_(pa.string()): st.lists(st.none() | st.text(max_size=3), max_size=3),
    pa.list_(pa.list_(ITEM)): st.lists(
        st.none() | st.lists(st.none() | st.just({"n": 1, "s": '"'}), max_size=2), max_size=2
    ),
    pa.map_(pa.string(), pa.int64()): st.dictionaries(
        st.text(max_size=3), st.none() | st.integers(-5, 5), max_size=3
    ).map(lambda found: list(found.items())),
    pa.map_(pa.int32(), pa.string()): st.dictionaries(st.integers(-5, 5), st.text(max_size=3), max_size=3).map(
        lambda found: list(found.items())
    ),
}


def meant(value: Any, kind: Any) -> Any:
    """What a reader of JSON should find, numbers with all their digits."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: meant(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {str(key): meant(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [meant(item, kind.value_type) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value


@st.composite
def arrays(draw: Any) -> Any:
    kind = draw(st.sampled_from(list(TYPES)))
    values = draw(st.lists(st.none() | TYPES[kind], max_size=6))
    array = pa.array(values, kind)
    start = draw(st.integers(0, len(values)))
    return array.slice(start, draw(st.integers(0, len(values))))


@given(arrays())
def test_each_text_is_the_value_of_its_row(array: Any) -> None:
    found = texts(array).to_pylist()
    for text, value in zip(found, array.to_pylist(), strict=True):
        expected = meant(value, array.type)
        if isinstance(expected, Decimal):
            assert json.loads(text, parse_float=Decimal, parse_int=Decimal) == expected
        elif array.type == pa.float32() and expected is not None:
            assert pa.scalar(json.loads(text), pa.float32()).as_py() == expected
        else:
            assert json.loads(text) == expected


@given(st.lists(arrays(), min_size=1, max_size=3))
def test_an_object_has_every_column_of_its_row_also_those_that_are_null(columns: list[Any]) -> None:
    rows = min(len(column) for column in columns)
    names = [f'c "{number}\\' for number in range(len(columns))]
    batch = pa.RecordBatch.from_arrays([column.slice(0, rows) for column in columns], names=names)
    for row, text in enumerate(objects(batch, names).to_pylist()):
        found = json.loads(text, parse_float=str, parse_int=str)
        alone = [json.loads(texts(batch.column(n))[row].as_py(), parse_float=str, parse_int=str) for n in names]
        assert list(found.items()) == list(zip(names, alone, strict=True))


def test_every_character_comes_back() -> None:
    values = [chr(code) for code in [*range(0x100), 0x2028, 0xFFFF, 0x1F600]]
    assert [json.loads(text) for text in texts(pa.array(values)).to_pylist()] == values
    assert json.loads(texts(pa.array(["".join(values)]))[0].as_py()) == "".join(values)


def test_no_columns_make_empty_objects() -> None:
    assert objects(pa.record_batch({"a": [1, 2]}), []).to_pylist() == ["{}", "{}"]


def test_whole_floats_stay_floats() -> None:
    array = pa.array([1.0, -0.0, 1e20, 1e-7, math.nan, math.inf])
    assert texts(array).to_pylist() == ["1.0", "-0.0", "1e+20", "1e-7", "null", "null"]


@pytest.mark.parametrize("years", [-1, 10_001])
def test_an_instant_that_its_text_cannot_show_is_refused(years: int) -> None:
    array = pa.array([(years - 1970) * 366 * 86_400_000_000], pa.int64()).cast(INSTANT)
    with pytest.raises(NotInJson):
        texts(array)
