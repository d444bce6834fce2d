r"""A gzip stream read as the bytes it holds, in bounded memory, with truncation and bombs told apart from data.

Invariant: the bytes read are a prefix of those that were compressed; the end is reported only after every member's
checksum was right.

>>> import gzip, io
>>> with gunzip(io.BytesIO(gzip.compress(b"one\n") + gzip.compress(b"two\n"))) as text:
...     text.read()
b'one\ntwo\n'
"""

from __future__ import annotations

import io
import zlib
from typing import Any, BinaryIO, Final, cast

from tidegauge.errors.sources import CorruptFile, SuspiciousCompression, TruncatedFile

__all__ = ["FREE_BYTES", "MAX_RATIO", "flaw", "gunzip"]

MAX_RATIO: Final = 200
FREE_BYTES: Final = 64 << 20
"""Below this many decompressed bytes the ratio does not matter."""

_INPUT_BYTES: Final = 256 << 10
_GZIP: Final = 31


def gunzip(raw: BinaryIO, *, ratio: int = MAX_RATIO, free: int = FREE_BYTES) -> BinaryIO:
    """Return a stream of the decompressed bytes of `raw`, from where it stands.

    It can be rewound with `seek(0)`, if `raw` can seek. Several members one after the other are one stream; zeros
    after the last are padding. Closing the stream leaves `raw` open.

    Reading raises `TruncatedFile`, `CorruptFile`, and `SuspiciousCompression` when more than `free` bytes are more
    than `ratio` times the compressed ones.
    """
    return cast("BinaryIO", io.BufferedReader(_GzipStream(raw, ratio, free), 1 << 20))


def flaw(raw: BinaryIO) -> str:
    """Return why the compressed data cannot be read to its end, from the position of `raw`; nothing when it can.

    A file that is still being written, or copied, has a flaw: it ends in the middle of a member, or holds zeros where
    its bytes are yet to come. A damaged file looks the same. That a file is suspiciously small for its content is no
    flaw: it will not change.
    """
    room = bytearray(1 << 20)
    members = _GzipStream(raw, MAX_RATIO, FREE_BYTES)
    try:
        while members.readinto(room):
            pass
    except (TruncatedFile, CorruptFile) as error:
        return error.summary
    except SuspiciousCompression:
        return ""
    return ""


class _GzipStream(io.RawIOBase):
    """The raw stream beneath the buffer: `compressed` bytes were taken, `position` bytes were given."""

    def __init__(self, raw: BinaryIO, ratio: int, free: int) -> None:
        self._raw, self._ratio, self._free = raw, ratio, free
        self._origin: int | None = raw.tell() if raw.seekable() else None
        self._restart()

    def _restart(self) -> None:
        self._member: Any = None
        self._pending = b""
        self._members = self._compressed = self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._origin is not None

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_CUR and offset == 0:
            return self._position
        if whence != io.SEEK_SET or offset != 0 or self._origin is None:
            raise io.UnsupportedOperation("a compressed stream can only be rewound")
        self._raw.seek(self._origin)
        self._restart()
        return 0

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        while True:
            if not self._pending:
                self._pending = self._raw.read(_INPUT_BYTES)
                self._compressed += len(self._pending)
            if self._member is None and not self._begin_member():
                return 0
            data = self._decompress(len(target))
            if data:
                target[: len(data)] = data
                self._position += len(data)
                if self._position > max(self._free, self._ratio * self._compressed):
                    raise SuspiciousCompression(
                        compressed=self._compressed, decompressed=self._position, ratio=self._ratio
                    )
                return len(data)

    def _begin_member(self) -> bool:
        """Begin the next member; return whether there is one. Padding is skipped."""
        if self._members:
            self._pending = self._pending.lstrip(b"\0")
            while not self._pending and (more := self._raw.read(_INPUT_BYTES)):
                self._compressed += len(more)
                self._pending = more.lstrip(b"\0")
            if not self._pending:
                return False
        elif not self._pending:
            raise TruncatedFile(compressed=0)
        self._member = zlib.decompressobj(_GZIP)
        return True

    def _decompress(self, size: int) -> bytes:
        ended = not self._pending
        try:
            data = cast("bytes", self._member.decompress(self._pending, size))
        except zlib.error as error:
            raise CorruptFile(format="gzip", detail=str(error)) from error
        if self._member.eof:
            self._pending = self._member.unused_data
            self._member = None
            self._members += 1
        else:
            self._pending = self._member.unconsumed_tail
            if ended and not data:
                raise TruncatedFile(compressed=self._compressed)
        return data
