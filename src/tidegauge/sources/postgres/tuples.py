"""Many changes at once: where in their bytes each value of each column is, found column by column.

A change is read from left to right, since a value says how long it is, and the next one begins there. So one step
goes over one column of *all* changes: a few operations of numpy for a column, however many changes there are.

    I  oid  N tuple                          insert
    U  oid  [K tuple | O tuple]  N tuple     update, with the old key where that changed, or with the old row
    D  oid  K tuple | O tuple                delete
    tuple   count of columns, then for each  n  null | u  unchanged, and not sent | t length bytes

Invariant: every place that is returned lies within its message, or `ReplicationBroken` is raised.

>>> one = b"I" + bytes(4) + b"N" + bytes([0, 2]) + b"t" + bytes([0, 0, 0, 1]) + b"7" + b"n"
>>> found = read(np.frombuffer(one, np.uint8), np.array([0]), np.array([len(one)]), 2)
>>> found.new.kinds.tolist(), found.new.starts[0].tolist(), found.new.sizes[0].tolist()
([[116], [110]], [13], [1])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from tidegauge.errors.postgressource import ReplicationBroken

__all__ = ["DELETED", "INSERTED", "KEY", "NULL", "OLD", "TEXT", "UNCHANGED", "UPDATED", "Cells", "Changes", "read"]

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

INSERTED, UPDATED, DELETED = b"IUD"
KEY, OLD, NEW = b"KON"
NULL, UNCHANGED, TEXT = b"nut"
_PAD: Final = np.zeros(8, np.uint8)


@dataclass(frozen=True, slots=True)
class Cells:
    """Values of some rows: of each column (first index) and row (second), its kind, where its bytes are, how many.

    Or of one column: then rows are the only index.
    """

    kinds: Bytes
    starts: Ints
    sizes: Ints


@dataclass(frozen=True, slots=True)
class Changes:
    """What some messages say. kinds: of each message. marks: `K` or `O` where it has an old tuple, else `N`.

    old, new: the cells of the messages that have them; `with_old` and `with_new` are their indices.
    """

    kinds: Bytes
    marks: Bytes
    with_old: Ints
    with_new: Ints
    old: Cells
    new: Cells


def read(data: Bytes, starts: Ints, ends: Ints, columns: int) -> Changes:
    """Return the changes of messages `[starts, ends)` of one table with that number of columns.

    Raises `ReplicationBroken`.
    """
    padded = np.concatenate([data, _PAD])
    if (ends - starts < 8).any():
        raise _broken(padded, starts, ends, ends - starts < 8)
    kinds, marks = padded[starts], padded[starts + 5]
    marked = np.where(kinds == INSERTED, marks == NEW, (marks == KEY) | (marks == OLD))
    wrong = ~(marked | ((kinds == UPDATED) & (marks == NEW)))
    if wrong.any():
        raise _broken(padded, starts, ends, wrong)
    with_old = np.flatnonzero(marks != NEW)
    with_new = np.flatnonzero(kinds != DELETED)
    old, after_old = _walk(padded, starts[with_old] + 6, ends[with_old], columns)
    at = starts + 6
    over = starts.copy()
    over[with_old] = after_old
    both = with_old[kinds[with_old] == UPDATED]
    if (padded[np.minimum(over[both], len(data))] != NEW).any():
        raise _broken(padded, starts, ends, np.isin(np.arange(len(starts)), both))
    at[both] = over[both] + 1
    new, after_new = _walk(padded, at[with_new], ends[with_new], columns)
    over[with_new] = after_new
    if (over != ends).any():
        raise _broken(padded, starts, ends, over != ends)
    return Changes(kinds, marks, with_old, with_new, old, new)


def _walk(data: Bytes, at: Ints, ends: Ints, columns: int) -> tuple[Cells, Ints]:
    """Return the cells of tuples that begin at some places, and where each is over."""
    rows = len(at)
    kinds = np.empty((columns, rows), np.uint8)
    starts = np.empty((columns, rows), np.int64)
    sizes = np.empty((columns, rows), np.int64)
    last = len(data) - len(_PAD)
    count = (data[at].astype(np.int64) << 8) | data[at + 1]
    wrong = count != columns
    place = at + 2
    for column in range(columns):
        place = np.minimum(place, last)
        kind = data[place]
        text = kind == TEXT
        size = np.zeros(rows, np.int64)
        for byte in range(1, 5):
            size = (size << 8) | data[place + byte]
        size = np.where(text, size, 0)
        wrong |= ~(text | (kind == NULL) | (kind == UNCHANGED))
        kinds[column], starts[column], sizes[column] = kind, place + 5, size
        place = place + 1 + np.where(text, 4 + size, 0)
        wrong |= place > ends
    if wrong.any():
        raise _broken(data, at, ends, wrong)
    return Cells(kinds, starts, sizes), place


def _broken(data: Bytes, starts: Ints, ends: Ints, wrong: Any) -> ReplicationBroken:
    first = int(np.flatnonzero(wrong)[0])
    shown = data[starts[first] : min(ends[first], starts[first] + 40)].tobytes()
    return ReplicationBroken(message=repr(shown), problem="its values do not add up to its length, or to its columns")
