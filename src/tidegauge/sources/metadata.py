"""The columns that say where a row came from: `_partition` and `_offset`, and what else a source tells of a record.

Invariant: with `metadata=True` they are the last columns of every batch of a source, and a user's column never has a
name that Tidegauge writes (compared as Spark compares names, without regard to case).

>>> with_metadata(pa.schema([("id", pa.int64())]), metadata=True, where="the source").names
['id', '_partition', '_offset']
>>> with_metadata(pa.schema([]), metadata=True, where="the source", columns=MESSAGE).names
['_partition', '_offset', '_timestamp', '_key', '_headers']
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidegauge.errors.flow import ReservedColumn
from tidegauge.operations import check

__all__ = [
    "MESSAGE",
    "METADATA_CHANGED",
    "PLACE",
    "TIMESTAMP",
    "has_metadata",
    "stamped",
    "with_metadata",
    "without_metadata",
]

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])

PLACE: Final = pa.schema([("_partition", pa.string()), ("_offset", pa.int64())])
"""What every source knows of a record."""

MESSAGE: Final = pa.schema(
    [*PLACE, ("_timestamp", TIMESTAMP), ("_key", pa.binary()), ("_headers", pa.list_(_HEADER))]
)
"""What a broker knows of a message."""

_EPOCH: Final = "_epoch"

METADATA_CHANGED: Final = (
    "metadata= was changed, and records tell where they are from as they did when they were bound"
)
"""Why columns cannot be those of before."""


def with_metadata(data: pa.Schema, *, metadata: bool, where: str, columns: pa.Schema = PLACE) -> pa.Schema:
    """Return a source's schema for these columns. Raises `ReservedColumn`, `OperationColumnUnfit`."""
    written = {_EPOCH, *(columns.names if metadata else ())}
    for name in data.names:
        if name.lower() in written:
            raise ReservedColumn(where=where, column=name)
    check(data, where)
    return pa.schema([*data, *columns]) if metadata else data


def without_metadata(schema: pa.Schema, *, metadata: bool, columns: pa.Schema = PLACE) -> pa.Schema:
    """Return the columns that the data itself has."""
    return pa.schema(list(schema)[: -len(columns)]) if metadata else schema


def has_metadata(schema: pa.Schema, columns: pa.Schema = PLACE) -> bool:
    """Whether a source's columns end with these."""
    return bool(pa.schema(list(schema)[-len(columns) :]).equals(columns))


def stamped(
    rows: pa.RecordBatch,
    positions: pa.Array,
    *,
    partition: str,
    schema: pa.Schema,
    metadata: bool,
) -> pa.RecordBatch:
    """Return the rows as a batch of `schema`, with each row's origin when `metadata` asks for it."""
    columns = list(rows.columns)
    if metadata:
        columns += [pa.repeat(pa.scalar(partition, pa.string()), rows.num_rows), positions.cast(pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
