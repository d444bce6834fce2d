"""Compressed transactions of MySQL (`binlog_transaction_compression`): one event that has the others in it.

    TRANSACTION_PAYLOAD    fields of (kind, length, value): compression, size, size when whole; 0 ends them; bytes

Invariant: the events that come out are those that the server would have sent without compression, or `BinlogBroken`
is raised. One at a time is whole, however large the transaction is.

>>> inner = HEADER.pack(0, 16, 1, 27, 0, 0) + bytes(8)
>>> packed_ = pa.compress(inner * 2, "zstd", asbytes=True)
>>> body = bytes([2, 1, 0, 3, 1, 54, 1, 1, len(packed_), 0]) + packed_
>>> list(unpacked(HEADER.pack(0, 40, 1, 19 + len(body), 0, 0) + body)) == [inner, inner]
True
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.mysqlsource import BinlogBroken
from tidegauge.sources.mysql.events import HEADER, packed

__all__ = ["PAYLOAD", "unpacked"]

PAYLOAD: Final = 40
_SIZE, _COMPRESSION = 1, 2
_ZSTD, _NONE = 0, 255


def unpacked(event: bytes) -> Iterator[bytes]:
    """Yield the events of a transaction, which have no checksums. Raises `BinlogBroken`."""
    try:
        yield from _unpacked(event)
    except (IndexError, KeyError, OSError, ValueError) as error:
        raise BinlogBroken(event="TRANSACTION_PAYLOAD", problem=f"it cannot be unpacked ({error!r})") from None


def _unpacked(event: bytes) -> Iterator[bytes]:
    fields, at = {_COMPRESSION: _NONE}, HEADER.size
    while event[at]:
        kind, at = packed(event, at)
        size, at = packed(event, at)
        fields[kind], _ = packed(event, at)
        at += size
    inside: Any = pa.BufferReader(pa.py_buffer(event).slice(at + 1, fields[_SIZE]))
    if fields[_COMPRESSION] == _ZSTD:
        inside = pa.CompressedInputStream(inside, "zstd")
    elif fields[_COMPRESSION] != _NONE:
        raise ValueError(f"compression {fields[_COMPRESSION]}")
    while header := _read(inside, HEADER.size):
        yield header + _read(inside, int.from_bytes(header[9:13], "little") - HEADER.size, whole=True)


def _read(inside: Any, size: int, *, whole: bool = False) -> bytes:
    """Return the next bytes, or none where it is over."""
    found = b""
    while len(found) < size and (more := inside.read(size - len(found))):
        found += more
    if len(found) != size and (found or whole):
        raise ValueError(f"{len(found)} bytes are there of {size}")
    return found
