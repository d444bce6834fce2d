"""A bound object as a stream: read by ranges, each of the very version that was bound.

Invariant: the bytes that a stream gives are those of the object with the bound ETag; where that one is gone, or
another one has taken its place, the read raises, and says which of the two it was.

A stream that is read in order asks for more and more at once, from 64 KiB up to 8 MiB; one that is read here and
there asks for the wanted bytes alone. So a large object costs few requests, a footer one, and memory is bounded by
one request.

>>> window(at=0, wanted=100, last=range(0), end=1 << 30), window(at=65536, wanted=100, last=range(65536), end=1 << 30)
(65536, 131072)
>>> window(at=0, wanted=100, last=range(0), end=300)
300
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO, Final, cast

from tidegauge.errors.objects import ObjectOverwritten
from tidegauge.errors.sources import FileGone
from tidegauge.objects.listing import Listed, Overwritten, one, read_version
from tidegauge.sources.file.identity import FileFacts

__all__ = ["object_facts", "open_object", "require", "window"]

_FIRST: Final = 64 << 10
_MOST: Final = 8 << 20


def object_facts(listed: Listed, *, whole: bool, first: str = "", packed: int = 0) -> FileFacts:
    """Return what a listed object is known by."""
    return FileFacts(
        path=listed.path,
        first=first or listed.path,
        dev=0,
        ino=0,
        born=0,
        modified=listed.modified,
        head=0,
        digest="",
        whole=int(whole),
        size=listed.size,
        packed=packed,
        final=1,
        etag=listed.etag,
    )


def require(facts: FileFacts, *, lower: int, upper: int) -> None:
    """Raise `FileGone` or `ObjectOverwritten` unless the object that is known is there."""
    _fetched(facts, 0, 1, lower=lower, upper=upper)


def open_object(facts: FileFacts, *, lower: int = 0, upper: int | None = None) -> BinaryIO:
    """Return a stream of an object. lower, upper: the range that it is wanted for, by its positions.

    Nothing is asked before it is read, but of a log that was compressed, whose positions are not those of the object.
    Raises `FileGone`.
    """
    end = facts.size if upper is None else upper
    size = _size(facts, lower=lower, upper=end) if facts.packed else facts.size
    wanted = size if facts.whole or facts.packed else end
    return cast("BinaryIO", io.BufferedReader(_ObjectStream(facts, size=size, lower=lower, upper=wanted), _FIRST))


def _size(facts: FileFacts, *, lower: int, upper: int) -> int:
    if (found := one(facts.path)) is None:
        raise FileGone(path=facts.path, lower=lower, upper=upper)
    return found.size


def _fetched(facts: FileFacts, start: int, length: int, *, lower: int, upper: int) -> memoryview:
    try:
        return memoryview(read_version(facts.path, facts.etag, start, length))
    except FileNotFoundError:
        raise FileGone(path=facts.path, lower=lower, upper=upper) from None
    except Overwritten as error:
        found = error.found or "not told"
        raise ObjectOverwritten(path=facts.path, bound=upper, expected=facts.etag, found=found) from None


def window(*, at: int, wanted: int, last: range, end: int) -> int:
    """Return how many bytes to ask for at a position. last: those that were asked for last. end: of all there are."""
    ahead = min(2 * len(last), _MOST) if last and at == last.stop else _FIRST
    return min(max(wanted, ahead), end - at)


class _ObjectStream(io.RawIOBase):
    """The raw stream beneath the buffer."""

    def __init__(self, facts: FileFacts, *, size: int, lower: int, upper: int) -> None:
        self._facts, self._size, self._lower, self._upper = facts, size, lower, upper
        self._last = range(0)
        self._data = memoryview(b"")
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        room, at = memoryview(buffer).cast("B"), self._at
        wanted = min(len(room), self._size - at)
        if wanted <= 0:
            return 0
        if at not in self._last:
            end = self._upper if at < self._upper else self._size  # what is behind the range is not wanted
            length = window(at=at, wanted=min(wanted, end - at), last=self._last, end=end)
            self._data = _fetched(self._facts, at, length, lower=self._lower, upper=self._upper)
            self._last = range(at, at + length)
        found = self._data[at - self._last.start :][: len(room)]
        room[: len(found)] = found
        self._at += len(found)
        return len(found)
