"""Large values that an update left out, taken from an earlier change of the same row in the same transaction.

The server sends a large value only where it changes. A transaction that inserts a row and then updates it, as many
applications do, has the value all the same: in the insert. A row is known by its replica identity, also where an
update changes that.

Invariant: the result depends on the chunk alone, which is cut by the messages of its transaction, and not on the
epoch, nor on other chunks that are decoded with it. So it is the same however often it is read.

>>> kinds = np.frombuffer(b"ttutu", np.uint8)
>>> cells = Cells(kinds.copy(), np.array([0, 10, 0, 30, 0]), np.array([9, 9, 0, 9, 0]))
>>> keys = Cells(np.frombuffer(b"ttttt", np.uint8), np.array([0, 1, 0, 1, 0]), np.ones(5, np.int64))
>>> words, seconds = np.array([INSERTED, INSERTED, UPDATED, UPDATED, UPDATED]), np.zeros(5, np.int64)
>>> fill(np.frombuffer(b"ab", np.uint8), np.array([7, 7, 7, 7, 8]), words, seconds, [keys], [cells])
>>> cells.kinds.tobytes(), cells.starts.tolist()
(b'ttttu', [0, 10, 0, 30, 0])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tidegauge.sources.postgres.tuples import TEXT, UNCHANGED, Cells

__all__ = ["DELETED", "INSERTED", "MOST", "UPDATED", "fill"]

INSERTED, UPDATED, DELETED = range(3)
MOST: Final = 256 << 20
"""Bytes that are put in for one transaction: a large value may be left out any number of times."""


def fill(data: Any, lsns: Any, words: Any, seconds: Any, keys: Sequence[Cells], columns: Sequence[Cells]) -> None:
    """Put the known values into the unchanged cells of `columns`; others stay unchanged.

    lsns, words, seconds: of each row, its transaction, what it says, and 1 where it is the new row of a change whose
    old one is before it. keys: the cells of the replica identity.
    """
    missing = np.logical_or.reduce([cells.kinds == UNCHANGED for cells in columns])
    if not missing.any() or not keys:
        return
    bytes_of = memoryview(data)
    rows = np.flatnonzero(np.isin(lsns, np.unique(lsns[missing])))
    known: dict[tuple[bytes, ...] | None, int] = {}
    lsn, size, carried = -1, 0, None
    for row in rows.tolist():
        if lsns[row] != lsn:
            known, lsn, size = {}, int(lsns[row]), 0
        key = _key(bytes_of, keys, row)
        if words[row] == DELETED:
            carried = known.pop(key, None)
            continue
        source = known.get(key) if words[row] == UPDATED else carried if seconds[row] else None
        if source is not None:
            for cells in columns:
                there = cells.kinds[source] != UNCHANGED and size + cells.sizes[source] <= MOST
                if cells.kinds[row] == UNCHANGED and there:
                    size += int(cells.sizes[source])
                    for part in (cells.kinds, cells.starts, cells.sizes):
                        part[row] = part[source]
        if key is not None:  # else it is itself large, and was left out
            known[key] = row


def _key(data: memoryview, keys: Sequence[Cells], row: int) -> tuple[bytes, ...] | None:
    if any(cells.kinds[row] != TEXT for cells in keys):
        return None
    return tuple(bytes(data[cells.starts[row] : cells.starts[row] + cells.sizes[row]]) for cells in keys)
