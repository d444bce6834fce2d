"""The flow whose sources another one shares, from outside: how far it has bound them, and whether it runs.

Invariant: the store alone is asked. A follower asks no upstream, and neither does its status.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store import Following, Loaded, Store

__all__ = ["SharedWith"]


@dataclass(frozen=True, slots=True)
class SharedWith:
    """The flow that is followed; `loaded` is None where the store does not have it. holder: its driver."""

    following: Following
    loaded: Loaded | None
    holder: str

    @staticmethod
    def of(flow: FlowSpec, store: Store) -> SharedWith | None:
        """Return the owner of a flow's sources, None where they are its own."""
        if (following := flow.following) is None:
            return None
        there = store.flow(following.flow) is not None
        loaded = store.load(following.flow) if there else None
        return SharedWith(following, loaded, store.holder(following.flow))

    def says(self, source: str, bound: Frontier) -> tuple[Frontier, str]:
        """Return how far the owner has bound a source, given how far it is bound here; and what there is to say."""
        owner = f"flow {self.following.flow!r}"
        theirs = None if self.loaded is None else self.loaded.sources.get(self.following.sources[source])
        if theirs is None:
            return bound, f"shared with {owner}, which does not have it"
        end = theirs.table.frontier if theirs.table.frontier.follows(bound) else bound
        runs = "" if self.holder else ", which does not run"
        failed = "" if theirs.failure is None else f"; it has failed there: {theirs.failure[1].summary}"
        return end, f"shared with {owner}{runs}{failed}"
