"""Many small transactions at once: which frames are whole ones, of nothing but changes, and what these say.

A server may send hundreds of thousands of small messages a second. So for many at once, a few operations of numpy
find where transactions begin and end, whose rows they change, and the bytes of each change.

    w header  B lsn at xid          begins it
    w header  I | U | D  oid  ...   changes a row, any number of times
    w header  C flags lsn end at    commits it

Invariant: only a transaction beyond doubt counts. All other frames, broken ones among them, are left to those who
look at each message.

>>> header = b"w" + bytes(24)
>>> begin, commit = struct.pack(">cQqI", b"B", 64, 0, 7), struct.pack(">cBQQq", b"C", 0, 64, 72, 0)
>>> frames = [header + one for one in (begin, b"I" + struct.pack(">I", 9) + b"N\\0\\0", commit, begin)]
>>> [found] = whole_transactions(frames)
>>> found.first, found.upto, found.lsns.tolist(), found.oids.tolist(), found.chunks("s", slice(None)).counts.tolist()
(0, 3, [64], [9], [1])
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.sources.database.values import gathered
from tidegauge.sources.postgres.chunks import ManyChunks
from tidegauge.sources.postgres.wire import BEGIN_SIZE, CHANGES, COMMIT_SIZE, EPOCH_2000

__all__ = ["WholeTransactions", "whole_transactions"]

_HEADER: Final = 25
"""Bytes of a frame before the message."""
_DATA, _BEGIN, _COMMIT = b"wBC"
_CHANGES: Final = np.isin(np.arange(256), list(CHANGES))
_TABLE: Final = struct.calcsize(">cI")
"""Bytes of a change up to where the number of its table ends."""
_PAD: Final = bytes(64)
"""Behind the frames: a look into one that is too short stays within the data."""


@dataclass(frozen=True, slots=True)
class WholeTransactions:
    """Transactions side by side. first, upto: their frames. lsns, ats, xids: of each transaction, see `Begin`.

    starts, sizes: of each change, where its message is in the data. oids: the number of its table. of: which of the
    transactions it is in.
    """

    first: int
    upto: int
    lsns: Any
    ats: Any
    xids: Any
    data: Any
    starts: Any
    sizes: Any
    oids: Any
    of: Any

    @property
    def largest(self) -> int:
        """Bytes of the changes of the largest one."""
        return int(np.bincount(self.of, self.sizes).max(initial=0))

    def chunks(self, shape: str, changes: Any) -> ManyChunks:
        """Return some of the changes, which are of one table, as a chunk for each transaction."""
        of, sizes = self.of[changes], self.sizes[changes]
        cuts = np.concatenate([[0], np.flatnonzero(np.diff(of)) + 1, [len(of)]])
        _, offsets, bytes_of = gathered(self.data, self.starts[changes], sizes, np.ones(len(of), np.bool_)).buffers()
        ends = np.frombuffer(offsets, np.int32)[cuts]
        lengths = [None, pa.py_buffer((4 * cuts).astype(np.int32)), pa.py_buffer(sizes.astype("<u4"))]
        one = of[cuts[:-1]]
        return ManyChunks(
            shape=shape,
            lsns=self.lsns[one],
            ats=self.ats[one],
            counts=np.diff(cuts),
            lengths=pa.Array.from_buffers(pa.binary(), len(one), lengths),
            data=pa.Array.from_buffers(pa.binary(), len(one), [None, pa.py_buffer(ends), bytes_of]),
            size=int(sizes.sum()),
        )


def whole_transactions(frames: Sequence[bytes]) -> list[WholeTransactions]:
    """Return the whole transactions among frames, in their order: those that stand side by side together."""
    lengths = np.fromiter(map(len, frames), np.int64, len(frames))
    data = np.frombuffer(b"".join([*frames, _PAD]), np.uint8)
    starts = np.cumsum(lengths) - lengths
    messages, sizes = starts + _HEADER, lengths - _HEADER
    kinds = np.where((data[starts] == _DATA) & (sizes > 0), data[messages], 0)
    changes = _CHANGES[kinds] & (sizes >= _TABLE)
    begins, commits = (kinds == _BEGIN) & (sizes == BEGIN_SIZE), (kinds == _COMMIT) & (sizes == COMMIT_SIZE)
    marks = np.flatnonzero(~changes)
    found = np.flatnonzero(begins[marks[:-1]] & commits[marks[1:]])
    firsts, lasts = marks[found], marks[found + 1]
    lsns = _big(data, messages[firsts] + 1, 8)
    same = (lsns == _big(data, messages[lasts] + 2, 8)) & (lsns >= 0)
    firsts, lasts, lsns = firsts[same], lasts[same], lsns[same]
    ats = _big(data, messages[firsts] + 9, 8) + EPOCH_2000
    xids = _big(data, messages[firsts] + 17, 4)
    cuts = np.flatnonzero(firsts[1:] != lasts[:-1] + 1) + 1
    made = []
    for lower, upper in pairwise([0, *cuts.tolist(), len(firsts)]):
        if lower == upper:
            continue
        first, upto = int(firsts[lower]), int(lasts[upper - 1]) + 1
        at = first + np.flatnonzero(changes[first:upto])
        of = np.repeat(np.arange(upper - lower), (lasts - firsts - 1)[lower:upper])
        places = (lsns[lower:upper], ats[lower:upper], xids[lower:upper])
        oids = _big(data, messages[at] + 1, 4)
        made.append(WholeTransactions(first, upto, *places, data, messages[at], sizes[at], oids, of))
    return made


def _big(data: Any, at: Any, width: int) -> Any:
    """Return the numbers of this width at some places; those of 8 bytes have a sign."""
    kind = ">i8" if width == 8 else f">u{width}"
    return np.ascontiguousarray(data[at[:, None] + np.arange(width)]).view(kind)[:, 0].astype(np.int64)
