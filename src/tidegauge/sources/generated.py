"""Values out of nothing: the content of row `i` of a shard, computed for any range at once.

Definition. Let `k` be a 64-bit hash of (seed, shard, column name), `g` the odd constant 0x9E3779B97F4A7C15 and `mix`
the finaliser of SplitMix64 (Steele, Lea and Flood, 2014), a bijection of 64-bit words. The random word of row `i` is
`mix(k + (i + 1) g mod 2^64)`: a counter and a mixer, with no state between rows. So any range can be made again, in
any process, and the words of a column do not repeat within 2^64 rows.

Invariant: a value depends on (seed, shard, row, column name, column type) and on nothing else.

>>> schema = pa.schema([("id", pa.int8()), ("name", pa.string())])
>>> whole, part = rows(schema, seed=7, shard=0, lower=0, upper=5), rows(schema, seed=7, shard=0, lower=3, upper=5)
>>> whole.slice(3).equals(part)
True
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["can_generate", "rows", "words"]

Words: TypeAlias = npt.NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_HEX: Final = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
_DAYS: Final = np.uint64(36_525)
"""Dates and timestamps lie in the hundred years from 1970."""
_DAY_US: Final = np.uint64(86_400_000_000)


def words(key: bytes, lower: int, upper: int) -> Words:
    """Return the random words of the rows `[lower, upper)` of one column."""
    start = np.frombuffer(hashlib.blake2b(key, digest_size=8).digest(), "<u8")
    z: Words = np.arange(lower + 1, upper + 1, dtype=np.uint64) * _GOLDEN + start
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


def can_generate(of: Any) -> bool:
    """Whether values of this Arrow type can be made."""
    return bool(
        pa.types.is_boolean(of)
        or pa.types.is_signed_integer(of)
        or of in (pa.float32(), pa.float64(), pa.string(), pa.date32())
        or (pa.types.is_timestamp(of) and of.unit == "us")
        or pa.types.is_decimal128(of)
    )


def rows(schema: pa.Schema, *, seed: int, shard: int, lower: int, upper: int) -> pa.RecordBatch:
    """Return the rows `[lower, upper)` of a shard.

    Integers are uniform over their type, floats over [0, 1), decimals over the non-negative values of their
    precision; strings are 16 hex digits; dates and timestamps lie between 1970 and 2069. There are no nulls.
    """
    columns = [_column(field.type, f"{seed}/{shard}/{field.name}", lower, upper) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(of: Any, key: str, lower: int, upper: int) -> Any:
    random = words(key.encode(), lower, upper)
    if pa.types.is_boolean(of):
        return pa.array((random & np.uint64(1)).astype(bool))
    if pa.types.is_string(of):
        return _texts(random)
    values: npt.NDArray[Any]
    if pa.types.is_signed_integer(of):
        values = random.astype(f"u{of.bit_width // 8}")  # the low bits; the sign is one of them
    elif of == pa.float64():
        values = (random >> np.uint64(11)) * 2.0**-53
    elif of == pa.float32():
        values = ((random >> np.uint64(40)) * 2.0**-24).astype(np.float32)
    elif pa.types.is_date(of):
        values = (random % _DAYS).astype(np.int32)
    elif pa.types.is_timestamp(of):
        values = random % (_DAYS * _DAY_US)
    else:
        values = _decimals(of.precision, random, words(f"{key}/high".encode(), lower, upper))
    return pa.Array.from_buffers(of, len(random), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _texts(random: Words) -> Any:
    characters = _HEX[random.astype(">u8").view(np.uint8)]
    offsets = np.arange(0, 16 * len(random) + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(random), pa.py_buffer(offsets), pa.py_buffer(characters))


def _decimals(precision: int, low: Words, high: Words) -> Words:
    """Return unscaled values below 10^precision as pairs of words, the lower one first."""
    highs = 10**precision >> 64
    if highs:
        return np.column_stack([low, high % np.uint64(highs)])
    return np.column_stack([low % np.uint64(10**precision), np.zeros_like(low)])
