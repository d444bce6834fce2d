"""Changes by partition: which epoch a position belongs to, for one position or for millions at once.

Definition. Sort some changes by partition, keeping their sequence. Within a partition the positions strictly
increase, so a record at position `n` came in by the first change whose position is beyond `n`: one binary search.

Many at once. A binary search in 10,000 positions is 13 steps, and as many wrong guesses of the processor. So the
positions of each partition are cut into buckets of `2 ** shift`, and a table has for each bucket the change that its
first position came in by. With four buckets a change most buckets have at most one change within, so one comparison
decides. The rows that it does not decide go on with a binary search in their bucket, all together. A row costs O(1)
where positions were bound evenly, O(log m) where `m` changes share its bucket.

Most of that is waiting for the memory: for the bucket, for the change's position, for its epoch, each of them
anywhere in a table larger than the caches. So where it fits into one integer, a bucket has the answer itself: where
the one change lies that may be within, the epoch before it, and the epoch from there on. Then the tables take 12
bytes a bucket, otherwise 4.

Invariant: an index is never written to; the table is made when it is first asked for.

>>> index = Index(np.array([0, 1, 0]), np.array([0, 0, 0]), np.array([5, 2, 9]), np.array([0, 0, 3]))
>>> index.epoch_of(0, 7), index.epoch_of(0, 9), index.epoch_of(7, 0)
(3, None, None)
>>> index.epochs_of(np.array([1, 0, -1]), np.array([1, 0, 1, 2]), np.array([5, 2, 4, 0])).tolist()
[3, -1, 0, -1]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["NOWHERE", "Index", "Vector", "by_partition"]

Vector = npt.NDArray[np.int64]

NOWHERE: Final = -1
"""In place of an epoch: the position is beyond all of them."""

_TOP: Final = 2**63 - 1
_BUCKETS: Final = 4
"""How many buckets a change has, at most."""
_BLOCK: Final = 1 << 15
"""How many rows are taken at a time, so that intermediate columns stay in the processor's cache."""


