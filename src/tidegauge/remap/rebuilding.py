"""From what the tables of a flow still have of its history to the timeline that led there: pure decisions.

Invariant: everything rebuilt is proven. Each link of a way follows the one before it by its digest, the last one is
that of the furthest table, and every other table is found on the way. A way begins at the origin, at an epoch that
the store still has, or at a whole link.

>>> from datetime import UTC, datetime
>>> from tidegauge.remap.history import Moves, follow, origin
>>> moved = {"orders": Moves(positions={"p0": 5})}
>>> link = Link(epoch=0, digest=follow(origin("0" * 32), moved), minted_at=datetime.now(UTC), sources=moved)
>>> found = way_to(pooled([link]), 1, link.digest, stored={}, origin=origin("0" * 32))
>>> found.cut, [link.epoch for link in found.links]
(0, [0])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tidegauge.remap.history import Link, Missed, Moves, agree

__all__ = ["Pool", "Way", "gaps_on", "pooled", "since_on", "way_to"]

Pool: TypeAlias = Mapping[int, Mapping[tuple[str, bool], Link]]
"""Links by their epochs, and in each by their digests and whether they are whole."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a timeline is rebuilt: the epochs that the store has before `cut` stay, and then come the links."""

    cut: int
    links: tuple[Link, ...]

    @property
    def since(self) -> int | None:
        """The epoch before which nothing can be told apart, None where that is as the store has it."""
        return self.links[0].epoch if self.links and self.links[0].whole else None

    def digest_before(self, upper: int, stored: Mapping[int, str]) -> str:
        """Return the digest of the epochs before `upper`, "" where it is not known any more."""
        if upper <= self.cut:
            return stored.get(upper, "")
        first = self.links[0].epoch if self.links else upper
        return self.links[upper - 1 - first].digest if first < upper <= first + len(self.links) else ""


def pooled(links: Iterable[Link]) -> Pool:
    """Return links by epoch and digest. Of two that say the same, one with the facts of both."""
    pool: dict[int, dict[tuple[str, bool], Link]] = {}
    for link in links:
        there = pool.setdefault(link.epoch, {})
        known = there.get((link.digest, link.whole))
        there[link.digest, link.whole] = link if known is None else _joined(known, link)
    return pool


def way_to(pool: Pool, upper: int, kept: str, *, stored: Mapping[int, str], origin: str) -> Way | None:
    """Return the way to the history before `upper` of whose digest a table has kept this much; None without one.

    stored: the digests before each upper that the store has and can tell apart. origin: the digest before epoch 0.
    """
    if agree(kept, stored.get(upper, "")):
        return Way(upper, ())
    whole: Way | None = None
    links = list[Link]()
    for epoch in range(upper - 1, -1, -1):
        there = pool.get(epoch, {})
        fitting = [link for link in there.values() if _fits(link.digest, links, kept)]
        whole = next((Way(0, (link, *reversed(links))) for link in fitting if link.whole), whole)
        plain = [link for link in fitting if not link.whole]
        if not plain:
            return whole
        links.append(plain[0])
        before = origin if epoch == 0 else stored.get(epoch, "")
        if before and plain[0].follows(before):
            return Way(epoch, tuple(reversed(links)))
    return whole


def gaps_on(way: Way, pool: Pool, upper: int, *, stored: Mapping[int, str]) -> dict[str, list[Missed]]:
    """Return the gaps, by source, that the links of a way tell, up to the epochs before `upper`.

    A link that is not on the way belongs to another history, and so do its gaps. If an epoch can no longer be told
    apart, nothing says which link belongs to it: all are believed, because a reported loss must not be hidden.
    """
    found: dict[str, dict[Missed, None]] = {}
    for epoch in sorted(epoch for epoch in pool if epoch < upper):
        digest = way.digest_before(epoch + 1, stored)
        for link in pool[epoch].values():
            if not digest or link.digest == digest:
                for name, moves in link.sources.items():
                    if moves.gaps:
                        found.setdefault(name, {}).update(dict.fromkeys(moves.gaps))
    return {name: list(gaps) for name, gaps in found.items()}


def since_on(way: Way, pool: Pool, upper: int, *, stored: Mapping[int, str]) -> int:
    """Return the epoch before which all count as one for some table, as its links tell that are on a way.

    A table that was begun after a compaction has everything up to there as the epoch `since` of that time. The
    others tell these epochs apart, and so may an older store: then the tables would not agree as of them.
    """
    told = 0
    for epoch in pool:
        digest = way.digest_before(epoch + 1, stored) if epoch < upper else None
        told = max(told, *(link.since for link in pool[epoch].values() if digest in ("", link.digest)), 0)
    return told


def _fits(digest: str, links: list[Link], kept: str) -> bool:
    """Whether a digest is in front of the last link found, or is the one that was kept."""
    return links[-1].follows(digest) if links else agree(kept, digest)


def _joined(one: Link, other: Link) -> Link:
    names = {**one.sources, **other.sources}
    sources = {name: _facts(one.sources.get(name), other.sources.get(name)) for name in names}
    starts = {**other.starts, **one.starts}
    return replace(one, sources=sources, starts=starts, since=max(one.since, other.since))


def _facts(one: Moves | None, other: Moves | None) -> Moves:
    if one is None or other is None:
        return one or other or Moves()
    return replace(
        one,
        identity=one.identity or other.identity,
        schema=one.schema or other.schema,
        sealed=one.sealed or other.sealed,
        begun=one.begun or other.begun,
        details={**other.details, **one.details},
        gaps=tuple(dict.fromkeys((*one.gaps, *other.gaps))),
    )
