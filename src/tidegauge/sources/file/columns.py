"""The columns of a file whose format declares none, inferred from its beginning.

Invariant: only bytes that are bound together with the columns are looked at, so what was inferred stays true of them.
"""

from __future__ import annotations

import os
from typing import BinaryIO, Final

import pyarrow as pa

from tidegauge.errors.sources import TruncatedFile, UnknownColumns
from tidegauge.sources.file.kinds import as_line, as_whole, is_whole
from tidegauge.sources.file.reading import naming
from tidegauge.sources.formats.gzip import gunzip
from tidegauge.sources.formats.protocol import Format

__all__ = ["infer"]

FIRST: Final = 1 << 20
MOST: Final = 64 << 20


def infer(stream: BinaryIO, format: Format, *, path: str, upper: int) -> pa.Schema | None:
    """Return the columns that the first `upper` bytes of an open file show, or None when there is no full record.

    A mebibyte is enough for most files; more is read, up to 64, only for records that are larger. Raises
    `UnknownColumns` when even that does not do, and `UnreadableFile`.
    """
    whole = as_whole(format)
    with naming(path):
        if whole is not None:
            return whole.infer_whole(stream)
        line = as_line(format)
        size = FIRST
        while line is not None:
            head = _head(stream, min(size, MOST), upper, compressed=is_whole(format, path))
            columns = line.infer(head)
            if columns is not None or len(head) < size:
                return columns
            if size >= MOST:
                raise UnknownColumns(path=path, size=size)
            size *= 8
    return None


def _head(stream: BinaryIO, size: int, upper: int, *, compressed: bool) -> bytes:
    if not compressed:
        return os.pread(stream.fileno(), min(size, upper), 0)
    stream.seek(0)
    try:
        with gunzip(stream) as text:
            return text.read(size)
    except TruncatedFile:  # still being written: no record of it is to be trusted
        return b""
