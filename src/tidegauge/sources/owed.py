"""What upstream is still to be told: the newest frontier that is durable in every output.

Invariant: a frontier is owed until upstream has taken it, or a newer one. It is told late, or not at all, when
upstream does not listen, which does no harm: after a refusal upstream is let be, for a growing time.

>>> owed = Owed()
>>> owed.frontier = Frontier({"p0": 5})
>>> owed.due(0.0)
Frontier({'p0': 5})
>>> owed.refused(0.0), owed.due(0.1), owed.due(0.2)
(0.2, None, Frontier({'p0': 5}))
>>> owed.taken(); owed.frontier is None
True
"""

from __future__ import annotations

from tidegauge.dataflow import EventQueue, Messages
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.sweep import backoff

__all__ = ["Owed"]


class Owed:
    """The acknowledgement that one upstream has yet to take. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.frontier: Frontier | None = None
        self.refusals = 0
        """How often in a row upstream did not take it."""
        self._telling: Frontier | None = None
        self._not_before = float("-inf")

    def hear(self, acknowledgements: EventQueue) -> None:
        """Take in the frontiers that have become durable."""
        for event in acknowledgements.drain():
            if isinstance(event, Messages):
                self.frontier = event.batch[-1]

    def due(self, now: float) -> Frontier | None:
        """Return what upstream is to be told now, if anything; say afterwards what came of it."""
        self._telling = self.frontier if now >= self._not_before else None
        return self._telling

    def taken(self) -> None:
        """Take in that upstream took the frontier that was due, if any. A newer one is still owed."""
        if self._telling is not None:
            self.refusals = 0
            self.frontier = None if self.frontier is self._telling else self.frontier

    def refused(self, now: float) -> float:
        """Take in that upstream did not take it. Return for how many seconds it is let be."""
        self.refusals += 1
        return self.rest(self.refusals, now)

    def rest(self, attempts: int, now: float) -> float:
        """Let upstream be after failures in a row. Return for how many seconds."""
        self._not_before = max(self._not_before, now + backoff(attempts))
        return backoff(attempts)
