"""What a store's database says is bound, read with plain SQL as it becomes durable, and never forgotten.

The store may forget: compaction of the timeline folds old epochs. So a ledger reads each binding once, right after
the transaction that brought it, and keeps it as what every table is held against.

Invariant: epochs follow each other, no frontier goes back, and nothing is bound that upstream does not have. Raises
`Broken` where that is not so.

>>> from tidegauge.testing.simulation.store import Memory
>>> BindingLedger(Memory(), {}).upper
0
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

from tidegauge.testing.simulation.evidence import StoreEvidence, UpstreamEvidence

__all__ = ["BindingLedger", "Broken"]

_FLOW: Final = "SELECT upper, published FROM flows"
_CHANGES: Final = """
    SELECT c.epoch, s.name, p.key, c.position, p.detail FROM changes c
    JOIN sources s ON s.id = c.source_id JOIN partitions p ON p.id = c.partition_id
    WHERE c.epoch >= ? ORDER BY c.epoch, s.name, p.key"""
_LOSSES: Final = """
    SELECT l.lower, l.upper FROM losses l JOIN sources s ON s.id = l.source_id
    WHERE s.name = ? AND l.epoch = ? AND l.partition = ? ORDER BY l.lower"""


class Broken(AssertionError):
    """A law that does not hold: which, and how."""

    def __init__(self, law: str, detail: str) -> None:
        super().__init__(f"{law}: {detail}")
        self.law: Final = law
        self.detail: Final = detail


class BindingLedger:
    """The bindings so far. frontiers: of each source. upper: how many epochs are bound. published: how many are."""

    def __init__(self, store: StoreEvidence, upstreams: Mapping[str, UpstreamEvidence]) -> None:
        self.frontiers: Final[dict[str, dict[str, int]]] = {name: {} for name in upstreams}
        self.upper = 0
        self.published = 0
        self.ask: Final = store.ask
        self._upstreams: Final = upstreams
        self._bound: Final[dict[str, dict[int, dict[str, tuple[int, int]]]]] = {name: {} for name in upstreams}
        self._moved: Final[dict[str, list[int]]] = {name: [] for name in upstreams}

    def follow(self) -> None:
        """Read what a transaction has brought."""
        found = self.ask(_FLOW)
        if not found:
            return
        [(upper, published)] = found
        if upper < self.upper or published < self.published:
            now, before = f"bound {upper}, published {published}", f"{self.upper} and {self.published} before"
            raise Broken("no epoch goes back", f"{now}, {before}")
        if published > upper:
            raise Broken("what is published is bound", f"published {published}, bound {upper}")
        if upper > self.upper:
            for epoch, source, partition, position, detail in self.ask(_CHANGES, self.upper):
                if partition not in self.frontiers[source]:
                    self._upstreams[source].learn(partition, json.loads(detail or "{}"))
                self._bind(epoch, source, partition, position, upper=upper)
        self.upper, self.published = upper, published

    def _bind(self, epoch: int, source: str, partition: str, position: int, *, upper: int) -> None:
        upstream, frontier = self._upstreams[source], self.frontiers[source]
        # Retention may have taken records before anybody looked: they are not among those that the first binding has.
        before = frontier[partition] if partition in frontier else min(position, upstream.start(partition))
        what = f"{source}, partition {partition}, epoch {epoch}: {position}"
        if epoch >= upper:
            raise Broken("a binding is of an epoch that is minted", f"{what}, and {upper} epochs are")
        if position < before:
            raise Broken("no frontier goes back", f"{what} after {before}")
        if position > upstream.end(partition):
            raise Broken("only what is there is bound", f"{what}, and its end is {upstream.end(partition)}")
        frontier[partition] = position
        self._bound[source].setdefault(epoch, {})[partition] = (before, position)
        if self._moved[source][-1:] != [epoch]:
            self._moved[source].append(epoch)

    def holds(self, source: str, upper: int) -> int:
        """Return the first epoch that an output lacks whose table has this upper.

        Epochs without records of its source are not committed: it holds them as soon as it holds those before them.
        """
        moved = self._moved[source]
        following = bisect_left(moved, upper)
        return max(upper, moved[following] if following < len(moved) else self.upper)

    def until(self, source: str, upper: int) -> dict[str, int]:
        """Return the frontier of the epochs before `upper`."""
        found: dict[str, int] = {}
        for epoch in self._moved[source]:
            if epoch >= upper:
                break
            found.update({partition: position for partition, (_, position) in self._bound[source][epoch].items()})
        return found

    def ranges(self, source: str, epoch: int, *, whole: bool) -> Iterator[tuple[str, int, int]]:
        """Yield what an epoch has of a source: the ranges of its partitions.

        whole: with the records noted as lost. A table has them that was committed before they were lost to others.
        """
        for partition, (lower, position) in self._bound[source].get(epoch, {}).items():
            at = lower
            if whole:
                yield partition, lower, position
                continue
            for lost, until in self.ask(_LOSSES, source, epoch, partition):
                if at < lost:
                    yield partition, at, lost
                at = max(at, until)
            if at < position:
                yield partition, at, position

    def failed(self) -> set[str]:
        """Return the sources that have failed."""
        return {name for (name,) in self.ask("SELECT name FROM sources WHERE failed_at IS NOT NULL")}

    def failed_outputs(self) -> set[str]:
        """Return the outputs that have failed."""
        return {name for (name,) in self.ask("SELECT name FROM outputs WHERE failed_at IS NOT NULL")}
