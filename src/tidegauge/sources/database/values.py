"""From the texts of a column to its values: one cast of the whole column; one by one only to find what does not fit.

Texts are as the server writes them under the settings of our sessions, so that nothing of a role's, a database's or a
server's own settings decides them.

Invariant: a text becomes the value that the server has, or is told to be unfit; nothing is rounded, cut or nulled.

>>> valid = np.array([True, True, False])
>>> cells = gathered(np.frombuffer(b"12-7", np.uint8), np.array([0, 2, 2]), np.array([2, 2, 0]), valid)
>>> values(cells, pa.int32())[0].to_pylist()
[12, -7, None]
>>> found, unfit = values(pa.array([b"1.50", b"NaN"]), pa.decimal128(10, 2))
>>> found.to_pylist(), unfit
([Decimal('1.50'), None], [1])
"""

from __future__ import annotations

import binascii
from typing import Any

import numpy as np
import pyarrow as pa

from tidegauge.lazy import library

__all__ = ["gathered", "values"]

pc = library("pyarrow.compute")


def gathered(data: Any, starts: Any, sizes: Any, valid: Any) -> Any:
    """Return the bytes at some places as one binary array, null where not `valid`.

    Places in order, as those of a column are, cut the data into texts and what lies between. These are the elements
    of an array over the data itself, and every other one is taken.
    """
    sizes, starts = np.where(valid, sizes, 0), np.minimum(starts, len(data))  # what is null may be behind the end
    ends = starts + sizes
    if not len(sizes) or (starts[1:] < ends[:-1]).any():
        return _gathered_one_by_one(data, starts, sizes, valid)
    small = len(data) < 1 << 31
    offsets = np.empty(2 * len(sizes) + 1, np.int32 if small else np.int64)
    offsets[:-1:2], offsets[1::2], offsets[-1] = starts, ends, ends[-1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.binary() if small else pa.large_binary(), 2 * len(sizes), buffers)
    found = pieces.take(pa.array(np.arange(0, 2 * len(sizes), 2), mask=~valid))
    return found if small or int(sizes.sum()) >= 1 << 31 else found.cast(pa.binary())


def _gathered_one_by_one(data: Any, starts: Any, sizes: Any, valid: Any) -> Any:
    """Return it for places in any order, byte by byte."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    total = int(offsets[-1])
    taken = data[np.repeat(starts - offsets[:-1], sizes) + np.arange(total)]
    buffers = [
        None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes()),
        pa.py_buffer(offsets.tobytes()),
        pa.py_buffer(taken.tobytes()),
    ]
    found = pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)
    return found.cast(pa.binary()) if total < 1 << 31 else found


def values(texts: Any, kind: Any) -> tuple[Any, list[int]]:
    """Return the values of texts, and the indices of those that are none; these are null.

    texts: a binary array. kind: the Arrow type.
    """
    try:
        return _cast(texts, kind), []
    except (pa.ArrowInvalid, ValueError):
        unfit = _unfit(texts, kind, 0)
        keep = np.ones(len(texts), np.bool_)
        keep[unfit] = False
        return _cast(pc.if_else(pa.array(keep), texts, pa.scalar(None, texts.type)), kind), unfit


def _unfit(texts: Any, kind: Any, first: int) -> list[int]:
    """Return the indices of the texts that are no value, by halves: few are unfit, if any."""
    try:
        _cast(texts, kind)
    except (pa.ArrowInvalid, ValueError):
        if len(texts) == 1:
            return [first]
        half = len(texts) // 2
        return _unfit(texts[:half], kind, first) + _unfit(texts[half:], kind, first + half)
    return []


def _cast(texts: Any, kind: Any) -> Any:
    if pa.types.is_binary(kind):
        return _bytes(texts)
    found = texts.cast(pa.large_string() if pa.types.is_large_binary(texts.type) else pa.string())  # checks UTF-8
    if pa.types.is_boolean(kind):
        truth = pc.equal(found, "t")
        if not pc.all(pc.or_(truth, pc.equal(found, "f"))).as_py() and len(found) > found.null_count:
            raise ValueError("neither t nor f")
        return truth
    return found.cast(kind)


def _bytes(texts: Any) -> Any:
    r"""Return the bytes that texts such as `\x00ff` say.

    >>> _bytes(pa.array([b"\\x00ff", None, b"\\x"])).to_pylist()
    [b'\x00\xff', None, b'']
    """
    if not pc.all(pc.starts_with(texts, rb"\x")).as_py() and len(texts) > texts.null_count:
        raise ValueError(r"it does not begin with \x")
    found = [None if one is None else binascii.unhexlify(one[2:]) for one in texts.to_pylist()]
    return pa.array(found, pa.binary())
