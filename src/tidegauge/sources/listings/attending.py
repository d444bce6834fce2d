"""What lists during a run: a poller of the present incarnation, whose polls are listings.

Invariant: one listing is under way at a time, and what it says of waiting files is that of the last one that ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from tidegauge.env import Env
from tidegauge.remap.binding import Bound, Observation
from tidegauge.sources.file.listing import printable
from tidegauge.sources.listings.entries import ENTRIES
from tidegauge.sources.listings.lister import Lister
from tidegauge.sources.listings.staged import StagedListings
from tidegauge.sources.polls.log import PollLog
from tidegauge.sources.polls.merging import Merging
from tidegauge.sources.polls.poller import Beside, Poller, PollerSetup

__all__ = ["ListingAttendant"]

_AGAIN: Final = 0.2
"""Seconds, at least, between two listings while files settle."""


@dataclass(slots=True)
class ListingAttendant:
    """Looks at a source during a run. every, settle, timeout: seconds."""

    source: str
    staged: StagedListings
    lister: Callable[[PollLog], Lister]
    every: float
    settle: float
    timeout: float
    env: Env
    beside: Beside
    _present: tuple[int, Lister, Poller] | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Return how far the manifests are, and begin a listing where it is time. Raises what `Poller.probe` does."""
        lister, poller = self._of(bound.incarnation)
        seen = poller.probe(bound, now=now)
        if seen.coming or (walk := lister.ended) is None:
            return seen
        if walk.waiting:
            poller.hasten(max(_AGAIN, self.settle))
        waits = walk.waiting > 0  # a run that is to catch up has these yet to come
        return replace(seen, more=seen.more or waits, coming=waits, note=_note(lister))

    def close(self) -> None:
        """Begin nothing more."""
        self._closed = True
        if self._present is not None:
            self._present[2].close()

    def _of(self, incarnation: int) -> tuple[Lister, Poller]:
        if self._present is None or self._present[0] != incarnation:
            if self._present is not None:
                self._present[2].close()
            lister = self.lister(self.staged.log(incarnation))
            setup = PollerSetup(
                source=self.source,
                staged=self.staged,
                merging=Merging("append", (), ENTRIES),
                fetch=lister,
                every=self.every,
                timeout=self.timeout,
                env=self.env,
                beside=self.beside,
            )
            self._present = incarnation, lister, Poller(setup)
            if self._closed:
                self._present[2].close()
        return self._present[1], self._present[2]


def _note(lister: Lister) -> str:
    """Return a line for people about files that were seen and are not read."""
    walk = lister.ended
    assert walk is not None  # noqa: S101 - a listing has ended
    if walk.waiting:
        return f"waiting: {walk.waiting} files have not settled yet"
    if walk.future:
        return f"waiting: {printable(walk.future)} was last changed in the future, by the clock of this machine"
    if lister.ignored:
        return f"{lister.ignored} files have changed since they were listed, and are left unread"
    if lister.late.note:
        return lister.late.note
    if walk.passed_over:
        return walk.passed_over
    return "" if walk.seen or walk.after else f"waiting: no file matches {printable(lister.pattern)!r}"
