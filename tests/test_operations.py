"""Laws of rows with an operation: a filter of them is a filter of the table that they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.changes import HISTORIES, Row, kept, table_of, view

from tidegauge.errors.flow import OperationColumnUnfit
from tidegauge.operations import WORDS, check, filtered, unknown

Condition = Callable[[Row], "bool | None"]


def above(limit: int) -> Condition:
    """A condition of three values: null where `n` is."""
    return lambda row: None if row["n"] is None else row["n"] > limit


def called(user: str) -> Condition:
    return lambda row: None if row["user"] is None else row["user"] == user


CONDITIONS = st.one_of(st.integers(-1, 5).map(above), st.sampled_from("abc").map(called))


def both(a: Condition, b: Condition) -> Condition:
    def holds(row: Row) -> bool | None:
        found = {a(row), b(row)}
        return False if False in found else None if None in found else True

    return holds


def through(rows: Sequence[Row], condition: Condition) -> list[Row]:
    """Filter rows as the engines do, by arrays."""
    truth = pa.array([condition(row) for row in rows], pa.bool_())
    operations = filtered(table_of(rows)["_op"].combine_chunks(), truth).to_pylist()
    return [row | {"_op": op} for row, op in zip(rows, operations, strict=True) if op is not None]


@given(rows=HISTORIES, condition=CONDITIONS)
def test_the_view_of_what_a_filter_leaves_is_the_view_filtered_whenever_one_looks(
    rows: list[Row], condition: Condition
) -> None:
    left = through(rows, condition)
    assert left == kept(rows, condition)
    for end in range(len(rows) + 1):
        wanted = {key: row for key, row in view(rows[:end]).items() if condition(row) is True}
        assert view(through(rows[:end], condition)) == wanted


@given(rows=HISTORIES, one=CONDITIONS, other=CONDITIONS)
def test_two_filters_are_one_of_their_conjunction(rows: list[Row], one: Condition, other: Condition) -> None:
    assert through(through(rows, one), other) == through(rows, both(one, other)) == through(through(rows, other), one)


@given(rows=HISTORIES, condition=CONDITIONS)
def test_a_row_before_stays_with_what_takes_its_place(rows: list[Row], condition: Condition) -> None:
    left = through(rows, condition)
    for row, after in pairwise([*left, {"_op": "end", "id": None}]):
        if row["_op"] == "before":
            assert after["_op"] in {"update", "delete"}
            assert after["id"] == row["id"]
            assert condition(row) is True


@given(
    words=st.lists(st.one_of(st.none(), st.sampled_from([*WORDS, "upsert", "INSERT", ""])), max_size=8),
    data=st.data(),
)
def test_a_row_without_an_operation_is_found_and_no_filter_drops_it(
    words: list[str | None], data: st.DataObject
) -> None:
    column = pa.array(words, pa.string())
    truth = data.draw(st.lists(st.sampled_from([True, False, None]), min_size=len(words), max_size=len(words)))
    wrong = [word not in WORDS for word in words]
    found = unknown(column)
    assert (found is None) == (not any(wrong))
    assert found is None or found.to_pylist() == wrong
    left = filtered(column, pa.array(truth, pa.bool_()))
    assert [word not in {None, *WORDS} for word in left.to_pylist()] == wrong


@pytest.mark.parametrize("field", [("_OP", pa.string()), ("_op", pa.int64()), ("_op", pa.binary())])
def test_a_column_that_only_looks_like_operations_is_refused(field: tuple[str, pa.DataType]) -> None:
    with pytest.raises(OperationColumnUnfit, match=r"TG-0121.*'(_OP|_op)'"):
        check(pa.schema([field]), "the source")
