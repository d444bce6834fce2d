"""An epoch in parts: its slices in their one order, and how much of them a job takes.

The work list of an epoch is its slices, by partition. Before a `Cursor` in it come all slices of earlier partitions,
and the lower positions of its own. So the rest of an epoch follows from one cursor, however large the parts
before it.

Invariant: the parts between cursors that follow each other have each record of the epoch once, and in its order.

>>> from tidegauge.remap.frontier import Frontier
>>> table = RemapTable("orders")
>>> table.append(0, Frontier({"p0": 3, "p1": 8}))
>>> parts = Parts.of(table, 0)
>>> some = taken(parts.left(START), 5, size=attrgetter("size"), cut=lambda piece, size: piece.lower + size)
>>> [(piece.partition, piece.lower, piece.upper) for piece in some]
[('p0', 0, 3), ('p1', 0, 2)]
>>> cursor = parts.after(some[-1])
>>> cursor, parts.before(cursor), parts.left(cursor)
(Cursor(partition='p1', position=2), 5, [Slice(source='orders', epoch=0, partition='p1', lower=2, upper=8)])
>>> parts.after(parts.left(cursor)[-1]) == START
True
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter
from typing import Final, NamedTuple

from tidegauge.remap.binding import Slice
from tidegauge.remap.table import RemapTable

__all__ = ["START", "Cursor", "LatestParts", "Parts", "taken"]

_PARTITION: Final = attrgetter("partition")


class Cursor(NamedTuple):
    """How far an epoch is done: up to `position` of `partition`, and all of the partitions before that."""

    partition: str
    position: int


START: Final = Cursor("", 0)
"""Before all of an epoch, and so after all of the one before it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The work list of an epoch of a source. ends: how many positions there are up to the end of each slice."""

    slices: Sequence[Slice]
    ends: Sequence[int]

    @staticmethod
    def of(table: RemapTable, epoch: int) -> Parts:
        """Return the work list of a bound epoch, which never changes."""
        slices = table.slices(epoch, epoch + 1)
        return Parts(slices, list(accumulate(piece.size for piece in slices)))

    def before(self, cursor: Cursor) -> int:
        """Return how many positions come before a cursor."""
        at = self._at(cursor)
        done = self.ends[at - 1] if at else 0
        if at < len(self.slices) and (piece := self.slices[at]).partition == cursor.partition:
            done += min(max(cursor.position - piece.lower, 0), piece.size)
        return done

    def left(self, cursor: Cursor, end: Cursor = START, *, most: int | None = None) -> list[Slice]:
        """Return what comes from a cursor on and before `end`, with `START` to the last, as at most `most` slices."""
        found: list[Slice] = []
        for at in range(self._at(cursor), len(self.slices)):
            piece = self.slices[at]
            if len(found) == most or (end != START and piece.partition > end.partition):
                break
            lower = max(piece.lower, cursor.position) if piece.partition == cursor.partition else piece.lower
            last = end != START and piece.partition == end.partition
            upper = min(piece.upper, end.position) if last else piece.upper
            if lower < upper:
                found.append(replace(piece, lower=lower, upper=upper))
        return found

    def after(self, piece: Slice) -> Cursor:
        """Return the cursor after a slice, or the beginning of one; `START` where nothing of the epoch is left."""
        last = self.slices[-1]
        if (piece.partition, piece.upper) == (last.partition, last.upper):
            return START
        return Cursor(piece.partition, piece.upper)

    def _at(self, cursor: Cursor) -> int:
        return bisect_left(self.slices, cursor.partition, key=_PARTITION)


class LatestParts:
    """The work list of the epoch of each source that was asked for last: many jobs in a row take parts of one."""

    def __init__(self) -> None:
        self._known: Final[dict[str, tuple[int, Parts]]] = {}

    def of(self, table: RemapTable, epoch: int) -> Parts:
        """Return `Parts.of`."""
        known = self._known.get(table.source)
        if known is None or known[0] != epoch:
            known = self._known[table.source] = epoch, Parts.of(table, epoch)
        return known[1]

    def clear(self) -> None:
        """Let go of them."""
        self._known.clear()


def taken(
    slices: Iterable[Slice],
    limit: int,
    *,
    size: Callable[[Slice], int],
    cut: Callable[[Slice, int], int | None],
) -> list[Slice]:
    """Return the first of these slices that have at most `limit` positions together, the last of them cut.

    size: how many positions of a slice may hold a record. cut: where the beginning of a slice ends that has a number
    of them; None where it cannot be cut. The first slice is taken whole then, however large it is.

    >>> work = [Slice("files", 0, name, 0, 4) for name in "ab"]
    >>> [piece.partition for piece in taken(work, 5, size=attrgetter("size"), cut=lambda *_: None)]
    ['a']
    >>> taken(work, 3, size=attrgetter("size"), cut=lambda *_: None) == work[:1]
    True
    """
    found: list[Slice] = []
    room = limit
    for piece in slices:
        if (held := size(piece)) <= room:
            found.append(piece)
            room -= held
            continue
        upper = cut(piece, room) if room else None
        if upper is not None and piece.lower < upper:
            found.append(replace(piece, upper=min(upper, piece.upper)))
        elif not found:
            found.append(piece)
        break
    return found
