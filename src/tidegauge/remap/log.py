"""The changes of a remap table in the order of their binding, and the frontier after any number of them.

Invariant: the log only grows. Its first `n` changes never change again, so keeping `n` gives you an immutable log of
`n` changes, at no cost, while others append.

A change is `(epoch, number, before, position)`: at `epoch` the partition of that number moved from `before` to
`position`. Partitions are numbered in the order of their first changes, so the first `n` changes have moved exactly
the partitions `0 .. k - 1` for some `k`, and a frontier is a vector of `k` positions, none of them 0.

Frontiers. A *mark* keeps the whole vector after some number of changes. Marks are `max(256, k / 8)` changes apart.
The vector after `n` changes is a copy of the last mark before, with at most that many changes replayed on it: O(k) to
copy and to replay, a call each. A mark takes 8k bytes for at least k / 8 changes, which is 64 bytes a change however
many partitions there are, and O(1) a change to make. A change itself takes 32 bytes, up to twice that while it grows.

>>> log = ChangeLog()
>>> [log.append(0, "p0", 5), log.append(0, "p1", 2), log.append(3, "p0", 9)]
[0, 1, 0]
>>> log.positions_after(2), log.positions_after(3), log.until(3)
({'p0': 5, 'p1': 2}, {'p0': 9, 'p1': 2}, 2)
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["ChangeLog", "Vector"]

Vector = npt.NDArray[np.int64]

_EPOCH, _NUMBER, _BEFORE, _POSITION = range(4)
_APART: Final = 256
"""Changes between two marks, at the least: replaying this number takes no longer than copying a few."""


class ChangeLog:
    """The changes, the names of the partitions, and the marks. One writer; any number of readers of a prefix."""

    __slots__ = ("_cells", "_marks", "_newest", "_vectors", "length", "names", "numbers")

    def __init__(self) -> None:
        self._cells = np.empty((4, 0), np.int64)
        self._newest = np.empty(0, np.int64)
        self._marks: Final[list[int]] = [0]
        self._vectors: Final[list[Vector]] = [np.empty(0, np.int64)]
        self.length = 0
        self.names: Final[list[str]] = []
        self.numbers: Final[dict[str, int]] = {}

    @classmethod
    def of(cls, names: list[str], epochs: Vector, numbers: Vector, befores: Vector, positions: Vector) -> ChangeLog:
        """Return the log of changes that obey the rules above: `names[i]` is the partition numbered `i`."""
        log = cls()
        log._cells = np.stack((epochs, numbers, befores, positions))
        log.length = len(epochs)
        log.names.extend(names)
        log.numbers.update(zip(names, range(len(names)), strict=True))
        log._newest = log._replay(0, log.length)
        while log.length - log._marks[-1] >= (apart := _apart(len(log._vectors[-1]))):
            log._vectors.append(log.vector(log._marks[-1] + apart))
            log._marks.append(log._marks[-1] + apart)
        return log

    def prefix(self, length: int) -> ChangeLog:
        """Return a log of its own of the first `length` changes."""
        columns = self.columns(0, length)
        return ChangeLog.of(self.names[: int(columns[_NUMBER].max(initial=-1)) + 1], *columns)

    def append(self, epoch: int, partition: str, position: int) -> int:
        """Append a change, whose epoch is not less than the last and whose position is beyond the partition's.

        Returns the number of the partition.
        """
        if self.length == self._cells.shape[1]:
            self._cells = _grown(self._cells)
        number = self.numbers.get(partition)
        if number is None:
            number = len(self.names)
            if number == len(self._newest):
                self._newest = _grown(self._newest)
            self._newest[number] = 0
            self.names.append(partition)
            self.numbers[partition] = number
        cell = self._cells[:, self.length]
        cell[_EPOCH], cell[_NUMBER], cell[_BEFORE], cell[_POSITION] = epoch, number, self._newest[number], position
        self._newest[number] = position
        self.length += 1
        if self.length - self._marks[-1] >= _apart(len(self.names)):
            self._vectors.append(self._newest[: len(self.names)].copy())
            self._marks.append(self.length)
        return number

    def newest(self, partition: str) -> int:
        """The position of a partition after all changes."""
        number = self.numbers.get(partition)
        return 0 if number is None else int(self._newest[number])

    def until(self, epoch: int) -> int:
        """How many changes were bound before an epoch."""
        return int(self._cells[_EPOCH, : self.length].searchsorted(epoch))

    def columns(self, first: int, last: int) -> Vector:
        """Epochs, numbers, befores and positions of the changes `[first, last)`: four rows, not to be written to."""
        return self._cells[:, first:last]

    def vector(self, length: int) -> Vector:
        """The positions of the partitions, by number, after the first `length` changes."""
        mark = bisect_right(self._marks, length) - 1
        return self._replay(mark, length)

    def positions_after(self, length: int) -> dict[str, int]:
        """The same by name."""
        return dict(zip(self.names, self.vector(length).tolist(), strict=False))

    def _replay(self, mark: int, length: int) -> Vector:
        first, start = self._marks[mark], self._vectors[mark]
        _, numbers, _, positions = self.columns(first, length)
        known = max(len(start), int(numbers.max(initial=-1)) + 1)
        vector = np.zeros(known, np.int64)
        vector[: len(start)] = start
        np.maximum.at(vector, numbers, positions)  # the last position of a partition is its largest
        return vector


def _apart(partitions: int) -> int:
    return max(_APART, partitions // 8)


def _grown(cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return an array with twice the room in its last dimension. Readers of the old one go on with that."""
    more = np.empty((*cells.shape[:-1], max(64, 2 * cells.shape[-1])), np.int64)
    more[..., : cells.shape[-1]] = cells
    return more
