"""Moving batches and frontiers from a source's clock to the flow's.

A batch that was read for a slice belongs to one epoch as a whole, so stamping it is adding one constant column, and
no row is looked at. A batch in the order of its positions is cut where its bindings are. Any other is looked up, all
rows at once. A frontier is moved forward by asking which epochs may still receive records.

Law: all of them say of each row what `RemapTable.epoch_of` says, and null or None where that is an error.

>>> table = RemapTable("orders")
>>> table.append(0, Frontier({"p0": 5, "p1": 2})); table.append(1, Frontier({"p0": 9, "p1": 2}))
>>> epochs_of(table, pa.array(["p1", "p0", "p0", "p2"]), pa.array([1, 5, 4, 0])).to_pylist()
[0, 1, 0, None]
>>> batch = pa.record_batch({"_partition": ["p0", "p0", "p0"], "_offset": [4, 5, 9]})
>>> [(epoch, piece.num_rows) for epoch, piece in pieces(table, batch)]
[(0, 1), (1, 1), (None, 1)]
>>> stamp(pa.record_batch({"id": [1, 2]}), 7).to_pydict()
{'id': [1, 2], '_epoch': [7, 7]}
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument, ReservedColumn, UnknownColumn
from tidegauge.lazy import library
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.index import NOWHERE
from tidegauge.remap.table import LARGEST, RemapTable

__all__ = ["EPOCH", "epochs_of", "frontier_to_epoch", "pieces", "stamp"]

pc: Final = library("pyarrow.compute")

EPOCH: Final = pa.field("_epoch", pa.int64())
"""The column that every row of every output has."""


def stamp(batch: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
    """Return the batch with the column `_epoch` appended. The other columns are shared, not copied.

    Raises `ReservedColumn` when the batch has a column of that name.
    """
    if EPOCH.name in batch.schema.names:
        raise ReservedColumn(where="the batch", column=EPOCH.name)
    return batch.append_column(EPOCH, pa.repeat(pa.scalar(epoch, EPOCH.type), batch.num_rows))


def epochs_of(table: RemapTable, partitions: Any, positions: Any) -> Any:
    """Return the epoch of every row, as an Arrow array of 64-bit integers, chunked if one of the columns is.

    partitions: texts, or integers that stand for their decimal texts; dictionary-encoded or not. positions: integers
    of any width. Either an array or a chunked array. A row is null where its partition or its position is, where the
    partition is not known, and where the position is in no epoch or is none at all: below 0, or 2**63 and more.

    Raises `InvalidArgument` for columns of other types or of different lengths.
    """
    if len(partitions) != len(positions):
        raise InvalidArgument(
            parameter="positions", value=f"{len(positions)} rows", expected=f"{len(partitions)} rows"
        )
    if not isinstance(partitions, pa.ChunkedArray) and not isinstance(positions, pa.ChunkedArray):
        return _epochs_of(table, partitions, positions)
    aligned = pa.Table.from_arrays([partitions, positions], names=["partition", "position"]).to_batches()
    return pa.chunked_array([_epochs_of(table, *batch.columns) for batch in aligned], EPOCH.type)


def pieces(
    table: RemapTable, batch: pa.RecordBatch, *, partition: str = "_partition", position: str = "_offset"
) -> list[tuple[int | None, pa.RecordBatch]]:
    """Cut a batch into pieces of one epoch each, in its own sequence, None where there is no epoch. Copies nothing.

    The rows of each partition stand together, and their positions do not descend. This is not checked: only those
    rows are looked at that a binary search comes to, so the cost is that of the bindings, not of the rows.

    Raises `UnknownColumn`, and `InvalidArgument` for columns that `epochs_of` would refuse, and for null positions.
    """
    partitions, positions = _column(batch, partition), _column(batch, position)
    _check_partitions(partitions.type)
    values = _integers(positions)
    if positions.null_count:
        raise InvalidArgument(parameter=position, value=f"{positions.null_count} nulls", expected="a position a row")
    found: list[tuple[int | None, pa.RecordBatch]] = []
    first = 0
    while first < batch.num_rows:
        of, last = _run(partitions, first)
        for epoch, start, stop in _cut(table, of, values[first:last]):
            found.append((epoch, batch.slice(first + start, stop - start)))
        first = last
    return found


def frontier_to_epoch(table: RemapTable, frontier: Frontier) -> int:
    """Return the first epoch that may still receive records when its source has been read up to `frontier`.

    Definition: `min {e : not R(e) <= frontier}`, and `table.upper` when every bound epoch is complete. The epochs
    below it are complete, whatever the partitions beyond their bindings hold.
    """
    behind = table.frontier.since(frontier)
    waiting = [table.epoch_of(partition, lower) for partition, (lower, _) in behind.items()]
    if table.sealed_at is not None:
        waiting.append(table.sealed_at)
    return table.upper if frontier.sealed else min(waiting, default=table.upper)


def _run(partitions: Any, first: int) -> tuple[str | int | None, int]:
    """Return the partition of a row, and the row behind the last of that partition."""
    of = partitions[first].as_py()
    rows = range(len(partitions))
    return of, bisect_left(rows, True, lo=first, key=lambda row: partitions[row].as_py() != of)  # noqa: FBT003


def _cut(
    table: RemapTable, partition: str | int | None, values: npt.NDArray[Any]
) -> list[tuple[int | None, int, int]]:
    """Return where the epochs of rows of one partition change: `(epoch, start, stop)`, in the order of the rows."""
    rows, valid = len(values), int(values.searchsorted(0))
    if partition is None or valid == rows:
        return [(None, 0, rows)]
    low, high = int(values[valid]), int(values[-1])
    ends, epochs = table.changes_between(str(partition), min(low, LARGEST), min(high + 1, LARGEST))
    if len(epochs) and epochs[-1] == table.sealed_at:
        ends, epochs = ends[:-1], epochs[:-1]  # sealed in the epoch that it moved in last: no cut
    within = ends[: ends.searchsorted(min(high, LARGEST), "right")]  # an end beyond all rows cuts behind the last
    cuts = np.full(len(ends) + 2, rows)
    cuts[0] = valid
    cuts[1 : len(within) + 1] = values.searchsorted(within.astype(values.dtype))
    starts = np.concatenate(([0], cuts[:-1]))
    of = (None, *epochs.tolist(), table.sealed_at)
    return [(of[i], int(starts[i]), int(cuts[i])) for i in np.flatnonzero(starts < cuts).tolist()]


def _epochs_of(table: RemapTable, partitions: Any, positions: Any) -> Any:
    names, codes = _numbered(table, partitions) or _coded(partitions)
    values = _integers(positions)
    # what does not fit into a signed integer is below 0 as one
    at = values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64, copy=False)
    plain = positions.null_count == 0 and None not in names
    if plain and (len(at) == 0 or (at.min() >= 0 and at.max() < LARGEST)):
        found = table.epochs_of(names, codes, at)
    else:
        unnamed = np.array([name is None for name in names], np.bool_)[codes]
        missing = unnamed | (at < 0) | positions.is_null().to_numpy(zero_copy_only=False)
        top = at == LARGEST
        found = table.epochs_of(names, codes, np.where(missing | top, 0, at))
        found[top] = NOWHERE if table.sealed_at is None else table.sealed_at
        found[missing] = NOWHERE
    nowhere = found == NOWHERE
    return pa.array(found, mask=nowhere if nowhere.any() else None)


def _numbered(table: RemapTable, partitions: Any) -> tuple[list[str | None], npt.NDArray[Any]] | None:
    """Return the partitions of the table, and for each row of a column of plain texts which of them it is.

    To look texts up among those that are known is faster than to find out which there are. None when not all of them
    are known, and when there are fewer rows than partitions: then it is not worth it.
    """
    kind = partitions.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)) or len(partitions) < len(table.frontier):
        return None
    names: list[str | None] = [*table.frontier]
    codes = pc.index_in(partitions, value_set=pa.array(names, kind))
    return None if codes.null_count else (names, _integers(codes))


def _coded(partitions: Any) -> tuple[list[str | None], npt.NDArray[Any]]:
    """Return the partitions that a column names, None for null, and for each row which of them it is."""
    _check_partitions(partitions.type)
    if not pa.types.is_dictionary(partitions.type):
        partitions = partitions.dictionary_encode(null_encoding="encode")
    names = [None if value is None else str(value) for value in partitions.dictionary.to_pylist()]
    codes = _integers(partitions.indices)
    if partitions.indices.null_count:
        missing = partitions.indices.is_null().to_numpy(zero_copy_only=False)
        codes = np.where(missing, len(names), codes.astype(np.int64))
        names.append(None)
    return names, codes


def _check_partitions(kind: Any) -> None:
    of = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_integer(of)):
        raise InvalidArgument(parameter="partitions", value=str(kind), expected="a column of texts or integers")


def _integers(column: Any) -> npt.NDArray[Any]:
    """Return the values of a column of integers as they lie in memory, whatever lies at those that are null."""
    if not pa.types.is_integer(column.type):
        raise InvalidArgument(parameter="positions", value=str(column.type), expected="a column of integers")
    width = np.dtype(column.type.to_pandas_dtype())
    if len(column) == 0:
        return np.empty(0, width)
    _, data = column.buffers()
    return np.frombuffer(data, width, len(column), column.offset * width.itemsize)


def _column(batch: pa.RecordBatch, name: str) -> Any:
    at = batch.schema.get_all_field_indices(name)
    if len(at) != 1:
        raise UnknownColumn(column=name, where="the batch", known=batch.schema.names)
    return batch.column(at[0])
