"""The facts that commits of outputs carry: the history of their epochs, losses recorded since the last one, and where
the output begins, if not with its source.

A loss is noted after its epoch was bound, and often after the epoch was committed. So it goes with the next commit of
each output, and a store that is recovered from the tables knows it again (law 9).

Invariants. Everything recorded as told is in the table; carrying a loss twice does no harm, it is the same one. The
history of a span does not change while a flow runs, as bindings do not: so the store is asked for it once, however
many outputs commit it, and concurrent callers wait for the first one.

>>> asked = []
>>> tell = OncePerSpan(lambda lower, upper, *, whole: asked.append((lower, upper, whole)) or History((), "d"), Env())
>>> [tell(0, 3, whole=False).before for _ in range(50)] == 50 * ["d"], asked
(True, [(0, 3, False)])
"""

from __future__ import annotations

from typing import Final

from tidegauge.env import Env
from tidegauge.remap.history import History
from tidegauge.remap.start import StartRecord
from tidegauge.remap.store import Lease, Store
from tidegauge.remap.store.losses import Untold
from tidegauge.sinks.persist import HistoryTeller

__all__ = ["OncePerSpan", "TellingCommits"]

KEPT: Final = 8
"""The spans whose answers are kept: outputs that follow each other closely commit the same few."""


class OncePerSpan:
    """Tells the history of a span, and remembers what it told last. env: of the flow, for its lock."""

    def __init__(self, ask: HistoryTeller, env: Env) -> None:
        self._ask: Final = ask
        self._told: Final[dict[tuple[int, int, bool], History]] = {}
        self._lock: Final = env.lock()

    def __call__(self, lower: int, upper: int, *, whole: bool) -> History:
        """Return the history of the epochs `[lower, upper)`; see `Store.history`."""
        with self._lock:
            key = (lower, upper, whole)
            if key not in self._told:
                found = self._ask(lower, upper, whole=whole)
                while len(self._told) >= KEPT:
                    del self._told[next(iter(self._told))]
                self._told[key] = found
            return self._told[key]


class TellingCommits:
    """Tells what the commits of one output carry, and notes what they carried.

    The store is asked only once something was noted to be lost, and at the first commit when it knew losses before.
    lossless: `Store.noted` when it was found to know none, else -1. start: where the output begins, None for with its
    source.
    """

    def __init__(
        self,
        output: str,
        history: HistoryTeller,
        store: Store,
        lease: Lease,
        *,
        lossless: int = -1,
        start: StartRecord | None = None,
    ) -> None:
        self._output: Final = output
        self._history: Final = history
        self._store: Final = store
        self._lease: Final = lease
        self._start: Final = start
        self._seen = lossless
        self._asked: tuple[int, Untold] | None = None
        self._carried: tuple[int, Untold] | None = None

    def history(self, lower: int, upper: int, *, whole: bool) -> History:
        """Return what a commit of the epochs `[lower, upper)` is to carry. Asked in the thread of the commit."""
        # `noted` is read before the store is asked: a loss that is noted meanwhile makes us ask again.
        found, noted, self._asked = self._history(lower, upper, whole=whole), self._store.noted, None
        found = found.beginning(self._output, self._start)
        if self._seen == noted or not found.links:
            return found
        untold = self._store.untold(self._lease.flow_id, self._output, before=upper)
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
