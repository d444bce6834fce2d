"""How an output wants its rows to lie in files: the columns to part and to sort them by, and the size of a file.

Invariant: a layout is checked against the rows' columns before the first of them is written. A table's columns
are those of the rows and, for each transform, the partition column; a data file has them but for the partition
columns, whose values are the table's to keep. Where partitions are *hidden*, as in Iceberg, a table's columns and its
files' are those of the rows; it keeps the values of transforms beside them, as the numbers of its specification.

>>> from tidegauge.sinks.layout.transforms import day
>>> layout = FileLayout.of("DeltaSink", ["country", day("at")], None, "64MB")
>>> columns = pa.schema([("country", pa.string()), ("at", pa.timestamp("us", "UTC")), ("_epoch", pa.int64())])
>>> layout.columns(columns).names, layout.stored(layout.columns(columns)).names
(['country', 'at', 'at_day', '_epoch'], ['at', '_epoch'])
>>> layout.names, layout.file_bytes
(('country', 'at_day'), 67108864)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.layout import PartitionColumnUnfit, SortColumnUnfit
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.layout.transforms import PartitionBy, PartitionField
from tidegauge.sizes import bytes_of

__all__ = ["AS_IT_COMES", "FileLayout", "bytes_in"]

_LEAST: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The layout of a table's files. file_bytes: how large they are to be, as stored; None for the usual size.

    hidden: whether the table has no columns for its partitions.
    """

    partition: tuple[PartitionField, ...] = ()
    sort: tuple[str, ...] = ()
    file_bytes: int | None = None
    hidden: bool = False

    @staticmethod
    def of(
        sink: str,
        partition_by: PartitionBy | Sequence[PartitionBy] | None,
        sort_by: str | Sequence[str] | None,
        file_size: str | int | None,
        *,
        hidden: bool = False,
    ) -> FileLayout:
        """Return what a sink's arguments say. Raises `InvalidArgument`."""
        fields = tuple(
            one if isinstance(one, PartitionField) else PartitionField("column", one)
            for one in _listed(sink, "partition_by", partition_by, str | PartitionField)
        )
        names = [field.name for field in fields]
        if len(set(map(str.lower, names))) < len(names):
            raise _invalid(sink, "partition_by", names, "each partition column once")
        sort = tuple(_listed(sink, "sort_by", sort_by, str))
        if len(set(sort)) < len(sort):
            raise _invalid(sink, "sort_by", sort, "each column once")
        return FileLayout(fields, sort, None if file_size is None else bytes_in(sink, file_size), hidden)

    @property
    def names(self) -> tuple[str, ...]:
        """The partition columns, in the table's order."""
        return tuple(field.name for field in self.partition)

    @property
    def said(self) -> str:
        """The columns and transforms that rows are parted by, for people."""
        return ", ".join(map(str, self.partition)) or "nothing"

    def describe(self) -> dict[str, Any]:
        """Return it as JSON data, without options that were not given."""
        said: dict[str, Any] = {"partition_by": [str(field) for field in self.partition], "sort_by": list(self.sort)}
        if self.file_bytes is not None:
            said["file_size"] = self.file_bytes
        return {name: value for name, value in said.items() if value}

    def check(self, rows: pa.Schema, *, key: Sequence[str] = ()) -> None:
        """Raise `PartitionColumnUnfit` or `SortColumnUnfit` unless rows of these columns, as stored, can lie so.

        key: the columns of whose values the table has one row, none where it has all rows.
        """
        present = {name.lower(): name for name in rows.names}
        for field in self.partition:
            if field.column not in rows.names or field.column == EPOCH:
                _unfit(rows, field, "there is no such column" if field.column != EPOCH else "each file has it itself")
            if problem := field.problem(rows.field(field.column).type):
                _unfit(rows, field, problem)
            if field.kind != "column" and field.name.lower() in present:
                _unfit(rows, field, f"the stream has a column {present[field.name.lower()]!r} already")
            if not self.hidden and not (field.name.isascii() and field.name.isidentifier()):
                _unfit(rows, field, "readers differ in how they take other names than of ASCII letters, digits and _")
        if key and set(key) <= set(self.names):
            problem = "the key has no other column, so each partition would have one row"
            raise PartitionColumnUnfit(partition=self.said, problem=problem, known=rows.names)
        if self.partition and not self.hidden and set(self.names) >= set(rows.names) - {EPOCH}:
            _unfit(rows, self.partition[-1], "no column would be left for the files")
        for column in self.sort:
            problem = "there is no such column" if column not in rows.names else ""
            if not problem and pt.is_nested(kind := rows.field(column).type):
                problem = f"values of {kind} have no order"
            if not problem and column in self.names:
                problem = "all rows of a partition have one value in it"
            if problem:
                raise SortColumnUnfit(column=column, problem=problem, known=rows.names)

    def columns(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns of the table for rows of these; of a table's own columns, the same ones."""
        return rows if self.hidden else self.gathered(rows)

    def gathered(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns of rows with what they are parted by beside them."""
        made = [
            pa.field(field.name, pa.int32() if self.hidden else field.type(rows.field(field.column).type))
            for field in self.partition
            if field.name not in rows.names and field.column in rows.names
        ]
        fields = [field for field in rows if field.name != EPOCH]
        return pa.schema([*fields, *made, *(field for field in rows if field.name == EPOCH)]) if made else rows

    def stored(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of a data file, of the table's."""
        names = {field.name for field in self.partition if not (self.hidden and field.kind == "column")}
        return pa.schema([field for field in columns if field.name not in names]) if names else columns

    def parted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with what they are parted by beside them."""
        columns = self.gathered(rows.schema)
        if columns is rows.schema:
            return rows
        made: Mapping[str, Any] = {
            field.name: field.ordinals(rows) if self.hidden else field.of(rows) for field in self.partition
        }
        arrays = [rows.column(name) if name in rows.schema.names else made[name] for name in columns.names]
        return pa.RecordBatch.from_arrays(arrays, schema=columns)


AS_IT_COMES: Final = FileLayout()


def bytes_in(sink: str, size: object) -> int:
    """Return how many bytes a size means: a number of them, or a text with a unit. Raises `InvalidArgument`.

    >>> bytes_in("DeltaSink", "1.5 MB"), bytes_in("DeltaSink", 65536)
    (1572864, 65536)
    """
    if isinstance(size, str) and (found := bytes_of(size)) is not None:
        size = found
    if type(size) is not int or not _LEAST <= size <= 1 << 40:
        raise _invalid(sink, "file_size", size, "a size of a file, 1 KB or more: '128MB', or a number of bytes")
    return size


def _listed(sink: str, name: str, given: Any, kind: Any) -> list[Any]:
    """Return what an argument lists, which may be one or several."""
    if given is None:
        return []
    found = [given] if isinstance(given, kind) else list(given) if isinstance(given, Sequence) else [None]
    if not found or not all(isinstance(one, kind) and one for one in found):
        raise _invalid(sink, name, given, "a column, or several")
    return found


def _unfit(rows: pa.Schema, field: PartitionField, problem: str) -> None:
    raise PartitionColumnUnfit(partition=str(field), problem=problem, known=rows.names)


def _invalid(sink: str, name: str, value: Any, expected: str) -> InvalidArgument:
    return InvalidArgument(parameter=f"{sink}({name})", value=value, expected=expected)
