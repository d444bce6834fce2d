"""A publication as listeners are told it: the epochs that every live output holds now, and the rows that came.

Invariants. Publications follow each other: each begins where the one before it ended. A commit is told once, with the
publication that has all of its epochs; one of epochs that are published already, by a late output, with the next.
So rows and bytes add up to those that the board shows.

>>> from datetime import UTC
>>> from tidegauge.sinks.persist import Committed
>>> publications = Publications()
>>> for epoch in (0, 1):
...     publications.minted(epoch, at=datetime(2026, 11, 27, 8, 0, epoch, tzinfo=UTC))
>>> publications.committed(Committed("orders", 1, rows=10, bytes=100))
>>> publications.committed(Committed("orders", 2, rows=20, bytes=200))
>>> told = publications.published(0, 1, at=datetime(2026, 11, 27, 8, 0, 3, tzinfo=UTC), positions={})
>>> told.epochs, dict(told.rows), told.seconds
(range(0, 1), {'orders': 10}, 3.0)
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tidegauge.remap.frontier import Frontier
from tidegauge.sinks.persist import Committed

__all__ = ["Publication", "Publications"]

_KEPT: Final = 1000
"""How many commits of an output, and mints, are kept apart until they are published."""


@dataclass(frozen=True, slots=True)
class Publication:
    """Epochs that every live output holds since `published_at`.

    rows, bytes: what the outputs committed, by their names; one that committed nothing is not in them. positions: of
    each source, by partition, the first position that is not published. seconds: from the mint of the first of these
    epochs until it was published; None if an earlier run has minted it.
    """

    epochs: range
    published_at: datetime
    rows: Mapping[str, int]
    bytes: Mapping[str, int]
    positions: Mapping[str, Frontier]
    seconds: float | None

    def then(self, later: Publication) -> Publication:
        """Return this publication and the one that follows it, as one."""
        return replace(
            later,
            epochs=range(self.epochs.start, later.epochs.stop),
            rows=_added(self.rows, later.rows),
            bytes=_added(self.bytes, later.bytes),
            seconds=self.seconds,
        )


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    total = Counter(one)
    total.update(other)
    return dict(total)


class Publications:
    """Takes in the mints and commits of a run, and tells each publication."""

    def __init__(self) -> None:
        self._minted: Final[deque[tuple[int, datetime]]] = deque()
        self._commits: Final[dict[str, deque[Committed]]] = {}

    def minted(self, epoch: int, *, at: datetime) -> None:
        """Take in when an epoch was minted."""
        if len(self._minted) < _KEPT:
            self._minted.append((epoch, at))

    def committed(self, commit: Committed) -> None:
        """Take in what an output has committed."""
        known = self._commits.setdefault(commit.output, deque())
        if len(known) >= _KEPT:  # one that is far ahead of another: told later, and as one
            last = known.pop()
            commit = replace(commit, rows=last.rows + commit.rows, bytes=last.bytes + commit.bytes)
        known.append(commit)

    def published(self, lower: int, upper: int, *, at: datetime, positions: Mapping[str, Frontier]) -> Publication:
        """Tell that the epochs `[lower, upper)` are published."""
        while self._minted and self._minted[0][0] < lower:
            self._minted.popleft()
        first = self._minted[0] if self._minted else None
        rows, sizes = Counter[str](), Counter[str]()
        for output, commits in self._commits.items():
            while commits and commits[0].upper <= upper:
                one = commits.popleft()
                rows[output] += one.rows
                sizes[output] += one.bytes
        seconds = (at - first[1]).total_seconds() if first is not None and first[0] == lower else None
        return Publication(range(lower, upper), at, dict(rows), dict(sizes), positions, seconds)
