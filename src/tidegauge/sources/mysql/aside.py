"""The chunks of tables that were added and have not joined: passed over, or set aside for when they do.

    passed over    the first rows are not being read, or a file has the chunks already
    set aside      they are being read: what changes meanwhile is given with them
    joined         given, as those of all other tables

Invariant: a stream that was never passed over is given.

>>> aside = ChunksAside()
>>> aside.pass_over("users")
>>> aside.passes("users", 7), aside.passes("orders", 7)
(True, False)
>>> aside.expect("users")
>>> aside.passes("users", 7), aside.takes("users", []), aside.takes("orders", []), aside.taken()
(False, True, False, {'users': []})
>>> aside.join("users")
>>> aside.passes("users", 7), aside.takes("users", [])
(False, False)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidegauge.sources.mysql.chunks import FILED, RowsChunk

__all__ = ["ChunksAside"]

_NEVER: Final = 1 << 63
"""A number that no transaction has."""


class ChunksAside:
    """Which streams have not joined, and the chunks of those that are expected to."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes of the chunks that are set aside."""
        self.filed = False
        """Whether some of these are in files, which go when the others have their transactions."""
        self._before: Final[dict[str, int]] = {}
        """The number of the transaction from which on the chunks of a stream are given."""
        self._chunks: Final[dict[str, list[RowsChunk]]] = {}

    def pass_over(self, stream: str, *, before: int = _NEVER) -> None:
        """Take no chunks of a stream from transactions before a number, and forget those that are set aside."""
        self.join(stream)
        self._before[stream] = before

    def expect(self, stream: str) -> None:
        """Set aside the chunks of a stream from here on."""
        self._chunks[stream] = []

    def join(self, stream: str) -> None:
        """Give the chunks of a stream from here on."""
        self._before.pop(stream, None)
        self.size -= sum(len(one.data) for one in self._chunks.pop(stream, []))

    def passes(self, stream: str, number: int) -> bool:
        """Whether nobody wants what the transaction of a number does to the table of a stream."""
        return stream not in self._chunks and number < self._before.get(stream, 0)

    def takes(self, stream: str, chunks: Sequence[RowsChunk]) -> bool:
        """Set aside the chunks of a transaction, and return True, if they are to be; else return False."""
        if stream not in self._chunks:
            return False
        self._chunks[stream] += chunks
        self.filed |= any(one.kind == FILED for one in chunks)
        self.size += sum(len(one.data) for one in chunks)
        return True

    def taken(self) -> dict[str, list[RowsChunk]]:
        """Return the chunks that are set aside, and forget them."""
        found = dict(self._chunks)
        self._chunks.update({stream: [] for stream in found})
        self.size, self.filed = 0, False
        return found
