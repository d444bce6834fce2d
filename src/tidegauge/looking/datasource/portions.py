"""Portions: what one task of Spark's reads, as a value that travels to it.

    rows      of some files those of the epochs [lower, upper), batch by batch
    change    what one epoch changed in a table by key, from the files that only it, or only the table before it, has

Invariant. The portions of `[a, b)` and those of `[b, c)` have each row of `[a, c)` once between them, and no two
portions of a list have a file in common. What a portion has depends on nothing but the files that it names.

>>> packed([60, 60, 60, 10], room=128, least=4)
[[0, 1], [2, 3]]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute

from tidegauge.looking.changes import DIFF, Difference
from tidegauge.looking.view import View, reading
from tidegauge.sinks.columns import EPOCH

__all__ = ["DifferencePortion", "RowsPortion", "TaskPortion", "of_view", "packed"]

ROOM: Final = 128 << 20
"""Bytes of files that a task reads, as Spark has it by default (`spark.sql.files.maxPartitionBytes`)."""
LEAST: Final = 4 << 20
"""How many bytes a small file counts for, as Spark has it (`spark.sql.files.openCostInBytes`)."""

pc: Final[Any] = pyarrow.compute


@dataclass(frozen=True, slots=True)
class RowsPortion:
    """The rows of a view's files with an epoch from `lower` on, as of the view's own.

    epoch: the one that all of them get, None for their own. output: its name, for errors.
    """

    output: str
    view: View
    lower: int
    epoch: int | None = None

    def batches(self, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield them with these columns; `_diff` is 1. Raises `RowsUnreadable`."""
        condition = (pc.field(EPOCH) >= self.lower) & (pc.field(EPOCH) <= self.view.epoch)
        asked = [name for name in columns.names if name in self.view.schema.names]
        with reading(self.output):
            for batch in self.view.rows(condition, columns=asked).to_batches():
                if batch.num_rows:
                    yield _shaped(batch, columns, epoch=self.epoch)


@dataclass(frozen=True, slots=True)
class DifferencePortion:
    """What an epoch changed."""

    output: str
    difference: Difference

    def batches(self, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield its rows with these columns. Raises `RowsUnreadable`."""
        with reading(self.output):
            rows = self.difference.rows()
        for batch in rows.combine_chunks().to_batches(max_chunksize=1 << 16):
            yield _shaped(batch, columns, epoch=None)


TaskPortion: TypeAlias = RowsPortion | DifferencePortion


def of_view(output: str, view: View, lower: int, *, epoch: int | None = None) -> list[TaskPortion]:
    """Return the portions of a view's rows with an epoch from `lower` on."""
    sizes = view.sizes or (0,) * len(view.uris)
    return [RowsPortion(output, view.only(places), lower, epoch) for places in packed(sizes)]


def packed(sizes: Sequence[int], *, room: int = ROOM, least: int = LEAST) -> list[list[int]]:
    """Return the places of files, in their order, a list for each task.

    room: how many bytes a task has, unless one file has more. least: what a small file counts for.
    """
    found: list[list[int]] = []
    left = 0
    for place, size in enumerate(sizes):
        cost = max(size, least)
        if not found or cost > left:
            found.append([])
            left = room
        found[-1].append(place)
        left -= cost
    return found


def _shaped(batch: pa.RecordBatch, columns: pa.Schema, *, epoch: int | None) -> pa.RecordBatch:
    """Return rows with the columns that Spark wants, of just the types that it wants."""
    made = []
    for field in columns:
        if field.name == EPOCH and epoch is not None:
            column: Any = pa.array([epoch] * batch.num_rows, pa.int64())
        elif field.name == DIFF and DIFF not in batch.schema.names:
            column = pa.array([1] * batch.num_rows, pa.int64())
        else:
            column = batch.column(field.name)
        made.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(made, schema=columns)
