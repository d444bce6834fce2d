"""The hash that buckets are taken by: Murmur3 of 32 bits with seed 0, of values as Iceberg's specification has them.

Integers, dates and instants are hashed as the eight bytes of a long, little-endian; decimals as the fewest bytes of
their unscaled value, big-endian; texts as UTF-8, bytes unchanged. So a bucket here is the bucket of the same number
in an Iceberg table, in any process, on any machine.

Invariant: the hash is a function of the value alone: not of the width of an integer, of a slice, or of neighbours.

>>> hashes(pa.array([34])).tolist(), hashes(pa.array(["iceberg"])).tolist()
([2017239379], [1210000089])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

__all__ = ["hashes"]

_WORD: Final = 4
_C1: Final = np.uint32(0xCC9E2D51)
_C2: Final = np.uint32(0x1B873593)


def hashes(values: pa.Array[Any]) -> Any:
    """Return the hash of each value as a signed integer of 32 bits; of a null, any.

    The values are integers, dates, instants, local times, decimals, texts or bytes, in stored form.
    """
    kind = values.type
    if pt.is_string(kind) or pt.is_binary(kind):
        return _of_bytes(*_laid_out(values.cast(pa.binary())))
    if pt.is_decimal(kind):
        return _of_bytes(*_joined([_fewest(value, kind.scale) for value in values.to_pylist()]))
    whole = values.cast(pa.int32()) if pt.is_date(kind) else values
    longs = np.asarray(whole.cast(pa.int64()).fill_null(0)).astype("<i8")
    words = longs.view("<u4").reshape(-1, 2)
    with np.errstate(over="ignore"):
        state = np.zeros(len(longs), np.uint32)
        for at in range(2):
            state = _stirred(state, words[:, at])
        return _finished(state, np.full(len(longs), 8, np.uint32))


def _of_bytes(data: Any, starts: Any, lengths: Any) -> Any:
    """Return the hashes of pieces of a buffer, word by word of all pieces that have one there."""
    state = np.zeros(len(starts), np.uint32)
    whole = lengths // _WORD
    padded = np.concatenate([data, np.zeros(2 * _WORD, np.uint8)])
    with np.errstate(over="ignore"):
        left = np.flatnonzero(whole > 0)
        at = 0
        while len(left):
            state[left] = _stirred(state[left], _words(padded, starts[left] + _WORD * at))
            at += 1
            left = left[whole[left] > at]
        rest = lengths % _WORD
        for count in range(1, _WORD):
            some = np.flatnonzero(rest == count)
            tail = _words(padded, starts[some] + _WORD * whole[some]) & np.uint32((1 << (8 * count)) - 1)
            state[some] ^= _scrambled(tail)
        return _finished(state, lengths.astype(np.uint32))


def _words(data: Any, starts: Any) -> Any:
    found = np.zeros(len(starts), np.uint32)
    for byte in range(_WORD):
        found |= data[starts + byte].astype(np.uint32) << np.uint32(8 * byte)
    return found


def _turned(value: Any, by: int) -> Any:
    return (value << np.uint32(by)) | (value >> np.uint32(32 - by))


def _scrambled(word: Any) -> Any:
    return _turned(word * _C1, 15) * _C2


def _stirred(state: Any, word: Any) -> Any:
    return _turned(state ^ _scrambled(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(state: Any, lengths: Any) -> Any:
    state = state ^ lengths
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ (state >> np.uint32(shift))) * np.uint32(factor)
    return (state ^ (state >> np.uint32(16))).view(np.int32)


def _laid_out(values: Any) -> tuple[Any, Any, Any]:
    """Return the bytes of an array of binaries, and where each value begins and how long it is."""
    _, offsets, data = values.buffers()
    if not len(values):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    held = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return held, ends[:-1], np.diff(ends)


def _joined(pieces: Sequence[bytes]) -> tuple[Any, Any, Any]:
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    starts = np.cumsum(lengths) - lengths
    return np.frombuffer(b"".join(pieces), np.uint8), starts, lengths


def _fewest(value: Any, scale: int) -> bytes:
    """Return the fewest bytes that hold the unscaled value of a decimal, and its sign."""
    if value is None:
        return b""
    sign, digits, exponent = value.as_tuple()
    unscaled: int = int("".join(map(str, digits))) * 10 ** (scale + int(exponent)) * (-1 if sign else 1)
    size: int = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)
