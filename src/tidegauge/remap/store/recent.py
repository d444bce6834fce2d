"""`RecentLinks`: the epochs that this process bound last, for the commits that are about to carry their history.

Most commits carry epochs that were bound a moment ago. Nobody need ask the store for the links of these.

Invariant: the links of a flow follow each other, up to its newest epoch. Where one does not follow, those before it
are forgotten.

>>> from datetime import UTC, datetime
>>> at = datetime(2026, 11, 22, tzinfo=UTC)
>>> recent = RecentLinks(kept=2)
>>> recent.bind("shop", [Link(epoch=n, digest=d, minted_at=at, sources={}) for n, d in enumerate("abc")], before="")
>>> found = recent.of("shop")
>>> found.before, [link.epoch for link in found.links]
('a', [1, 2])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidegauge.remap.history import NO_HISTORY, History, Link

__all__ = ["RecentLinks"]


class RecentLinks:
    """The last links of each flow. kept: how many, at most."""

    def __init__(self, *, kept: int) -> None:
        self._kept: Final = kept
        self._of: Final[dict[str, History]] = {}

    def bind(self, flow: str, links: Sequence[Link], before: str) -> None:
        """Take in the links of epochs that were bound. before: the digest before the first of them."""
        found = self._of.get(flow, NO_HISTORY)
        for left, link in zip(range(len(links), 0, -1), links, strict=True):
            if left <= self._kept:  # of a long stretch the end
                found = NO_HISTORY if link.whole else found.followed(link, before, kept=self._kept)
            before = link.digest
        self._of[flow] = found

    def forget(self, flow: str) -> None:
        """Forget the links of a flow: others may have bound epochs since."""
        self._of.pop(flow, None)

    def of(self, flow: str) -> History:
        """Return the links of a flow, up to its newest epoch; none where that is not at hand. In any thread."""
        return self._of.get(flow, NO_HISTORY)
