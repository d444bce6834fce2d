"""Rows to try the steps of a flow on: few of them, with nulls, values that come again, and values of any size.

Invariant: they depend on the columns, the partition and the seed alone.

>>> [piece.num_rows for piece in sample(pa.schema([("id", pa.int64()), ("user", pa.string())]))]
[24, 24]
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.engine import RecordUnparsable
from tidegauge.sources.generated import can_generate, rows
from tidegauge.sources.metadata import PLACE
from tidegauge.sources.protocol import BAD_RECORDS

__all__ = ["sample", "sample_of_errors", "texts"]

ROWS: Final = 24
"""Rows of a partition."""
_PARTITIONS: Final = 2
_PARTITION, _OFFSET = PLACE
_ORIGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)


def sample(columns: pa.Schema, *, seed: int = 0) -> list[pa.RecordBatch]:
    """Return rows of each partition. The last one is null wherever it may be, and no partition begins as another."""
    return [_of_partition(columns, seed=seed, shard=shard) for shard in range(_PARTITIONS)]


def sample_of_errors(source: str, *, seed: int = 0) -> list[pa.RecordBatch]:
    """Return bad records of each partition, as `stream.errors` has them: only keys and timestamps may be null."""
    return [_bad_records(source, seed=seed, shard=shard) for shard in range(_PARTITIONS)]


def texts(batch: pa.RecordBatch) -> list[str]:
    """Return rows as texts. Equal rows have equal texts."""
    return ["{" + ", ".join(f"{name}: {value!r}" for name, value in row.items()) + "}" for row in batch.to_pylist()]


def _bad_records(source: str, *, seed: int, shard: int) -> pa.RecordBatch:
    random = Random(f"errors {seed} {shard}")  # noqa: S311 - nothing is secret here
    records = [
        {
            "source": source,
            "partition": f"sample-{shard}",
            "position": position,
            "raw": random.choice((b"", b"{", b"\xff\x00", b'{"id": "x"}', random.randbytes(6))),
            "code": RecordUnparsable.code,
            "message": random.choice(("the JSON ends too early", "it is no UTF-8", "id: 'x' is no long")),
            "key": random.choice((None, b"", b"k", random.randbytes(3))),
            "timestamp": random.choice((None, _ORIGIN + timedelta(seconds=random.randrange(100)))),
        }
        for position in range(ROWS)
    ]
    return pa.RecordBatch.from_pylist(records, schema=BAD_RECORDS)


def _of_partition(columns: pa.Schema, *, seed: int, shard: int) -> pa.RecordBatch:
    random = Random(f"{seed} {shard}")  # noqa: S311 - nothing is secret here
    arrays = [_column(field, random, seed=seed, shard=shard) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _column(field: pa.Field, random: Random, *, seed: int, shard: int) -> Any:
    if field.equals(_PARTITION):
        return pa.array([f"sample-{shard}"] * ROWS, field.type)
    if field.equals(_OFFSET):
        return pa.array(range(ROWS), field.type)
    if not can_generate(field.type):  # of a message's metadata: the writers write no other
        return pa.nulls(ROWS, field.type)
    made = rows(pa.schema([field]), seed=seed, shard=shard, lower=0, upper=ROWS)
    values: list[Any] = made.column(0).to_pylist()
    common = _common(field.type) or values[:2]
    for row in range(1, ROWS):
        drawn = random.random()
        if field.nullable and (row == ROWS - 1 or drawn < 0.1):
            values[row] = None
        elif drawn < 0.5:
            values[row] = random.choice(common)
    return pa.array(values, field.type)


def _common(of: Any) -> list[Any]:
    """Return values that come again and again, and at which functions err; [] for a type without such."""
    if pa.types.is_integer(of):
        return [0, 1, 2, -1, 100]
    if pa.types.is_floating(of):
        return [0.0, 1.5, -2.5, 150.0, 1e6]
    return ["", "a", "b", "ü"] if pa.types.is_string(of) else []
