"""A row for each element of a list (`Unnest`), as Spark's `explode` has it.

The element takes the place of the list, under its name; a struct stays one column. A row whose list is null or empty
gives none; an element that is null gives one.

Invariant: a batch becomes pieces of at most `PIECE` rows, or the elements of one row: the columns beside a list come
once for each element, so a batch with long lists is many times as large when it is unnested.

>>> rows = pa.record_batch({"id": [1, 2, 3], "items": [["a", None], [], None]})
>>> Unnested("items")(rows).to_pylist()
[{'id': 1, 'items': 'a'}, {'id': 1, 'items': None}]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.flow import UnknownColumn
from tidegauge.errors.steps import NotAList
from tidegauge.lazy import library

__all__ = ["PIECE", "Unnested", "check_unnest"]

pc: Final[Any] = library("pyarrow.compute")

PIECE: Final = 65_536


def check_unnest(column: str, schema: pa.Schema, *, where: str) -> None:
    """Raise `UnknownColumn` or `NotAList` unless rows of these columns have lists in one."""
    if column not in schema.names:
        raise UnknownColumn(column=column, where=where, known=schema.names)
    kind = schema.field(column).type
    if not (pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)):
        raise NotAList(column=column, where=where, type=str(kind))


@dataclass(frozen=True, slots=True)
class Unnested:
    """The step as an Arrow function."""

    column: str

    def pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Cut a batch, so that few rows are made of each piece."""
        lengths = pc.fill_null(pc.list_value_length(batch.column(self.column)), 0)
        ends = np.cumsum(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)
        start = made = 0
        while start < batch.num_rows:
            stop = max(start + 1, int(np.searchsorted(ends, made + PIECE, side="right")))
            yield batch.slice(start, stop - start)
            start, made = stop, int(ends[stop - 1])

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a row for each element."""
        at = batch.schema.get_field_index(self.column)
        if batch.column(at).null_count:  # a null may have a length
            batch = batch.filter(batch.column(at).is_valid())
        lists = batch.column(at)
        if pt.is_fixed_size_list(lists.type):
            lists = lists.cast(pa.list_(lists.type.value_field))
        elements = pc.list_flatten(lists)
        others = batch.drop_columns([self.column]) if batch.num_columns > 1 else None
        made = [] if others is None else list(others.take(pc.list_parent_indices(lists)).columns)
        made.insert(at, elements)
        fields = list(batch.schema)
        fields[at] = pa.field(self.column, elements.type)
        return pa.RecordBatch.from_arrays(made, schema=pa.schema(fields))
