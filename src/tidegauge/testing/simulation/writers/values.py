"""The rows that writers write: made of seed, shard and position alone, every seventh with nulls.

>>> import pyarrow as pa
>>> columns = pa.schema([("id", pa.int64()), ("name", pa.string())])
>>> made(columns, seed=1, shard=0, lower=2, upper=5)["name"].null_count
1
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from tidegauge.errors.simulation import Ungeneratable
from tidegauge.sources.generated import can_generate, rows

__all__ = ["check_columns", "in_its_column", "made"]

pc: Final[Any] = pyarrow.compute

_EVERY: Final = 7
_WHICH: Final = 3


def check_columns(source: str, columns: pa.Schema) -> None:
    """Raise `Ungeneratable` for a column of a type that no values are made of."""
    for column in columns:
        if not can_generate(column.type):
            raise Ungeneratable(source=source, column=column.name, type=str(column.type))


def made(columns: pa.Schema, *, seed: int, shard: int, lower: int, upper: int) -> pa.RecordBatch:
    """Return the rows `[lower, upper)` of a shard. The first column has no nulls, as a key has none."""
    found = rows(columns, seed=seed, shard=shard, lower=lower, upper=upper)
    null = [position % _EVERY == _WHICH for position in range(lower, upper)]
    if not any(null):
        return found
    mask, held = pa.array(null), [found.column(0)]
    for number, column in enumerate(columns):
        if number:
            values = found.column(number)
            held.append(pc.if_else(mask, pa.scalar(None, column.type), values) if column.nullable else values)
    return pa.RecordBatch.from_arrays(held, schema=columns)


def in_its_column(rows: pa.RecordBatch, stream: str, columns: pa.Schema) -> pa.RecordBatch:
    """Return rows of a stream as a flow gets them: in the column of the stream, and null in those of the others.

    >>> columns = pa.schema([(name, pa.struct([("id", pa.int64())])) for name in ("orders", "users")])
    >>> in_its_column(pa.record_batch({"id": [7]}), "orders", columns).to_pylist()
    [{'orders': {'id': 7}, 'users': None}]
    """
    struct = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
    arrays = [struct if column.name == stream else pa.nulls(rows.num_rows, column.type) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
