"""Statistics of a file: every value lies between what is said of its column, and what cannot be said is left out."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.sinks import ParquetSink
from tidegauge.sinks.statistics import FileStatistics

DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=10).filter(lambda d: abs(d) < Decimal(10) ** 28)
KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.decimal128(38, 10), DECIMALS),
    (pa.string(), st.text(st.sampled_from("a~\x7f\x80ä\U0010fffe\U0010ffff"), max_size=70)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.bool_(), st.booleans()),
]


def said(kind: Any, groups: list[list[Any]]) -> Any:
    found = FileStatistics(pa.schema([("x", kind)]))
    for group in groups:
        found.add(pa.table({"x": pa.array(group, kind)}))
    return json.loads(
        found.text(), parse_float=lambda text: Decimal(text) if pa.types.is_decimal(kind) else float(text)
    )


def of(kind: Any, value: Any) -> Any:
    """A value out of the log, as a reader takes it."""
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_string(kind):
        return value.encode()
    return float(value) if pa.types.is_floating(kind) else value


@given(st.data())
def test_every_value_lies_between_the_ends(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(KINDS))
    groups = data.draw(st.lists(st.lists(st.none() | values, max_size=4), max_size=4))
    stated = said(kind, groups)
    flat = [value for group in groups for value in pa.array(group, kind).to_pylist()]
    there = [
        of(kind, value if not hasattr(value, "isoformat") else value.isoformat())
        for value in flat
        if value is not None
    ]
    assert (stated["numRecords"], stated["nullCount"]["x"]) == (len(flat), len(flat) - len(there))
    if any(isinstance(value, float) and math.isnan(value) for value in there):
        assert "minValues" not in stated
    elif "x" in stated.get("minValues", {}):
        low, high = of(kind, stated["minValues"]["x"]), of(kind, stated["maxValues"]["x"])
        assert all(low <= value <= high for value in there)
        if 0 in there and pa.types.is_floating(kind) and low != high:
            assert (math.copysign(1, low), math.copysign(1, high)) == (-1, 1)
        if not pa.types.is_string(kind) and low != 0 != high:
            assert {low, high} <= set(there)


@given(st.text(st.sampled_from("a~\x7f\x80ä\U0010fffe\U0010ffff"), min_size=33, max_size=70))
def test_a_long_text_is_cut_and_rounded_up(text: str) -> None:
    stated = said(pa.string(), [[text]])
    if "x" in stated["minValues"]:
        assert stated["minValues"]["x"] == text[:32]
        assert stated["maxValues"]["x"] > text
        assert len(stated["maxValues"]["x"]) <= 65
    else:
        assert set(text[32:64]) == {"\U0010ffff"}


def test_what_the_calendar_of_the_log_does_not_have_is_not_said() -> None:
    far = pa.array([2**40], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp("us"))
    found = FileStatistics(pa.schema([("x", far.type)]))
    found.add(pa.table({"x": far}))
    assert json.loads(found.text()) == {"numRecords": 1, "nullCount": {"x": 0}, "minValues": {}, "maxValues": {}}


def test_the_first_32_columns_have_ends_and_the_epoch_wherever_it_stands() -> None:
    names = [f"c{i}" for i in range(40)]
    found = FileStatistics(pa.schema([(name, pa.int64()) for name in (*names, "_epoch")]))
    found.add(pa.table({name: [1] for name in (*names, "_epoch")}))
    assert list(json.loads(found.text())["minValues"]) == [*names[:32], "_epoch"]


@pytest.mark.parametrize("values", [[math.nan, 1.0], [0.0], [-0.0, 0.0]])
def test_the_footer_of_a_file_says_nothing_of_floating_point_numbers(tmp_path: Any, values: list[float]) -> None:
    """What it could say is misread: DataFusion skips NaN by it, and pyarrow a zero that is asked for in a set."""
    rows = pa.record_batch({"x": values, "p": [{"y": 1.0, "z": 1}] * len(values), "_epoch": [0] * len(values)})
    stager = ParquetSink(str(tmp_path)).stage(rows.schema, job="0" * 32, task=0)
    stager.write(rows)
    [file] = stager.close()
    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    assert {column.path_in_schema for column in columns if column.is_stats_set} == {"p.z", "_epoch"}
