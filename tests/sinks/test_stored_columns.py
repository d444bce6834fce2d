"""Which columns a table can hold, and that their values survive being stored."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.errors.sinks import BatchDoesNotFit, InvalidColumnName, UnsupportedColumn
from tidegauge.sinks.columns import differences, fit, stored

LEAVES = [
    pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.large_binary(), pa.binary(4), pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("us"),
    pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="Asia/Tokyo"), pa.decimal128(38, 4), pa.decimal256(20, 2),
    pa.dictionary(pa.int8(), pa.string()),
]  # fmt: skip


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    plain = inner.filter(lambda kind: not pa.types.is_dictionary(kind))
    return st.one_of(
        plain.map(pa.list_),
        plain.map(pa.large_list),
        plain.map(lambda kind: pa.struct([pa.field("a", kind, nullable=False), ("b", pa.int32())])),
        plain.map(lambda kind: pa.map_(pa.string(), kind)),
    )


KINDS = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


@given(st.lists(KINDS, min_size=1, max_size=5))
def test_the_stored_form_is_stored_as_it_is(kinds: list[Any]) -> None:
    schema = pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])
    once = stored(schema)
    assert stored(once).equals(once)
    assert differences(once, stored(pa.schema(list(reversed(schema))))) == ""


@given(KINDS)
def test_any_column_that_can_be_stored_can_be_brought_into_that_form(kind: Any) -> None:
    schema = pa.schema([("c", kind)])
    batch = pa.RecordBatch.from_arrays([pa.nulls(2, kind)], schema=schema)
    fitted = fit(batch, stored(schema))
    assert fitted.schema.equals(stored(schema))
    assert fitted.column("c").null_count == 2


@pytest.mark.parametrize(
    ("kind", "cast"),
    [
        (pa.uint8(), "int16"),
        (pa.uint64(), "decimal128"),
        (pa.float16(), "float"),
        (pa.time64("us"), "string"),
        (pa.timestamp("ns"), "timestamp[us]"),
        (pa.timestamp("ns", tz="Asia/Tokyo"), "timestamp[us, tz=UTC]"),
        (pa.duration("ms"), "int64, the number of ms"),
        (pa.month_day_nano_interval(), "string"),
        (pa.decimal256(50, 2), "decimal128"),
        (pa.decimal128(5, -2), "decimal128"),
        (pa.null(), "string"),
        (pa.struct([]), "a struct with at least one field"),
        (pa.uuid(), "its storage type"),
    ],
)
@pytest.mark.parametrize("within", [False, True])
def test_a_type_that_no_table_holds_is_refused_with_a_cast(kind: Any, cast: str, within: bool) -> None:
    column = pa.struct([("inner", kind)]) if within else kind
    with pytest.raises(UnsupportedColumn) as caught:
        stored(pa.schema([("ok", pa.int64()), ("c", column)]))
    assert caught.value.evidence["column"] == ("c.inner" if within else "c")
    assert cast in caught.value.next_step


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "a{", "a}", "a(", "a)", "a\n", "a\t", "a=b", ""])
def test_a_name_that_no_table_holds_is_refused(name: str) -> None:
    for schema in (pa.schema([(name, pa.int64())]), pa.schema([("s", pa.struct([(name, pa.int64())]))])):
        with pytest.raises(InvalidColumnName):
            stored(schema)


def test_names_that_differ_in_case_alone_are_one_name() -> None:
    with pytest.raises(InvalidColumnName, match="upper and lower case"):
        stored(pa.schema([("Id", pa.int64()), ("id", pa.int64())]))


def test_a_batch_in_stored_form_is_not_copied() -> None:
    batch = pa.record_batch({"c": [1, 2]})
    assert fit(batch, batch.schema) is batch


def test_an_instant_beyond_microseconds_is_refused_not_wrapped() -> None:
    schema = pa.schema([("at", pa.timestamp("s"))])
    batch = pa.RecordBatch.from_arrays([pa.array([2**62], pa.timestamp("s"))], schema=schema)
    with pytest.raises(BatchDoesNotFit):
        fit(batch, stored(schema))
