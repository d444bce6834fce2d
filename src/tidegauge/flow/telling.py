"""The facts that commits of outputs carry: the history of their epochs, and losses recorded since the last one.

A loss is noted after its epoch was bound, and often after the epoch was committed. So it goes with the next commit of
each output, and a store that is recovered from the tables knows it again (law 9).

Invariant: everything recorded as told is in the table. Carrying a loss twice does no harm: it is the same one.
"""

from __future__ import annotations

from typing import Final

from tidegauge.remap.history import History
from tidegauge.remap.store import Lease, Store
from tidegauge.remap.store.telling import Untold
from tidegauge.sinks.persist import HistoryTeller

__all__ = ["TellingCommits"]


class TellingCommits:
    """Tells what the commits of one output carry, and notes what they carried.

    The store is asked at the first commit, and then only when something was noted to be lost.
    """

    def __init__(self, output: str, history: HistoryTeller, store: Store, lease: Lease) -> None:
        self._output: Final = output
        self._history: Final = history
        self._store: Final = store
        self._lease: Final = lease
        self._seen = -1
        self._asked: tuple[int, Untold] | None = None
        self._carried: tuple[int, Untold] | None = None

    def history(self, lower: int, upper: int, *, whole: bool) -> History:
        """Return what a commit of the epochs `[lower, upper)` is to carry. Asked in the thread of the commit."""
        # `noted` is read before the store is asked: a loss that is noted meanwhile makes us ask again.
        found, noted, self._asked = self._history(lower, upper, whole=whole), self._store.noted, None
        if self._seen == noted or not found.links:
            return found
        untold = self._store.untold(self._lease.flow, self._output, before=upper)
        self._asked = noted, untold
        return found.telling(untold.gaps)

    def carried(self) -> None:
        """Know that the table now has everything that was told last."""
        self._carried = self._asked

    def note(self) -> None:
        """Note durably which losses the table holds since the last commit."""
        carried, self._carried = self._carried, None
        if carried is not None:
            noted, untold = carried
            if untold.gaps:
                self._store.record_told(self._lease, self._output, untold.upto)
            if untold.all:
                self._seen = noted
