"""Each element of a list becomes a row, whatever kind of list it is, in pieces that are not large."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.job import unnesting
from tidegauge.job.functions import apply
from tidegauge.job.plan import MapBatches
from tidegauge.job.unnesting import Unnested

ROWS = st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=5)))


def unnested(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    function = Unnested("items")
    return list(apply([MapBatches(function)], rows, function(rows[:0]).schema, output="x", epoch=0))


def batch_of(rows: list[Any], kind: Any) -> pa.RecordBatch:
    schema = pa.schema([("id", pa.int64()), ("items", kind), ("text", pa.string())])
    made = [{"id": at, "items": row, "text": f"t{at}"} for at, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(made, schema=schema)


@given(ROWS, st.sampled_from([pa.list_(pa.int32()), pa.large_list(pa.int32())]), st.data())
def test_there_is_a_row_for_each_element(rows: list[Any], kind: Any, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    wanted = [
        {"id": at, "items": item, "text": f"t{at}"}
        for at, row in enumerate(rows)
        if at >= start
        for item in row or []
    ]
    assert [row for made in unnested(batch_of(rows, kind).slice(start)) for row in made.to_pylist()] == wanted


def test_fixed_lists_and_nulls_that_have_a_length_too() -> None:
    fixed = batch_of([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2))
    assert [row["items"] for made in unnested(fixed) for row in made.to_pylist()] == [1, 2, 3, None]
    lists = pa.ListArray.from_arrays([0, 2, 3], [1, 2, 3], mask=pa.array([True, False]))
    odd = pa.record_batch({"items": lists})
    assert [made.to_pylist() for made in unnested(odd)] == [[{"items": 3}]]


@given(ROWS)
def test_pieces_are_small_and_in_order(rows: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unnesting, "PIECE", 3)
        made = unnested(batch_of(rows, pa.list_(pa.int32())))
    assert all(one.num_rows <= 5 for one in made)
    assert [row["items"] for one in made for row in one.to_pylist()] == [item for row in rows for item in row or []]


def test_a_list_of_many_elements_is_handed_on_piece_by_piece() -> None:
    rows = pa.record_batch({"id": range(1000), "items": [[*range(500)]] * 1000, "text": ["x" * 1000] * 1000})
    before = most = pa.total_allocated_bytes()
    count = 0
    function = Unnested("items")
    for made in apply([MapBatches(function)], rows, function(rows[:0]).schema, output="x", epoch=0):
        count += made.num_rows
        most = max(most, pa.total_allocated_bytes())
    assert count == 500_000
    assert most - before < 300 << 20, "all of it would be half a gigabyte"
