r"""Captured events as bytes: a magic number, a version, and frames, each with its length and a check.

    file   = 89 54 47 45 0D 0A 1A 0A ("\x89TGE\r\n\x1a\n") | version | header | event*
    header, event = length | check of the length | body | check of all bodies so far

Invariant: a reader that has returned `n` bodies has returned the first `n` that were written, whole and unchanged.
The length has a check of its own, so that damage is told from a tail that was cut off; and as the check of a body
continues that of the one before, no frame can be left out, doubled or moved. Nothing is allocated for a length above
`LARGEST`.

The format is documented, byte by byte, in `docs/reference/dataflow-events.md`.

>>> import io
>>> packer = Packer("here")
>>> written = packer.start() + packer.pack(b"ebb") + packer.pack(b"flow")
>>> unpacker = Unpacker("there", io.BytesIO(written[:-1]).read)
>>> unpacker.next(), unpacker.next(), unpacker.torn, unpacker.at
(b'ebb', None, 15, 25)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

from tidegauge.errors.events import DamagedEvents, EventTooLarge, NewerEvents, NotEvents

__all__ = ["LARGEST", "MAGIC", "VERSION", "Packer", "Unpacker"]

MAGIC: Final = b"\x89TGE\r\n\x1a\n"
VERSION: Final = 1
LARGEST: Final = 64 * 2**20
"""The bytes that a body may have."""

_WORD: Final = struct.Struct("<I")
_VERSION: Final = struct.Struct("<H")


class Packer:
    """Frames for one file or connection. `name` is for errors."""

    __slots__ = ("_at", "_check", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._at = 0
        self._check = 0

    def start(self) -> bytes:
        """Return what comes before the first frame."""
        start = MAGIC + _VERSION.pack(VERSION)
        self._at = len(start)
        return start

    def pack(self, *body: bytes) -> bytes:
        """Return the frame of a body, given in pieces. Raises EventTooLarge, and then nothing has changed."""
        size = sum(map(len, body))
        if size > LARGEST:
            raise EventTooLarge(name=self._name, size=size, at=self._at, limit=LARGEST)
        for piece in body:
            self._check = zlib.crc32(piece, self._check)
        length = _WORD.pack(size)
        frame = b"".join((length, _WORD.pack(zlib.crc32(length)), *body, _WORD.pack(self._check)))
        self._at += len(frame)
        return frame


class Unpacker:
    """The bodies of one file or connection. `read(n)` returns at most `n` bytes, none only at the end.

    at: where the first byte is that was not returned in a body. torn: how many bytes there are after it, at the end.
    """

    __slots__ = ("_check", "_name", "_read", "at", "torn")

    def __init__(self, name: str, read: Callable[[int], bytes]) -> None:
        self._name: Final = name
        self._read: Final = read
        self._check = 0
        self.at = 0
        self.torn = 0

    def next(self) -> bytes | None:
        """Return the next body, None at the end, be it torn or not.

        Raises NotEvents, NewerEvents, EventTooLarge, DamagedEvents.
        """
        if self.torn or (not self.at and not self._started()):
            return None
        head = self._exactly(2 * _WORD.size)
        if head is None:
            return None
        if _WORD.pack(zlib.crc32(head[: _WORD.size])) != head[_WORD.size :]:
            raise DamagedEvents(name=self._name, at=self.at, problem="the check of a frame's length does not match")
        (size,) = _WORD.unpack_from(head)
        if size > LARGEST:
            raise EventTooLarge(name=self._name, size=size, at=self.at, limit=LARGEST)
        rest = self._exactly(size + _WORD.size, after=len(head))
        if rest is None:
            return None
        body = rest[: -_WORD.size]
        check = zlib.crc32(body, self._check)
        if _WORD.pack(check) != rest[-_WORD.size :]:
            raise DamagedEvents(name=self._name, at=self.at, problem="the check of a frame does not match")
        self._check = check
        self.at += len(head) + len(rest)
        return body

    def _started(self) -> bool:
        start = self._exactly(len(MAGIC) + _VERSION.size, begins=MAGIC)
        if start is None:
            return False
        (version,) = _VERSION.unpack_from(start, len(MAGIC))
        if version > VERSION:
            raise NewerEvents(name=self._name, form=f"version {version}", known=f"version {VERSION}")
        if version != VERSION:
            raise DamagedEvents(name=self._name, at=len(MAGIC), problem=f"there is no version {version}")
        self.at = len(start)
        return True

    def _exactly(self, size: int, *, after: int = 0, begins: bytes = b"") -> bytes | None:
        """Return `size` bytes, None if the end comes before, and then note how much of a frame was cut off.

        after: how many bytes of the frame were read already. begins: what the bytes must begin with, cut off or not.
        """
        pieces: list[bytes] = []
        missing = size
        while missing and (piece := self._read(missing)):
            pieces.append(piece)
            missing -= len(piece)
        found = b"".join(pieces)
        if not found.startswith(begins[: len(found)]):
            raise NotEvents(name=self._name, found=repr(found[: len(begins)]))
        if missing:
            self.torn = len(found) + after
            return None
        return found
