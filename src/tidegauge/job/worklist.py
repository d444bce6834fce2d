"""The work list of staging: the slices of each source that some output is yet to get, in the order of their epochs.

An output that is paused for a month keeps no month of slices in memory: what only such outputs lack is forgotten, and
is taken from the timeline again when somebody asks for it.

Invariant: the forgotten slices of a source lie before all that are kept of it; so the list answers as if it had
forgotten nothing.

>>> from tidegauge.remap.frontier import Frontier
>>> table = RemapTable("orders")
>>> for epoch in range(3):
...     table.append(epoch, Frontier({"p0": 5 * epoch + 5}))
>>> work = WorkList({"orders": table})
>>> work.extend({"orders": table.slices(0, 3)})
>>> work.forget({"orders": 2}); work.kept
1
>>> [piece.epoch for piece in work.between("orders", 1, 3)], work.kept
([1, 2], 2)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from tidegauge.reclock.slices import SpanSlices, between
from tidegauge.remap.binding import Slice
from tidegauge.remap.table import RemapTable

__all__ = ["WorkList"]

_EPOCH: Final = attrgetter("epoch")


class WorkList:
    """The slices that arrived and are still wanted. tables: of the timeline, for those that are wanted again."""

    def __init__(self, tables: Mapping[str, RemapTable]) -> None:
        self._tables: Final = tables
        self._waiting: Final[dict[str, list[Slice]]] = {}
        self._forgotten: Final[dict[str, int]] = {}
        """The epoch before which the slices of a source are forgotten."""

    @property
    def kept(self) -> int:
        """How many slices are in memory."""
        return sum(map(len, self._waiting.values()))

    def extend(self, planned: SpanSlices) -> None:
        """Take in the slices of the next epochs."""
        for source, found in planned.items():
            self._waiting.setdefault(source, []).extend(found)

    def between(self, source: str, lower: int, upper: int) -> Sequence[Slice]:
        """Return the slices of the epochs `[lower, upper)`."""
        waiting = self._waiting.get(source, [])
        if lower < (end := self._forgotten.get(source, lower)):
            waiting[:0] = self._tables[source].slices(lower, end)
            self._forgotten[source] = lower
        return between(waiting, lower, upper)

    def forget(self, lacking: Mapping[str, int], *, default: int = 0) -> None:
        """Forget the slices before the first epoch that is lacking of a source; `default` where none is."""
        for source, waiting in self._waiting.items():
            if count := bisect_left(waiting, lacking.get(source, default), key=_EPOCH):
                self._forgotten[source] = waiting[count - 1].epoch + 1
                del waiting[:count]
