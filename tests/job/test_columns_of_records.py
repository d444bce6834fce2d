"""Law: each record is read once, by the columns that were in force when it was bound, however epochs are cut."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.job.columns import by_columns
from tidegauge.remap.binding import Bound, EarlierColumns, Slice

PARTITIONS = ("p0", "p1")
NOW = pa.schema([("now", pa.int64())])


def schema(change: int) -> pa.Schema:
    return pa.schema([(f"c{number}", pa.int64()) for number in range(change + 1)])


@st.composite
def histories(draw: st.DrawFn) -> tuple[Bound, list[Slice]]:
    """Columns that changed some times, of this incarnation and of the one before it, and slices of this one."""
    steps = {one: draw(st.lists(st.integers(0, 4), min_size=3, max_size=3)) for one in PARTITIONS}
    ends = {one: list(accumulate(steps[one])) for one in PARTITIONS}
    earlier = [
        EarlierColumns(change, schema(change), 1, {one: ends[one][change] for one in PARTITIONS if ends[one][change]})
        for change in range(draw(st.integers(0, 3)))
    ]
    gone = EarlierColumns(0, pa.schema([("gone", pa.int64())]), 0, {"p0": 9})
    slices, at = [], dict.fromkeys(PARTITIONS, 0)
    for epoch in range(draw(st.integers(0, 5))):
        one = draw(st.sampled_from(PARTITIONS))
        upper = at[one] + draw(st.integers(1, 5))
        slices.append(Slice("orders", epoch, one, at[one], upper))
        at[one] = upper
    return Bound(schema=NOW, earlier=(gone, *earlier), incarnation=1), slices


@given(histories())
def test_each_record_is_read_once_by_the_columns_that_were_in_force(history: tuple[Bound, list[Slice]]) -> None:
    bound, slices = history
    read: dict[tuple[int, str, int], Any] = {}
    for columns, pieces in by_columns(slices, bound):
        for piece in pieces:
            for position in range(piece.lower, piece.upper):
                assert (piece.epoch, piece.partition, position) not in read
                read[piece.epoch, piece.partition, position] = columns
    assert read == {
        (piece.epoch, piece.partition, position): next(
            (
                one.schema
                for one in bound.earlier
                if one.incarnation == 1 and position < one.positions.get(piece.partition, 0)
            ),
            NOW,
        )
        for piece in slices
        for position in range(piece.lower, piece.upper)
    }
