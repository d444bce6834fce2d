"""One partition of a log in memory: chunks of records in the order of their offsets, with holes between them.

Invariant: offsets ascend. The records that retention took stay below `start`, for the checks of a life; a reader
asks for `start` first.

>>> mine = LogPartition()
>>> mine.add(LogChunk(range(0, 3), pa.record_batch({"n": [1, 2, 3]}), keys=[b"a", b"b", b"a"]))
>>> mine.compact(frozenset())
>>> [(list(chunk.offsets), chunk.rows["n"].to_pylist()) for chunk, _, _ in mine.held(0, 3)], mine.end
([([1, 2], [2, 3])], 3)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

__all__ = ["UNTIMED", "LogChunk", "LogPartition"]

UNTIMED: Final = -1


@dataclass(slots=True)
class LogChunk:
    """Records of one append. rows: None for a bad one, which has `raw`, and `why`: the code and the problem.

    keys: None where no record has one. time: milliseconds since 1970. transaction: the one that they are part of.
    """

    offsets: Sequence[int]
    rows: pa.RecordBatch | None
    time: int = UNTIMED
    keys: Sequence[bytes | None] | None = None
    raw: bytes = b""
    why: tuple[str, str] = ("", "")
    transaction: int | None = None

    def without(self, dropped: Collection[int]) -> LogChunk:
        """Return the chunk without some offsets."""
        kept = [i for i, offset in enumerate(self.offsets) if offset not in dropped]
        return LogChunk(
            offsets=[self.offsets[i] for i in kept],
            rows=None if self.rows is None else self.rows.take(pa.array(kept, pa.int64())),
            time=self.time,
            keys=None if self.keys is None else [self.keys[i] for i in kept],
            raw=self.raw,
            why=self.why,
            transaction=self.transaction,
        )


@dataclass(slots=True)
class LogPartition:
    """The offsets `[start, end)`. firsts: the first offset of each chunk. open: that of each open transaction.

    markers: the offset and the time of each transaction's end. Nobody reads one, but it has a time as records have.
    """

    start: int = 0
    end: int = 0
    chunks: list[LogChunk] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    markers: list[tuple[int, int]] = field(default_factory=list)

    @property
    def stable(self) -> int:
        """The last stable offset: no open transaction has a record before it that retention has left.

        It is where an append begins. If retention cuts an append of an open transaction, it is before `start`.
        """
        if not self.open:
            return self.end
        first = max(self.start, min(self.open.values()))
        at = bisect_right(self.firsts, first) - 1
        return self.firsts[at] if at >= 0 and first in self.chunks[at].offsets else first

    def add(self, chunk: LogChunk) -> None:
        """Put a chunk at the end."""
        if chunk.offsets:
            self.chunks.append(chunk)
            self.firsts.append(chunk.offsets[0])
            self.end = max(self.end, chunk.offsets[-1] + 1)
            if chunk.transaction is not None:
                self.open.setdefault(chunk.transaction, chunk.offsets[0])

    def finish(self, transaction: int, *, time: int = UNTIMED) -> None:
        """Write the marker that ends a transaction, if it wrote here."""
        if self.open.pop(transaction, None) is not None:
            self.markers.append((self.end, time))
            self.end += 1

    def trim(self, to: int) -> None:
        """Let retention take the records before an offset, at most all."""
        self.start = max(self.start, min(to, self.end))

    def compact(self, aborted: Collection[int]) -> None:
        """Keep the newest stable record of each key, and all without a key."""
        newest: dict[bytes, int] = {}
        dropped: set[int] = set()
        for chunk in self.chunks:
            if chunk.keys is not None and chunk.transaction not in aborted and chunk.offsets[0] < self.stable:
                for offset, key in zip(chunk.offsets, chunk.keys, strict=True):
                    if key is not None:
                        dropped.add(newest.get(key, offset))
                        newest[key] = offset
        dropped -= {*newest.values()}
        self._hold(one if dropped.isdisjoint(one.offsets) else one.without(dropped) for one in self.chunks)

    def cut(self, to: int) -> None:
        """Take back the records from an offset on. A transaction that has ended stays ended."""
        self.end = min(self.end, max(0, to))
        self.start = min(self.start, self.end)
        self.markers = [marker for marker in self.markers if marker[0] < self.end]
        self.open = {transaction: first for transaction, first in self.open.items() if first < self.end}
        gone = range(self.end, max((chunk.offsets[-1] + 1 for chunk in self.chunks), default=0))
        self._hold([one if one.offsets[-1] < self.end else one.without(gone) for one in self.chunks])

    def held(self, lower: int, upper: int) -> Iterator[tuple[LogChunk, int, int]]:
        """Yield the chunks with records in a range, each with which of its records these are."""
        for chunk in self.chunks[max(0, bisect_right(self.firsts, lower) - 1) : bisect_left(self.firsts, upper)]:
            first, last = bisect_left(chunk.offsets, lower), bisect_left(chunk.offsets, upper)
            if first < last:
                yield chunk, first, last

    def since(self, time: int) -> int | None:
        """Return the first offset with a record or a marker of a time or later, None where there is none."""
        ended = [offset for offset, at in self.markers if at >= time and offset >= self.start]
        for chunk in self.chunks:
            if chunk.time >= time and chunk.offsets[-1] >= self.start:
                return min([max(self.start, chunk.offsets[0]), *ended])
        return min(ended, default=None)

    def _hold(self, chunks: Iterable[LogChunk]) -> None:
        kept = [chunk for chunk in chunks if chunk.offsets]
        self.chunks, self.firsts = kept, [chunk.offsets[0] for chunk in kept]