class Index:
    """The changes of a part of a log, by partition. Slots `starts[p]` to `starts[p + 1] - 1` are those of `p`.

    The last slot of each partition is none of its changes: it stands for all later positions. So does the one slot of
    a last partition that has no changes, which stands for partitions that are not known.
    """

    __slots__ = ("_buckets", "_epochs", "_floors", "_lasts", "_positions", "_starts")

    def __init__(self, numbers: Vector, befores: Vector, positions: Vector, epochs: Vector) -> None:
        """Index changes in the order of their log: partition, position before and after, and epoch of each."""
        partitions = int(numbers.max(initial=-1)) + 1
        order = by_partition(numbers, partitions)
        counts = np.bincount(numbers, minlength=partitions + 1)
        self._starts: Final = np.concatenate(([0], np.cumsum(counts + 1)))
        slots = np.arange(len(order)) + numbers[order]
        self._positions: Final = np.full(len(order) + partitions + 1, _TOP)
        self._positions[slots] = positions[order]
        self._epochs: Final = np.full(len(self._positions), NOWHERE)
        self._epochs[slots] = epochs[order]
        moved = np.flatnonzero(counts)
        self._floors: Final = np.zeros(partitions + 1, np.int64)
        self._floors[moved] = befores[order[self._starts[moved] - moved]]
        self._lasts: Final = np.zeros(partitions + 1, np.int64)
        self._lasts[moved] = self._positions[self._starts[moved + 1] - 2]
        self._buckets: _Buckets | None = None

    def epoch_of(self, number: int, position: int) -> int | None:
        """Return the epoch of the first change of a partition that is beyond a position, or None."""
        if number >= len(self._starts) - 2:
            return None
        first, last = self._starts[number], self._starts[number + 1] - 1
        slot = first + self._positions[first:last].searchsorted(position, "right")
        return int(self._epochs[slot]) if slot < last else None

    def between(self, number: int, lower: int, upper: int) -> tuple[Vector, Vector]:
        """Return positions and epochs of the changes of a partition that `[lower, upper)` came in by, in order."""
        if number >= len(self._starts) - 2:
            return self._positions[:0], self._epochs[:0]
        first, last = self._starts[number], self._starts[number + 1] - 1
        positions = self._positions[first:last]
        begin, end = positions.searchsorted(lower, "right"), positions.searchsorted(upper) + 1
        return positions[begin:end], self._epochs[first:last][begin:end]

    def epochs_of(self, numbers: Vector, codes: npt.NDArray[Any], positions: Vector) -> Vector:
        """Return the epoch of each row, `NOWHERE` where there is none.

        Row `i` is at `positions[i]`, from 0 to 2**63 - 2 and not before the first change of its partition, which is
        `numbers[codes[i]]`, or -1 when it is not known.
        """
        buckets = self._buckets
        if buckets is None:
            buckets = _bucketed(self._starts, self._floors, self._lasts, self._positions, self._epochs)
            self._buckets = buckets
        unknown = len(self._starts) - 2
        known = np.where((numbers < 0) | (numbers > unknown), unknown, numbers)
        bases, lasts = buckets.bases[known], self._lasts[known]
        found = np.empty(len(codes), np.int64)
        wide = np.empty((3, min(len(codes), _BLOCK)), np.int64)  # used again for every block
        for first in range(0, len(codes), _BLOCK):
            block = slice(first, first + _BLOCK)
            code = codes[block].astype(np.intp, copy=False)
            at, bucket, other = wide[:, : len(code)]
            np.take(lasts, code, out=at, mode="clip")  # no index is out of bounds, and "clip" needs no copy
            np.minimum(at, positions[block], out=at)  # where the last change is, or anywhere beyond, is the same
            np.right_shift(at, buckets.shift, out=bucket)
            bucket += np.take(bases, code, out=other, mode="clip")
            if buckets.answers is None:
                slots = buckets.slots[bucket].astype(np.intp)
                slots += self._positions[slots] <= at
                self._settle(slots, bucket, at, buckets.slots)
                np.take(self._epochs, slots, out=found[block], mode="clip")
            else:
                self._answer(buckets, buckets.answers, bucket, at, other, found[block])
        return found

    def _answer(
        self, buckets: _Buckets, answers: Vector, bucket: Vector, at: Vector, other: Vector, found: Vector
    ) -> None:
        """Write to `found` what the buckets answer, and look further where they do not. `at` and `other` are lost."""
        np.take(answers, bucket, out=found, mode="clip")
        if buckets.crowded and len(rows := np.flatnonzero(found < 0)):
            slots = buckets.slots[bucket[rows]].astype(np.intp)
            self._settle(slots, bucket[rows], at[rows], buckets.slots)
        else:
            rows = slots = np.empty(0, np.intp)
        np.bitwise_and(found, (2 << buckets.shift) - 1, out=other)
        at &= (1 << buckets.shift) - 1
        np.greater_equal(at, other, out=other, casting="unsafe")  # whether a row is behind the change
        other *= buckets.bits
        other += buckets.shift + 1
        found >>= other
        found &= (1 << buckets.bits) - 1
        found -= 1
        found[rows] = self._epochs[slots]

    def _settle(self, slot: Vector, bucket: Vector, at: Vector, slots: npt.NDArray[np.int32]) -> None:
        """Go on where a comparison did not decide: a binary search of the rest of the bucket."""
        rows = np.flatnonzero(self._positions[slot] <= at)
        if len(rows) == 0:
            return
        sought, lower, upper = at[rows], slot[rows] + 1, slots[bucket[rows] + 1].astype(np.intp)
        while (lower < upper).any():
            middle = (lower + upper) >> 1
            beyond = self._positions[middle] > sought
            open_ = lower < upper
            upper = np.where(open_ & beyond, middle, upper)
            lower = np.where(open_ & ~beyond, middle + 1, lower)
        slot[rows] = lower


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Position `n` of partition `p` is in bucket `bases[p] + (n >> shift)`; `slots` has the first slot beyond the
    bucket's first position. `crowded`: some bucket has more than one change within.

    answers: of each bucket, -1 where it is crowded; otherwise, from the lowest bit on, how far behind the bucket's
    first position the change within lies (`shift + 1` bits, `2 ** shift` where there is none), one more than the
    epoch before it, and one more than the epoch from there on (`bits` each). None where that does not fit.
    """

    shift: int
    bases: Vector
    slots: npt.NDArray[np.int32]
    crowded: bool
    bits: int
    answers: Vector | None


def _bucketed(starts: Vector, floors: Vector, lasts: Vector, positions: Vector, epochs: Vector) -> _Buckets:
    """Cut the positions into buckets, as narrow as fit: the same width for all partitions."""
    partitions = len(floors)
    room = _BUCKETS * len(positions) + 2 * partitions
    shift = 0
    while int(((lasts >> shift) - (floors >> shift)).sum(dtype=np.float64)) + 2 * partitions > room:
        shift += 1
    widths = (lasts >> shift) - (floors >> shift) + 2
    bases = np.cumsum(widths) - widths - (floors >> shift)
    owners = np.repeat(np.arange(partitions), np.diff(starts))
    changes = np.ones(len(positions), np.bool_)
    changes[starts[1:] - 1] = False
    # a change counts from the first bucket on that begins at its position or later
    begins = ((positions[changes] - 1) >> shift) + 1 + bases[owners[changes]]
    counts = np.bincount(begins, minlength=int(widths.sum()))
    slots = (np.cumsum(counts) + np.repeat(np.arange(partitions), widths)).astype(np.int32)
    bits = (int(epochs.max()) + 1).bit_length()
    answers = None
    if shift + 1 + 2 * bits < 64:  # one bit is for the sign
        answers = _answers(shift, bits, np.repeat(bases, widths), slots, positions, epochs)
    return _Buckets(shift, bases, slots, bool((counts > 1).any()), bits, answers)


def _answers(
    shift: int, bits: int, bases: Vector, slots: npt.NDArray[np.int32], positions: Vector, epochs: Vector
) -> Vector:
    """Return the answers of all buckets, given the base of each; a stretch at a time, which takes less memory."""
    answers = np.empty(len(slots), np.int64)
    for first in range(0, len(slots), _BLOCK):
        block = slice(first, first + _BLOCK)
        slot = slots[block].astype(np.intp)
        after = np.minimum(slot + 1, len(epochs) - 1)
        begins = (np.arange(first, first + len(slot)) - bases[block]) << shift
        change = np.minimum(positions[slot] - begins, 1 << shift)
        answers[block] = ((((epochs[after] + 1) << bits) | (epochs[slot] + 1)) << (shift + 1)) | change
    answers[np.flatnonzero(np.diff(slots) > 1)] = -1
    return answers


def by_partition(numbers: Vector, partitions: int) -> Vector:
    """Return the order that sorts changes by partition and keeps the sequence within each: O(changes) for the usual
    number of partitions."""
    keys = numbers.astype(np.uint16) if partitions <= 1 << 16 else numbers  # 16 bits are sorted by counting
    return np.argsort(keys, kind="stable")
