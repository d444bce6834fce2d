"""Remap histories: lawful sequences of bindings of epochs to frontiers, of one source or of several.

A `RemapHistory` is the definition that `RemapTable` computes: `R(e)` is the last frontier bound at or before `e`, and
a record belongs to the first epoch whose `R` is beyond it. It searches the list, so it is slow and easy to believe.

Invariants. Epochs of bindings ascend and are below `upper`; each frontier follows the one before. Nothing is bound
before `since`, below which epochs are indistinguishable.

>>> history = RemapHistory().bound(0, Frontier({"p0": 2})).bound(3, Frontier({"p0": 5}))
>>> [history.epoch_of("p0", position) for position in (1, 2, 4, 5)]
[0, 3, 3, None]
>>> [history.table().epoch_of("p0", position) for position in (1, 2, 4)]
[0, 3, 3]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tidegauge.errors.testing import InvalidStrategy
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.table import RemapTable
from tidegauge.testing.strategies.arguments import between, sizes, strategies
from tidegauge.testing.strategies.frontiers import FEW, STEPS, advancing_frontiers

__all__ = ["RemapHistory", "remap_histories", "shared_histories"]


@dataclass(frozen=True, slots=True)
class RemapHistory:
    """The bindings of one source, each an epoch and its whole frontier, below `upper` and from `since` on."""

    bindings: tuple[tuple[int, Frontier], ...] = ()
    upper: int = 0
    since: int = 0

    def bound(self, epoch: int, frontier: Frontier) -> RemapHistory:
        """Return the history with one more binding, at `upper` or later."""
        return RemapHistory((*self.bindings, (epoch, frontier)), epoch + 1, self.since)

    def frontier_at(self, epoch: int) -> Frontier:
        """Return `R(epoch)`; `ORIGIN` before the first binding."""
        return next((frontier for bound, frontier in reversed(self.bindings) if bound <= epoch), ORIGIN)

    def has(self, epoch: int, partition: str, position: int) -> bool:
        """Whether a record is in at an epoch: it is not beyond `R(epoch)`."""
        frontier = self.frontier_at(epoch)
        return frontier.sealed or position < frontier[partition]

    def epoch_of(self, partition: str, position: int) -> int | None:
        """Return the epoch that a record belongs to, None when no epoch has it."""
        return next((epoch for epoch, _ in self.bindings if self.has(epoch, partition, position)), None)

    def compacted(self, since: int) -> RemapHistory:
        """Return the history after a compaction: the epochs below `since` are no longer known apart."""
        before = [frontier for epoch, frontier in self.bindings if epoch <= since]
        later = tuple(binding for binding in self.bindings if binding[0] > since)
        return replace(self, bindings=((since, before[-1]), *later) if before else later, since=since)

    def table(self, source: str = "s") -> RemapTable:
        """Return the remap table that has these bindings, as a store would have kept them."""
        table = RemapTable(source, since=self.since, upper=self.since)
        for epoch, frontier in self.bindings:
            table.append(epoch, frontier)
        table.advance(max(self.upper, table.upper))
        return table


def remap_histories(
    *,
    partitions: st.SearchStrategy[str] = FEW,
    steps: st.SearchStrategy[int] = STEPS,
    min_size: int = 1,
    max_size: int = 8,
    max_gap: int = 4,
    sealed: bool = True,
    compacted: bool = False,
) -> st.SearchStrategy[RemapHistory]:
    """Histories of one source.

    partitions, steps: see `advancing_frontiers`. min_size, max_size: how many bindings. max_gap: the largest number
    of epochs without a binding before the first one, between two, and after the last one: another source was bound
    there, or the source was idle. sealed: whether some have ended. compacted: whether some have a `since` above 0.
    """
    sizes("remap_histories", min_size, max_size)
    between("remap_histories", "max_gap", max_gap)
    strategies("remap_histories", partitions=partitions, steps=steps)
    walks = advancing_frontiers(
        partitions=partitions, steps=steps, min_size=min_size, max_size=max_size, sealed=sealed
    )
    return _histories(walks, max_gap, compacted=compacted)


def shared_histories(
    sources: Sequence[str] = ("orders", "clicks"),
    *,
    partitions: st.SearchStrategy[str] = FEW,
    steps: st.SearchStrategy[int] = STEPS,
    max_size: int = 8,
    max_gap: int = 4,
    sealed: bool = True,
    compacted: bool = False,
) -> st.SearchStrategy[Mapping[str, RemapHistory]]:
    """Histories of several sources on one timeline, with one `upper` and one `since`; some join late, or never move.

    The other parameters are those of `remap_histories`, for each source.
    """
    if isinstance(sources, str) or not sources or len(set(sources)) < len(sources):
        raise InvalidStrategy(
            strategy="shared_histories", parameter="sources", value=repr(sources), expected="names, no two alike"
        )
    sizes("shared_histories", 0, max_size)
    between("shared_histories", "max_gap", max_gap)
    strategies("shared_histories", partitions=partitions, steps=steps)
    walks = advancing_frontiers(partitions=partitions, steps=steps, min_size=0, max_size=max_size, sealed=sealed)
    each = _histories(walks, max_gap, compacted=False)
    return _aligned(tuple(sources), each, compacted=compacted)


@st.composite
def _histories(
    draw: st.DrawFn, walks: st.SearchStrategy[list[Frontier]], max_gap: int, *, compacted: bool
) -> RemapHistory:
    history, gaps = RemapHistory(), st.integers(0, max_gap)
    for frontier in draw(walks):
        history = history.bound(history.upper + draw(gaps), frontier)
    history = replace(history, upper=history.upper + draw(gaps))
    return _maybe_compacted(draw, history, compacted=compacted)


@st.composite
def _aligned(
    draw: st.DrawFn, sources: tuple[str, ...], each: st.SearchStrategy[RemapHistory], *, compacted: bool
) -> Mapping[str, RemapHistory]:
    found = {name: draw(each) for name in sources}
    upper = max(history.upper for history in found.values())
    since = draw(st.integers(0, upper - 1)) if compacted and upper else 0
    return {name: replace(history, upper=upper).compacted(since) for name, history in found.items()}


def _maybe_compacted(draw: st.DrawFn, history: RemapHistory, *, compacted: bool) -> RemapHistory:
    """Compact up to the last epoch but one at most: reading resumes from there."""
    return history.compacted(draw(st.integers(0, history.upper - 1))) if compacted and history.upper else history
