"""The epochs of whole columns: what the table says of each row, however the columns are laid out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegauge.errors.flow import InvalidArgument, UnknownColumn
from tidegauge.errors.store import NotYetBound
from tidegauge.reclock import epochs_of, pieces
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.table import LARGEST, RemapTable
from tidegauge.testing.strategies import RemapHistory, remap_histories

histories = remap_histories(partitions=st.sampled_from("012"), steps=st.integers(1, 6), min_size=0, max_gap=2)
names = st.sampled_from(["0", "1", "2", "7", None])
rows = st.lists(st.tuples(names, st.one_of(st.none(), st.integers(-2, 20))), max_size=30)


def epoch_of(table: RemapTable, partition: str | None, position: int | None) -> int | None:
    """The definition: what the table says of the row, nothing where it says that there is nothing."""
    if partition is None or position is None:
        return None
    try:
        return table.epoch_of(partition, position)
    except (NotYetBound, InvalidArgument):
        return None


def laid_out(values: list[Any], kind: pa.DataType, cuts: list[int]) -> Any:
    """The values as an array that begins in the middle of its buffers, or in chunks."""
    padded = pa.array([*values[:1], *values], kind)[len(values[:1]) :]
    if not cuts:
        return padded
    ends = sorted({0, *(min(cut, len(values)) for cut in cuts), len(values)})
    return pa.chunked_array([padded[a:b] for a, b in pairwise(ends)], padded.type)


PARTITION_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.int64(),
    pa.uint8(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.large_string()),
    pa.dictionary(pa.int32(), pa.int16()),
]
POSITION_TYPES = [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64()]


@given(
    histories,
    rows,
    st.sampled_from(PARTITION_TYPES),
    st.sampled_from(POSITION_TYPES),
    st.lists(st.integers(0, 30), max_size=3),
    st.lists(st.integers(0, 30), max_size=3),
)
def test_every_row_has_the_epoch_that_the_table_gives_it(
    history: RemapHistory,
    rows: list[tuple[str | None, int | None]],
    partition_type: pa.DataType,
    position_type: pa.DataType,
    partition_cuts: list[int],
    position_cuts: list[int],
) -> None:
    table = history.table()
    if pa.types.is_unsigned_integer(position_type):
        rows = [(p, None if n is None else abs(n)) for p, n in rows]
    of = partition_type.value_type if pa.types.is_dictionary(partition_type) else partition_type
    as_key = int if pa.types.is_integer(of) else str
    partitions = laid_out([None if p is None else as_key(p) for p, _ in rows], partition_type, partition_cuts)
    positions = laid_out([n for _, n in rows], position_type, position_cuts)
    found = epochs_of(table, partitions, positions)
    assert found.type == pa.int64()
    assert isinstance(found, pa.ChunkedArray) == bool(partition_cuts or position_cuts)
    assert found.to_pylist() == [epoch_of(table, *row) for row in rows]


leaps = st.lists(st.tuples(st.sampled_from("01"), st.integers(0, 45).map(lambda bits: 1 << bits)), min_size=1)


@given(leaps, st.sampled_from([0, 2**40, 2**61]))
def test_positions_bound_as_unevenly_as_can_be_have_their_epochs_at_any_height_of_the_timeline(
    leaps: list[tuple[str, int]], first: int
) -> None:
    table, at = RemapTable("s"), {"0": 0, "1": 0}
    rows = [("0", 0), ("1", 0)]
    for epoch, (partition, leap) in enumerate(leaps, start=first):
        at[partition] += leap
        table.extend(epoch, {partition: at[partition]})
        rows += [(partition, max(at[partition] + by, 0)) for by in (-leap // 2, -1, 0, 1)]
    found = epochs_of(table, pa.array([p for p, _ in rows]), pa.array([n for _, n in rows]))
    assert found.to_pylist() == [epoch_of(table, *row) for row in rows]


def test_positions_at_the_end_of_their_types_are_in_no_epoch_unless_one_is_bound_there() -> None:
    table = RemapTable("s")
    table.append(0, Frontier({"p": 2**31}))
    table.append(1, Frontier({"p": LARGEST}))
    at = [0, 2**31 - 1, 2**31, LARGEST - 1, LARGEST]
    wide = epochs_of(table, pa.array(["p"] * 7), pa.array([*at, 2**63, 2**64 - 1], pa.uint64()))
    assert wide.to_pylist() == [0, 0, 1, 1, None, None, None]
    assert epochs_of(table, pa.array(["p"] * 5), pa.array(at)).to_pylist() == [0, 0, 1, 1, None]
    assert epochs_of(table, pa.array(["p"] * 2), pa.array(at[:2], pa.int32())).to_pylist() == [0, 0]
    table.append(2, Frontier({"p": LARGEST}, sealed=True))
    assert epochs_of(table, pa.array(["p", "q"]), pa.array([LARGEST, LARGEST])).to_pylist() == [2, 2]


def test_columns_of_other_types_and_lengths_are_refused() -> None:
    table = RemapTable.load("s", [(0, "0", 3)], upper=1)
    texts, numbers = pa.array(["0"]), pa.array([0])
    for partitions, positions in (
        (pa.array([0.0]), numbers),
        (pa.array([b"0"]), numbers),
        (texts, pa.array([0.0])),
        (texts, pa.array(["0"])),
        (texts, pa.array([0, 1])),
    ):
        with pytest.raises(InvalidArgument):
            epochs_of(table, partitions, positions)


@pytest.mark.parametrize("index", [-1, 1, 100])
def test_a_dictionary_that_lacks_what_its_rows_name_is_refused(index: int) -> None:
    broken = pa.DictionaryArray.from_arrays(pa.array([0, index], pa.int8()), pa.array(["0"]), safe=False)
    with pytest.raises(InvalidArgument):
        epochs_of(RemapTable.load("s", [(0, "0", 3)], upper=1), broken, pa.array([0, 0]))


def sorted_batch(rows: list[tuple[str | None, int]], partition: pa.DataType, position: pa.DataType) -> pa.RecordBatch:
    """The rows with those of a partition together, in the order of their positions."""
    rows = sorted(rows, key=lambda row: (row[0] or "", row[1]))
    at = [row[0] for row in rows], [row[1] for row in rows]
    return pa.record_batch({"_partition": pa.array(at[0], partition), "_offset": pa.array(at[1], position)})


SEALED = RemapHistory().bound(0, Frontier({"0": 1}, sealed=True))
sorted_rows = st.lists(st.tuples(names, st.integers(-2, 20)), max_size=30)


@given(histories, sorted_rows, st.sampled_from(PARTITION_TYPES[::4]), st.sampled_from(POSITION_TYPES[:3]))
@example(SEALED, [("0", 0), ("0", 1)], pa.string(), pa.int8()).via("found: the epoch of the seal was in two pieces")
def test_the_pieces_of_a_sorted_batch_are_its_rows_in_order_each_with_its_epoch(
    history: RemapHistory,
    rows: list[tuple[str | None, int]],
    partition_type: pa.DataType,
    position_type: pa.DataType,
) -> None:
    table = history.table()
    batch = sorted_batch(rows, partition_type, position_type)
    found = pieces(table, batch)
    assert all(piece.num_rows for _, piece in found)
    of_rows = [epoch for epoch, piece in found for _ in range(piece.num_rows)]
    assert of_rows == epochs_of(table, *batch.columns).to_pylist()
    assert pa.Table.from_batches([piece for _, piece in found], batch.schema).equals(pa.Table.from_batches([batch]))
    for (epoch, one), (later, other) in pairwise(found):
        assert epoch is None or epoch != later or one.column(0)[-1] != other.column(0)[0]


def test_pieces_at_the_end_of_the_positions_and_beyond() -> None:
    table = RemapTable("s")
    table.append(0, Frontier({"p": 5}))
    table.append(1, Frontier({"p": LARGEST}))
    at = [0, 4, 5, LARGEST - 1, LARGEST, 2**63, 2**64 - 1]
    batch = pa.record_batch({"of": ["p"] * 7, "at": pa.array(at, pa.uint64())})
    found = [(epoch, piece.num_rows) for epoch, piece in pieces(table, batch, partition="of", position="at")]
    assert found == [(0, 2), (1, 2), (None, 3)]


def test_pieces_share_the_memory_of_their_batch() -> None:
    batch = pa.record_batch({"_partition": ["0"] * 1000, "_offset": np.arange(1000)})
    whole = {buffer.address for column in batch.columns for buffer in column.buffers() if buffer is not None}
    table = RemapTable.load("s", [(0, "0", 10), (2, "0", 510)], upper=3)
    for _, piece in pieces(table, batch):
        assert {b.address for column in piece.columns for b in column.buffers() if b is not None} <= whole


def test_pieces_of_what_has_no_places_are_refused() -> None:
    table, texts, numbers = RemapTable.load("s", [(0, "0", 3)], upper=1), pa.array(["0"]), pa.array([0])
    with pytest.raises(UnknownColumn):
        pieces(table, pa.record_batch({"_partition": ["0"]}))
    with pytest.raises(UnknownColumn):
        pieces(table, pa.RecordBatch.from_arrays([texts, numbers, numbers], ["_partition", "_offset", "_offset"]))
    for wrong in (
        {"_partition": [0.5], "_offset": [0]},
        {"_partition": ["0"], "_offset": [0.5]},
        {"_partition": ["0"], "_offset": pa.array([None], pa.int64())},
    ):
        with pytest.raises(InvalidArgument):
            pieces(table, pa.record_batch(wrong))
