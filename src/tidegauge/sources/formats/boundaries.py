r"""Where records end: at a newline, or, where there are quotes, at a newline that is outside of them.

A newline is outside quotes iff the number of quote characters between it and any record boundary before it is even.
RFC 4180 makes this exact: a quoted field begins and ends with a quote, and a quote inside one is written twice, so
every field holds an even number. So one bit is all the state that a scan carries from one block to the next.

Invariant: an offset is a boundary or not because of the bytes before it; it does not matter from which boundary the
scan began.

>>> Boundaries(quote=None).ends(b'a\n"b\nc"\n').tolist(), Boundaries(quote=b'"').ends(b'a\n"b\nc"\n').tolist()
([2, 5, 8], [2, 8])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["SCAN_BYTES", "Boundaries", "Ints", "read_exactly"]

Ints: TypeAlias = npt.NDArray[np.int64]

SCAN_BYTES: Final = 1 << 20
"""How much of a file a scan holds at once."""

_LF: Final = 10


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The rule for the ends of records. `quote` is one byte, or None where newlines always end a record."""

    quote: bytes | None

    def ends(self, data: bytes, *, inside: bool = False) -> Ints:
        """Return the offset just past each record end in `data`, which begins inside quotes or at a boundary."""
        characters = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(characters == _LF)
        if self.quote is not None and self.quote in data:
            quotes = np.flatnonzero(characters == ord(self.quote))
            newlines = newlines[(np.searchsorted(quotes, newlines) + inside) & 1 == 0]
        elif inside:
            return np.empty(0, np.int64)
        return newlines + 1

    def inside_after(self, data: bytes, *, inside: bool = False) -> bool:
        """Return whether what follows `data` is inside quotes."""
        if self.quote is None:
            return False
        count = np.count_nonzero(np.frombuffer(data, np.uint8) == ord(self.quote))
        return inside ^ bool(count & 1)

    def last(self, stream: BinaryIO, lower: int, upper: int, *, size: int = SCAN_BYTES) -> int:
        """Return the last boundary in `[lower, upper]`, `lower` if there is no other.

        Without quotes the file is read backwards from `upper`, as far as the last newline. With quotes it is read
        once from `lower`, keeping one bit for each block, and then backwards.
        """
        starts = range(lower, upper, size)
        inside = bytearray(len(starts))
        if self.quote is not None:
            now = False
            for i, start in enumerate(starts):
                inside[i] = now
                now = self.inside_after(_at(stream, start, min(size, upper - start)), inside=now)
        for i in reversed(range(len(starts))):
            found = self.ends(_at(stream, starts[i], min(size, upper - starts[i])), inside=bool(inside[i]))
            if len(found):
                return starts[i] + int(found[-1])
        return lower

    def cuts(self, stream: BinaryIO, lower: int, upper: int, size: int, *, scan: int = SCAN_BYTES) -> Iterator[int]:
        """Yield boundaries strictly inside `(lower, upper)`, each the first `size` bytes or more beyond the last.

        Without quotes the bytes between are not read.
        """
        at, target, inside = lower, lower + size, False
        while target < upper and at < upper:
            if self.quote is None:
                # The byte before the target decides whether the target is a boundary.
                at = max(at, target - 1)
            chunk = _at(stream, at, min(scan, upper - at))
            if at + len(chunk) >= target:
                found = self.ends(chunk, inside=inside) + at
                while (i := int(np.searchsorted(found, target))) < len(found) and found[i] < upper:
                    yield int(found[i])
                    target = int(found[i]) + size
            inside = self.inside_after(chunk, inside=inside)
            at += len(chunk)


def _at(stream: BinaryIO, position: int, size: int) -> bytes:
    stream.seek(position)
    chunk = read_exactly(stream, size)
    if len(chunk) < size:
        raise EOFError(f"the file ends at byte {position + len(chunk)}, before {position + size}")
    return chunk


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """Return the next `size` bytes, or fewer at the end of the stream only."""
    chunk = stream.read(size)
    if len(chunk) == size or not chunk:
        return chunk
    parts, have = [chunk], len(chunk)
    while have < size and (chunk := stream.read(size - have)):
        parts.append(chunk)
        have += len(chunk)
    return b"".join(parts)
