"""The changes of a remap table: in the order of their binding, with the frontier after any number of them, and by
partition.

Invariant: the log only grows. Its first `n` changes never change again, so keeping `n` gives you an immutable log of
`n` changes, at no cost, while others append. Stored rows become a log on whole columns, or `DamagedStore` says which
row does not obey this.

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

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidegauge.errors.store import DamagedStore
from tidegauge.remap.index import NOWHERE, Index, Vector, by_partition

__all__ = ["ChangeLog", "Lookup", "Vector", "columns_of_rows", "log_of_rows"]

_EPOCH, _NUMBER, _BEFORE, _POSITION = range(4)
_APART: Final = 256
"""Changes between two marks, at the least: replaying this number takes no longer than copying a few."""

_SMALL: Final = 4096
"""Changes of a level that it is no use to keep apart."""
_LARGER: Final = 8
_NOTHING: Final = Index(*np.empty((4, 0), np.int64))


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


def columns_of_rows(
    source: str, keys: Mapping[int, str], pieces: Iterable[Sequence[Sequence[int]]]
) -> tuple[list[str], Vector, Vector, Vector]:
    """Return stored rows `(epoch, partition's id, position)`, given in pieces, as what `RemapTable.of_columns` takes.

    `keys` has the partition of each id. Raises `DamagedStore` for anything but integers, and for an unknown id.

    >>> columns_of_rows("s", {7: "a", 9: "b"}, [[(0, 9, 5)], [(1, 7, 2)]])
    (['a', 'b'], array([0, 1]), array([1, 0]), array([5, 2]))
    """
    blocks = [np.array(piece) for piece in pieces]
    if any(block.dtype != np.int64 for block in blocks):
        raise DamagedStore(source=source, detail="a binding has a value that is no integer of 64 bits")
    epochs, owners, positions = np.concatenate([np.empty((0, 3), np.int64), *blocks]).T
    ids = np.array(sorted(keys), np.int64)
    numbers = ids.searchsorted(owners)
    if len(owners) and (len(ids) == 0 or not (ids[np.minimum(numbers, len(ids) - 1)] == owners).all()):
        unknown = sorted(set(owners.tolist()) - keys.keys())[0]
        raise DamagedStore(source=source, detail=f"a binding is of partition number {unknown}, which is not there")
    return [keys[id_] for id_ in ids.tolist()], epochs, numbers, positions


def log_of_rows(
    source: str, names: Sequence[str], epochs: Vector, numbers: Vector, positions: Vector, *, since: int
) -> ChangeLog:
    """Return the log of the changes: at `epochs[i]`, which never go back, `names[numbers[i]]` came to `positions[i]`.

    Changes below `since` count as made at `since`; of several, the last. Raises `DamagedStore` when an epoch or a
    position goes back, or a partition is twice in one epoch.
    """
    epochs = np.maximum(epochs, since)
    if len(back := np.flatnonzero(epochs[1:] < epochs[:-1])):
        earlier, later = epochs[back[0] : back[0] + 2].tolist()
        raise DamagedStore(source=source, detail=f"epoch {later} comes after epoch {earlier}")
    order = by_partition(numbers, len(names))
    owners, ends, at = numbers[order], positions[order], epochs[order]
    same = owners[1:] == owners[:-1]
    befores = np.zeros(len(order), np.int64)
    np.copyto(befores[1:], ends[:-1], where=same)
    if len(back := np.flatnonzero(ends <= befores)):
        partition, epoch = names[int(owners[back[0]])], int(at[back[0]])
        raise DamagedStore(source=source, detail=f"partition {partition!r} goes back at epoch {epoch}")
    again = same & (at[1:] == at[:-1])
    if len(twice := np.flatnonzero(again)):
        if len(wrong := twice[at[twice] != since]):
            partition, epoch = names[int(owners[wrong[0]])], int(at[wrong[0]])
            raise DamagedStore(source=source, detail=f"partition {partition!r} is twice in epoch {epoch}")
        kept = np.delete(np.arange(len(order)), order[twice])
        return log_of_rows(source, names, epochs[kept], numbers[kept], positions[kept], since=since)
    starts = np.flatnonzero(np.concatenate(([len(order) > 0], ~same)))
    first = starts[np.argsort(order[starts])]  # of each partition, in the order of the log
    renumbered = np.zeros(len(names), np.int64)
    renumbered[owners[first]] = np.arange(len(first))
    linked = np.empty(len(order), np.int64)
    linked[order] = befores
    return ChangeLog.of([names[int(i)] for i in owners[first]], epochs, renumbered[numbers], linked, positions)


class Lookup:
    """The changes of a growing log by partition, also those that a reader of a prefix must not see: the epoch tells.

    Invariant: together, the parts hold each change of the log once. Positions of a partition only grow, so the first
    part with a position beyond the given one decides.

    For one position at a time there are two parts: the index of the changes that were there when the table was
    loaded, and an array for each partition of later ones. An append costs O(1) a change.

    For many at once there are *levels*: indexes of consecutive parts of the log, made on demand. New changes become a
    level, merged with the levels before it that are less than eight times as large. So there are O(log n) levels, and
    a change is indexed O(log n) times at most. Rows that one level does not hold go on to the next.
    """

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
