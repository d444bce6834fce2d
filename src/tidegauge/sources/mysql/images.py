"""Many rows at once: where in their bytes each value of each column is, found column by column.

An event has some images of rows, one after another. An image says which values are null, and then has the others;
where a value is over the next begins. So a step goes over one column of the first images of *all* events, then of
the second images, and so on: a few operations of numpy, however many events there are.

Invariant: every place that is returned lies within its event, or `BinlogBroken` is raised.

>>> data = np.frombuffer(bytes([0, 7, 0, 0, 0, 2, 104, 105]) + bytes([1, 1, 120]), np.uint8)
>>> found = read(data, np.array([0, 8]), np.array([8, 11]), [(4, 0), (0, 1)])
>>> found.message.tolist(), found.nulls.tolist(), found.starts[1].tolist(), found.sizes[1].tolist()
([0, 1], [[False, True], [False, False]], [6, 10], [2, 1])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tidegauge.errors.mysqlsource import BinlogBroken

__all__ = ["Images", "read"]

_PAD: Final = np.zeros(16, np.uint8)


@dataclass(frozen=True, slots=True)
class Images:
    """Images in the order of the log. message: which event each is in. begins: where it begins. number: 0 for the
    first one of an event. nulls, starts, sizes: of each column (first index) and image, whether it is null, and where
    its bytes are."""

    message: Any
    begins: Any
    number: Any
    nulls: Any
    starts: Any
    sizes: Any


def read(data: Any, starts: Any, ends: Any, columns: Sequence[tuple[int, int]]) -> Images:
    """Return the images of events whose images are at `[starts, ends)`.

    columns: of each its bytes, or 0 and the bytes of the length that goes before it. Raises `BinlogBroken`.
    """
    padded = np.concatenate([data, _PAD])
    last, nulls = len(data), (len(columns) + 7) // 8
    active = np.flatnonzero(starts < ends)
    at = starts[active]
    steps: list[tuple[Any, Any, Any, Any, Any]] = []
    while len(active):
        limit = ends[active]
        place = np.minimum(at + nulls, last)
        null = np.empty((len(columns), len(at)), np.bool_)
        begin = np.empty((len(columns), len(at)), np.int64)
        size = np.empty((len(columns), len(at)), np.int64)
        for column, (fixed, prefix) in enumerate(columns):
            gone = (padded[np.minimum(at + column // 8, last)] >> (column % 8) & 1).astype(np.bool_)
            length = np.full(len(at), fixed, np.int64)
            for byte in range(prefix):
                length += padded[place + byte].astype(np.int64) << (8 * byte)
            first = place + prefix
            place = np.minimum(np.where(gone, place, first + length), last + 1)
            null[column], begin[column], size[column] = gone, np.where(gone, 0, first), np.where(gone, 0, length)
        if (place > limit).any():
            raise BinlogBroken(event="rows", problem="its values are longer than it is")
        steps.append((active, at, null, begin, size))
        going = place < limit
        active, at = active[going], place[going]
    if not steps:
        none = np.empty((len(columns), 0), np.int64)
        return Images(none[0], none[0], none[0], none.astype(np.bool_), none, none)
    message = np.concatenate([step[0] for step in steps])
    number = np.repeat(np.arange(len(steps)), [len(step[0]) for step in steps])
    order = np.argsort(message, kind="stable")
    joined = [np.concatenate([step[part] for step in steps], axis=1)[:, order] for part in (2, 3, 4)]
    begins = np.concatenate([step[1] for step in steps])[order]
    return Images(message[order], begins, number[order], *joined)
