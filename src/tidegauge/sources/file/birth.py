"""When a file was created, as its file system remembers it.

An inode number is used again after its file was deleted; the birth time then differs. It stays the same when a file
is truncated, written or renamed. So it tells a new file on an old number from an old file with new content.

>>> import tempfile
>>> with tempfile.TemporaryFile() as stream:
...     birth(stream.fileno()) == birth(stream.fileno())
True
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final

__all__ = ["birth"]

# statx(2): Linux reports the birth time by this call only, and `os.stat` does not make it.
_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_SIZE: Final = 256
_MASK: Final = struct.Struct("=I")
_TIME: Final = struct.Struct("=qI")
_BTIME_AT: Final = 80


@cache
def _statx() -> Callable[..., Any] | None:
    try:
        return ctypes.CDLL(None).statx
    except (AttributeError, OSError):
        return None


def birth(fd: int) -> int:
    """Return when an open file was created, in nanoseconds since 1970, or 0 where the file system does not say."""
    elsewhere = getattr(os.fstat(fd), "st_birthtime", None)
    if elsewhere is not None:
        return int(elsewhere * 1_000_000_000)
    call = _statx()
    buffer = ctypes.create_string_buffer(_SIZE)
    if call is None or call(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer) != 0:
        return 0
    if not _MASK.unpack_from(buffer, 0)[0] & _STATX_BTIME:
        return 0
    seconds, nanoseconds = _TIME.unpack_from(buffer, _BTIME_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
