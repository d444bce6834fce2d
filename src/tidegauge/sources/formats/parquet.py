"""Parquet: a file is read once it is complete; its row groups are the pieces, its row numbers the positions.

Invariant: a value is never changed by reading, except that an INT96 is cut off at the microsecond. A column is cast
to its declared type only where every value of its own type has a meaning there, or where a value that has none is
found and stops the file, with its row.

>>> import io, pyarrow.parquet as pq
>>> file = io.BytesIO()
>>> pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "more": ["x", "y"]}), file)
>>> format = Parquet("id long, name string")
>>> [decoded] = format.decode_groups(file, first=0, last=len(format.groups(file)), schema=format.schema)
>>> decoded.rows.to_pylist(), decoded.positions.to_pylist()
([{'id': 1, 'name': None}, {'id': 2, 'name': None}], [0, 1])
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidegauge.errors.sources import AmbiguousHeader, ColumnTypeMismatch, CorruptFile
from tidegauge.sources.ddl import as_schema, to_ddl
from tidegauge.sources.formats.calendars import OldCalendars
from tidegauge.sources.formats.fitted import nearest_type, widens
from tidegauge.sources.formats.infer import as_table
from tidegauge.sources.formats.protocol import Decoded

__all__ = ["Parquet"]

BATCH_ROWS: Final = 1 << 16
_MAGIC: Final = b"PAR1"


@dataclass(frozen=True, slots=True)
class Parquet:
    """Parquet files. `schema` is a DDL string or an Arrow schema; without one it is that of the first file.

    Columns are found by name, missing ones are null, others are not read. Raises `InvalidSchema`, `ReservedColumn`
    and `UnsupportedType`.
    """

    schema: pa.Schema | None

    def __init__(self, schema: str | pa.Schema | None = None) -> None:
        object.__setattr__(self, "schema", as_schema(schema))

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {"format": "parquet", "schema": None if self.schema is None else to_ddl(self.schema)}

    def infer_whole(self, stream: BinaryIO) -> pa.Schema:
        """Return the columns of the file, each with the nearest type that holds all its values; all may be null."""
        with _opened(stream) as file:
            found = pa.schema([(field.name, nearest_type(field.type, field.name)) for field in file.schema_arrow])
        checked = as_table(found, "the Parquet file")
        if not len(checked):
            raise CorruptFile(format="Parquet", detail="it has no columns")
        return checked

    def complete(self, stream: BinaryIO) -> bool:
        """Whether the file begins and ends as Parquet does and has a footer that can be read."""
        size = stream.seek(0, os.SEEK_END)
        if size < 3 * len(_MAGIC):
            return False
        stream.seek(0)
        first = stream.read(len(_MAGIC))
        stream.seek(size - len(_MAGIC))
        if first != _MAGIC or stream.read(len(_MAGIC)) != _MAGIC:
            return False
        try:
            with _opened(stream):
                return True
        except CorruptFile:
            return False

    def groups(self, stream: BinaryIO) -> list[int]:
        """Return the size of each row group in bytes, before compression.

        The compressed sizes are those of columns, and Arrow ends the process when it is asked for a column that a
        damaged footer does not describe.
        """
        with _opened(stream) as file:
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            return [max(0, group.total_byte_size) for group in groups]

    def decode_groups(self, stream: BinaryIO, *, first: int, last: int, schema: pa.Schema) -> Iterator[Decoded]:
        """Yield the rows of the row groups `[first, last)`, at most 65 536 at a time.

        Raises `ColumnTypeMismatch`, `AmbiguousHeader` for a column that is there twice, `OldCalendar`, `CorruptFile`.
        """
        with _opened(stream) as file:
            there = file.schema_arrow.names
            for column in schema:
                if there.count(column.name) > 1:
                    raise AmbiguousHeader(column=column.name, header=there)
                if column.name in there:
                    _check(file.schema_arrow.field(column.name).type, column)
            wanted = [name for name in schema.names if name in there]
            sizes = [file.metadata.row_group(i).num_rows for i in range(last)]
            position = sum(sizes[:first])
            if not wanted:
                yield from _nulls(position, sum(sizes[first:]), schema)
                return
            groups, old = list(range(first, last)), OldCalendars.of(file)
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=wanted, use_threads=False):
                for name in wanted:
                    old.check(name, batch.column(name))
                rows = pa.RecordBatch.from_arrays(
                    [_column(batch, column, position) for column in schema], schema=schema
                )
                # Arrow's reader takes any bytes for text.
                rows.validate(full=True)
                yield Decoded(rows, _numbers(position, rows.num_rows))
                position += rows.num_rows


@contextmanager
def _opened(stream: BinaryIO) -> Iterator[Any]:
    """Open the file; what Arrow says of its content becomes `CorruptFile`, an error of the disk passes through."""
    stream.seek(0)
    try:
        # An INT96 has no unit of its own. In nanoseconds, Arrow's default, what is before 1677 or after 2262 becomes
        # another time without a word; in microseconds, as for Spark, it is the same column whatever the file holds.
        yield pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
    except OSError as error:
        if error.errno is not None:
            raise
        raise CorruptFile(format="Parquet", detail=str(error)) from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise CorruptFile(format="Parquet", detail=str(error)) from error


def _check(found: Any, column: pa.Field) -> None:
    if not widens(found, column.type):
        raise ColumnTypeMismatch(
            column=column.name,
            found=str(found),
            declared=str(column.type),
            detail="not every value of the one is a value of the other",
        )


def _column(batch: pa.RecordBatch, column: pa.Field, position: int) -> Any:
    """Return a column of a batch as its declared type; `position` is the number of its first row in the file."""
    i = batch.schema.get_field_index(column.name)
    found = pa.nulls(batch.num_rows, column.type) if i < 0 else batch.column(i)
    try:
        array = found if found.type == column.type else found.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        row = position + _first_refused(found, column.type)
        raise ColumnTypeMismatch(
            column=column.name, found=str(found.type), declared=str(column.type), detail=f"row {row}: {error}"
        ) from error
    if not column.nullable and array.null_count:
        row = position + array.is_null().index(pa.scalar(True)).as_py()  # noqa: FBT003 - a value
        raise ColumnTypeMismatch(
            column=column.name, found=str(found.type), declared=f"{column.type} NOT NULL", detail=f"row {row} is null"
        )
    return array


def _first_refused(array: Any, target: Any) -> int:
    """Return the first row that cannot be cast: rows before it can, and it cannot together with them."""
    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            array.slice(good, middle - good).cast(target)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            bad = middle
        else:
            good = middle
    return good


def _numbers(first: int, count: int) -> Any:
    return pa.array(np.arange(first, first + count, dtype=np.int64))


def _nulls(position: int, count: int, schema: pa.Schema) -> Iterator[Decoded]:
    """Yield rows of a file that has none of the columns."""
    for start in range(0, count, BATCH_ROWS):
        size = min(BATCH_ROWS, count - start)
        table = pa.RecordBatch.from_arrays([pa.nulls(size) for _ in schema], names=schema.names)
        rows = pa.RecordBatch.from_arrays([_column(table, column, position) for column in schema], schema=schema)
        yield Decoded(rows, _numbers(position + start, size))
