"""Keys of rows, as values that are equal where the keys are: in every batch, process, version and engine.

The part of a key, for `Partition`, is its hash without the sign, modulo the number of parts. The hash of one column
is the one of Iceberg's buckets (Murmur3 of 32 bits, seed 0; `sinks.layout.murmur`), that of a null is 0. Of several
columns the hash is `31 * hash of those before + hash of the next`, in 32 bits.

Invariants: the part of a key is a function of its values alone, not of how wide an integer is, of a dictionary, or of
the neighbours. What Spark makes of a column's type on its way changes no key.

>>> rows = pa.record_batch({"id": [34, 7, None], "city": ["Oslo", "Bergen", "Oslo"]})
>>> parts_of(rows, ("id",), 4).tolist(), parts_of(rows, ("id", "city"), 4).tolist()
([3, 3, 0], [2, 1, 1])
>>> values_of(rows, ("id", "city"))[:2], values_of(rows, ("city",))[0]
([(34, 'Oslo'), (7, 'Bergen')], 'Oslo')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.flow import UnknownColumn
from tidegauge.errors.steps import KeyCannotTell
from tidegauge.lazy import library
from tidegauge.sinks.layout.murmur import hashes

__all__ = ["check_key", "parts_of", "values_of"]

pc: Final[Any] = library("pyarrow.compute")

_TEXT: Final = (pt.is_string, pt.is_large_string, pt.is_string_view)
_BYTES: Final = (pt.is_binary, pt.is_large_binary, pt.is_fixed_size_binary, pt.is_binary_view)


def check_key(key: Sequence[str], schema: pa.Schema, *, where: str) -> None:
    """Raise `UnknownColumn` or `KeyCannotTell` unless rows of these columns can be told apart by a key."""
    for column in key:
        if column not in schema.names:
            raise UnknownColumn(column=column, where=where, known=schema.names)
        kind = _inner(schema.field(column).type)
        why = ""
        if pt.is_floating(kind):
            why = "two floats that look alike need not be equal"
        elif pt.is_uint64(kind):
            why = "of these, half would be other numbers in Spark"
        elif not (
            pt.is_integer(kind)
            or pt.is_boolean(kind)
            or pt.is_date(kind)
            or pt.is_timestamp(kind)
            or pt.is_decimal128(kind)
            or any(same(kind) for same in (*_TEXT, *_BYTES))
        ):
            why = "this is none of them"
        if why:
            raise KeyCannotTell(where=where, column=column, type=str(kind), why=why)


def values_of(rows: pa.RecordBatch, key: Sequence[str]) -> list[Any]:
    """Return the keys of rows as plain values that are equal where the keys are; a null is equal to a null."""
    columns = [_listed(_plain(rows.column(name))) for name in key]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def parts_of(rows: pa.RecordBatch, key: Sequence[str], parts: int) -> Any:
    """Return for each row the part that its key is in, from 0 on."""
    state = np.zeros(rows.num_rows, np.uint32)
    with np.errstate(over="ignore"):
        for name in key:
            column = _plain(rows.column(name))
            found = hashes(column).view(np.uint32)
            if column.null_count:
                found = np.where(column.is_null().to_numpy(zero_copy_only=False), np.uint32(0), found)
            state = state * np.uint32(31) + found
    return (state & np.uint32(0x7FFFFFFF)).astype(np.int64) % parts


def _listed(column: Any) -> list[Any]:
    """Return a column as a list, through NumPy, where that keeps nulls: a third of the time."""
    if pt.is_int64(column.type) and column.null_count:
        listed: list[Any] = column.to_pylist()
        return listed
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _inner(kind: Any) -> Any:
    return kind.value_type if pt.is_dictionary(kind) else kind


def _plain(column: Any) -> Any:
    """Return a column as integers, texts, bytes or decimals, and instants in microseconds, as Spark has them."""
    kind = column.type
    if pt.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pt.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if pt.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if pt.is_boolean(kind) or pt.is_integer(kind):
        return column.cast(pa.int64())
    if any(same(kind) for same in _TEXT):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if any(same(kind) for same in _BYTES) else column
