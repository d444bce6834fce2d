"""The changes of a growing log by partition, extended with new ones.

Invariant: together, the parts hold each change of the log once. Positions of a partition only grow, so the first part
with a position beyond the given one decides.

For one position at a time there are two parts: the index of the changes that were there when the table was loaded,
and an array for each partition of later ones. An append costs O(1) a change.

For many at once there are *levels*: indexes of consecutive parts of the log, made on demand. New changes become a
level, merged with the levels before it that are less than eight times as large. So there are O(log n) levels, and a
change is indexed O(log n) times at most. Rows that one level does not hold go on to the next.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidegauge.remap.index import NOWHERE, Index, Vector
from tidegauge.remap.log import ChangeLog

__all__ = ["Lookup"]

_SMALL: Final = 4096
"""Changes of a level that it is no use to keep apart."""
_LARGER: Final = 8
_NOTHING: Final = Index(*np.empty((4, 0), np.int64))


class Lookup:
    """Answers for all changes of a log, also those that a reader of a prefix must not see: the epoch tells."""

    __slots__ = ("_base", "_levels", "_log", "_tails")

    def __init__(self, log: ChangeLog) -> None:
        self._log: Final = log
        self._base: Final = _index(log, 0, log.length)
        self._levels: tuple[tuple[int, int, Index], ...] = ((0, log.length, self._base),)
        self._tails: Final[dict[int, tuple[array[int], array[int]]]] = {}

    def append(self, number: int, epoch: int, position: int) -> None:
        """Take in a change that the log has taken in."""
        tail = self._tails.get(number)
        if tail is None:
            tail = self._tails[number] = array("q"), array("q")
        epochs, positions = tail
        epochs.append(epoch)  # first: who finds the position finds the epoch
        positions.append(position)

    def epoch_of(self, number: int, position: int) -> int | None:
        """Return the epoch of the first change of a partition that is beyond a position, or None."""
        found = self._base.epoch_of(number, position)
        if found is None and (tail := self._tails.get(number)) is not None:
            epochs, positions = tail
            slot = bisect_right(positions, position)
            found = epochs[slot] if slot < len(positions) else None
        return found

    def between(self, number: int, lower: int, upper: int) -> tuple[Vector, Vector]:
        """Return positions and epochs of the changes of a partition that `[lower, upper)` came in by, in order."""
        positions, epochs = self._base.between(number, lower, upper)
        if (tail := self._tails.get(number)) is not None and (len(positions) == 0 or positions[-1] < upper):
            later, theirs = tail[1], tail[0]
            first = bisect_right(later, lower)
            last = min(bisect_left(later, upper) + 1, len(later))
            positions = np.concatenate((positions, np.array(later[first:last], np.int64)))
            epochs = np.concatenate((epochs, np.array(theirs[first:last], np.int64)))
        return positions, epochs

    def epochs_of(self, length: int, numbers: Vector, codes: npt.NDArray[Any], positions: Vector) -> Vector:
        """Return the epoch of each row by the first `length` changes, perhaps by later ones; see `Index`."""
        (_, _, oldest), *others = self._levels_of(length)
        found = oldest.epochs_of(numbers, codes, positions)
        for _, _, level in others:
            rows = np.flatnonzero(found == NOWHERE)
            if len(rows) == 0:
                break
            found[rows] = level.epochs_of(numbers, codes[rows], positions[rows])
        return found

    def _levels_of(self, length: int) -> tuple[tuple[int, int, Index], ...]:
        levels = self._levels
        lower = levels[-1][1]
        if lower < length:
            while levels and levels[-1][1] - levels[-1][0] < max(_SMALL, _LARGER * (length - lower)):
                lower = levels[-1][0]
                levels = levels[:-1]
            self._levels = levels = (*levels, (lower, length, _index(self._log, lower, length)))
        return levels


def _index(log: ChangeLog, first: int, last: int) -> Index:
    if first == last:
        return _NOTHING
    epochs, numbers, befores, positions = log.columns(first, last)
    return Index(numbers, befores, positions, epochs)
