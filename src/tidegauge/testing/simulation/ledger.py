"""What a store's database says is bound, read with plain SQL as it becomes durable, and never forgotten.

The store may forget: compaction of the timeline folds old epochs. So a ledger reads each binding once, right after
the transaction that brought it, and keeps it as what every table is held against. When somebody puts back an older
store, it goes back with it. What tables bring back into the store has to be as it was.

Invariant: epochs follow each other, no frontier goes back, and nothing is bound that upstream does not have. Raises
`Broken` where that is not so.

>>> from tidegauge.testing.simulation.store import Memory
>>> BindingLedger(Memory(), {}).upper
0
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from tidegauge.remap.store.columns import decode_schema
from tidegauge.testing.simulation.evidence import StoreEvidence, UpstreamEvidence
from tidegauge.testing.simulation.forgotten import EpochBindings, Forgotten, PlaceRange, StoredMoves, moves_of

__all__ = ["BindingLedger", "Broken", "Change", "Forget", "known_since", "moved"]

_FLOW: Final = "SELECT upper, published, since FROM flows"
_LEAST: Final = "SELECT epoch, owner FROM holds ORDER BY epoch, owner LIMIT 1"
_CHANGES: Final = """
    SELECT c.epoch, s.name, p.key, c.position, p.detail FROM changes c
    JOIN sources s ON s.id = c.source_id JOIN partitions p ON p.id = c.partition_id
    WHERE c.epoch >= ? ORDER BY c.epoch, s.name, p.key"""
_INCARNATIONS: Final = """
    SELECT s.name, max(i.number), max(i.began_at) FROM incarnations i
    JOIN sources s ON s.id = i.source_id GROUP BY s.name"""
_BEGAN: Final = """
    SELECT s.name, max(i.began_at) FROM incarnations i
    JOIN sources s ON s.id = i.source_id WHERE i.began_at <= ? GROUP BY s.name"""
_SCHEMA: Final = "SELECT schema FROM sources WHERE name = ? AND schema IS NOT NULL"
_LOSSES: Final = """
    SELECT l.lower, l.upper FROM losses l JOIN sources s ON s.id = l.source_id
    WHERE s.name = ? AND l.partition = ? AND (l.epoch = ? OR (l.epoch <= ? AND ? <= ?)) ORDER BY l.lower"""
"""Of an epoch, or of all that are compacted: a loss is noted at the epoch that its range is bound to then."""


Forget: TypeAlias = Callable[[str, str], None]
Change: TypeAlias = tuple[int, str, str, int]
"""At an epoch, a source's partition came to a position."""


class Broken(AssertionError):
    """A law that does not hold: which, and how."""

    def __init__(self, law: str, detail: str) -> None:
        super().__init__(f"{law}: {detail}")
        self.law: Final = law
        self.detail: Final = detail


class BindingLedger:
    """The bindings so far, by place (`Upstream`): a record of an incarnation is no other's.

    frontiers: of each source in its present incarnation. upper: how many epochs are bound. published: how many are.
    since: those before it are compacted.

    gaining: the sources that gain columns.
    """

    def __init__(
        self, store: StoreEvidence, upstreams: Mapping[str, UpstreamEvidence], *, gaining: Sequence[str] = ()
    ) -> None:
        self.frontiers: Final[dict[str, dict[str, int]]] = {name: {} for name in upstreams}
        self.upper = 0
        self.published = 0
        self.since = 0
        self.ask: Final = store.ask
        self._upstreams: Final = upstreams
        self._places: Final[dict[str, dict[str, str]]] = {name: {} for name in upstreams}
        self._began: Final[dict[str, int]] = {}
        """At which epoch the present incarnation of a source began, where it is not the first one."""
        self._bound: Final[dict[str, dict[int, dict[str, PlaceRange]]]] = {name: {} for name in upstreams}
        """Of each source, by epoch and place: the partition, and the range of it."""
        self._moved: Final[dict[str, list[int]]] = {name: [] for name in upstreams}
        self._forgotten: Final = Forgotten()
        self._columns: Final[dict[str, dict[int, frozenset[str]]]] = {name: {} for name in gaining}
        """The columns that were in force when an epoch was bound, of sources that gain some."""
        self._described: Final[set[tuple[str, str]]] = set()
        """The places that the store knew something of when they were learnt."""

    def follow(self) -> None:
        """Read what a transaction has brought."""
        found = self.ask(_FLOW)
        if not found:
            return
        [(upper, published, since)] = found
        if upper < self.upper or published < self.published:
            now, before = f"bound {upper}, published {published}", f"{self.upper} and {self.published} before"
            raise Broken("no epoch goes back", f"{now}, {before}")
        if published > upper:
            raise Broken("what is published is bound", f"published {published}, bound {upper}")
        if any(upstream.made_anew for upstream in self._upstreams.values()):
            self._begin()
        if upper > self.upper:
            self._in_force(self.upper, upper)
            for epoch, source, partition, position, detail in self.ask(_CHANGES, self.upper):
                places = self._places[source]
                if partition not in places:
                    places[partition] = self._learnt(source, partition, detail)
                self._bind(epoch, source, partition, position, upper=upper)
        self.upper, self.published = upper, published
        if since != self.since:
            self._forget(since)
        for epoch, owner in self.ask(_LEAST):
            if epoch < since:
                said = f"{owner} holds {epoch}, and the epochs before {since} are compacted"
                raise Broken("a held epoch is not compacted", said)

    def _in_force(self, lower: int, upper: int) -> None:
        """Keep the columns that epochs have which were bound just now."""
        for source, columns in self._columns.items():
            for (text,) in self.ask(_SCHEMA, source):
                schema = decode_schema(text)
                within = [
                    f"{one.name}.{each.name}" for one in schema if pa.types.is_struct(one.type) for each in one.type
                ]
                names = frozenset([*schema.names, *within])
                columns.update(dict.fromkeys(range(lower, upper), names))

    def columns(self, source: str, epoch: int) -> frozenset[str] | None:
        """Return the columns that were in force when an epoch was bound; None for all that the source has.

        Of several streams also each column of one, as in `orders.id`.
        """
        return self._columns.get(source, {}).get(epoch)

    def taken_on(self, source: str) -> frozenset[str] | None:
        """Return the columns that were in force of any epoch, as `columns` does of one; None for all."""
        found = self._columns.get(source)
        return frozenset[str]().union(*found.values()) if found else None

    def _forget(self, since: int) -> None:
        """Look at the bindings that are left once those before an epoch are compacted."""
        if not self.since < since < self.published:
            said = f"the epochs before {since} are compacted, {self.published} are published, before it {self.since}"
            raise Broken("compaction leaves the last published epoch, and is not taken back", said)
        self.since = since
        if wrong := self._differing():
            raise Broken("compaction leaves the bindings of later epochs as they were", str(wrong))

    def _differing(self) -> list[Change]:
        """Return some bindings that the store has and should not, or lacks, as far as epochs can be told apart."""
        known = {
            (epoch, source, partition, position)
            for source, bound in self._bound.items()
            for epoch, found in bound.items()
            for partition, _, position in found.values()
        }
        there: set[Change] = {tuple(row[:4]) for row in self.ask(_CHANGES, 0)}
        began = dict(self.ask(_BEGAN, self.since))
        return sorted(known_since(known, self.since, began) ^ known_since(there, self.since, began))[:3]

    def go_back(self, forget: Forget) -> None:
        """Forget what the store has not bound: an older copy was put in its place.

        forget: is told the places that no binding is left of, each after its source: they are to be learnt anew.
        """
        [(upper, published, self.since)] = self.ask(_FLOW)
        for source, place in self._set_aside(upper):
            forget(source, place)
        self.upper, self.published = upper, published

    def come_back(self, held: int, forget: Forget) -> None:
        """Remember what a recovered store has. held: the epochs before it are in some table.

        forget: as for `go_back`. Raises `Broken` where the store lacks an epoch that a table holds, or has a binding
        that never was.
        """
        [(upper, published, self.since)] = self.ask(_FLOW)
        there: dict[int, set[tuple[str, str, int]]] = {}
        details: dict[tuple[str, str], str] = {}
        for epoch, source, partition, position, detail in self.ask(_CHANGES, 0):
            there.setdefault(epoch, set()).add((source, partition, position))
            details[source, partition] = detail
        parted = min(upper, self._parted(there))
        before, again = {*self._known()}, self._again(range(parted, upper), there)
        gone = self._set_aside(parted)
        for epoch, bound in again.items():
            for source, places in bound.items():
                self._bound[source][epoch] = dict(places)
                self._moved[source].append(epoch)
        self._stand()
        if wrong := self._differing():
            raise Broken("a recovered store has what the tables were written with", str(wrong))
        if upper < held:
            said = f"{upper} epochs are bound, and a table holds {held}"
            raise Broken("a recovered store has what the tables were written with", said)
        here = self._known()
        for source, place in gone:
            if (source, place) not in here:
                forget(source, place)
        for (source, place), partition in here.items():
            detail, new = details[source, partition], (source, place) not in before
            told = bool(detail) or (source, place) not in self._described
            if not told or (new and self._learnt(source, partition, detail) != place):
                said = f"{source}: of {partition}, which is {place}, it knows {detail}"
                raise Broken("a recovered store knows what its partitions are", said)
        self.upper, self.published = upper, published

    def _again(self, epochs: range, there: Mapping[int, StoredMoves]) -> dict[int, EpochBindings]:
        """Return what epochs are bound to that a store has again, as far as they ever were that."""
        ends, again = {source: self.until(source, epochs.start) for source in self._bound}, {}
        for epoch in epochs:
            moves = there.get(epoch, set()) if self._is_apart(epoch) else None
            again[epoch] = self._forgotten.again(epoch, moves, ends) or {}
            for source, places in again[epoch].items():
                ends[source].update({place: end for place, (_, _, end) in places.items()})
        return again

    def _learnt(self, source: str, partition: str, detail: str | None) -> str:
        """Return the place of a partition that the store knows this of."""
        place = self._upstreams[source].learn(partition, json.loads(detail or "{}"))
        if detail:
            self._described.add((source, place))
        return place

    def _is_apart(self, epoch: int) -> bool:
        """Whether compaction has left an epoch as it was."""
        return epoch > self.since or not self.since

    def _parted(self, there: Mapping[int, StoredMoves]) -> int:
        """Return the first epoch that is not what the store has, as far as epochs can be told apart."""
        known = {epoch: moves_of(bound) for epoch, bound in self._from(0).items()}
        differing = (epoch for epoch in {*there, *known} if there.get(epoch) != known.get(epoch))
        return min([self.upper, *filter(self._is_apart, differing)])

    def _from(self, least: int) -> dict[int, dict[str, dict[str, PlaceRange]]]:
        """Return what the epochs from one on are bound to."""
        found: dict[int, dict[str, dict[str, PlaceRange]]] = {}
        for source, moved in self._moved.items():
            for epoch in moved[bisect_left(moved, least) :]:
                found.setdefault(epoch, {})[source] = self._bound[source][epoch]
        return found

    def _set_aside(self, least: int) -> list[tuple[str, str]]:
        """Keep the bindings from an epoch on aside, and return the places that have none left."""
        before = self._known()
        for epoch, bound in self._from(least).items():
            self._forgotten.keep(epoch, bound)
            for source in bound:
                del self._bound[source][epoch]
        for moved in self._moved.values():
            del moved[bisect_left(moved, least) :]
        self._stand()
        here = self._known()
        return [one for one in before if one not in here]

    def _known(self) -> dict[tuple[str, str], str]:
        """Return the partition that is each place of a source."""
        return {
            (source, place): partition
            for source, places in self._places.items()
            for partition, place in places.items()
        }

    def _stand(self) -> None:
        """Find where each source is, by its bindings and those incarnations that the store has."""
        self._began.clear()
        self._began.update({source: began_at for source, _, began_at in self.ask(_INCARNATIONS)})
        for source, bound in self._bound.items():
            mine = [bound[epoch] for epoch in self._moved[source] if epoch >= self._began.get(source, 0)]
            self.frontiers[source] = {place: end for found in mine for place, (_, _, end) in found.items()}
            self._places[source] = {partition: place for found in mine for place, (partition, _, _) in found.items()}

    def _begin(self) -> None:
        """Forget where a source was that has begun a new incarnation: its positions are those of another upstream."""
        for source, _number, began_at in self.ask(_INCARNATIONS):
            if began_at != self._began.get(source):
                self._began[source] = began_at
                self.frontiers[source].clear()
                self._places[source].clear()

    def _bind(self, epoch: int, source: str, partition: str, position: int, *, upper: int) -> None:
        upstream, frontier, place = self._upstreams[source], self.frontiers[source], self._places[source][partition]
        # Retention may have taken records before anybody looked: they are not among those that the first binding has.
        before = frontier[place] if place in frontier else min(position, upstream.start(place))
        what = f"{source}, partition {partition}, epoch {epoch}: {position}"
        if epoch >= upper:
            raise Broken("a binding is of an epoch that is minted", f"{what}, and {upper} epochs are")
        if position < before:
            raise Broken("no frontier goes back", f"{what} after {before}")
        if position > upstream.end(place):
            raise Broken("only what is there is bound", f"{what}, and its end is {upstream.end(place)}")
        frontier[place] = position
        self._bound[source].setdefault(epoch, {})[place] = (partition, before, position)
        if self._moved[source][-1:] != [epoch]:
            self._moved[source].append(epoch)

    def holds(self, source: str, upper: int) -> int:
        """Return the first epoch that an output lacks whose table has this upper.

        Epochs without records of its source are not committed: it holds them as soon as it holds those before them.
        So are those of an earlier incarnation whose records are lost.
        """
        moved, began = self._moved[source], self._began.get(source, 0)
        following = bisect_left(moved, upper)
        while following < len(moved) and moved[following] < began and self._is_lost(source, moved[following]):
            following += 1
        return max(upper, moved[following] if following < len(moved) else self.upper)

    def _is_lost(self, source: str, epoch: int) -> bool:
        return not any(self.ranges(source, epoch, whole=False))

    def until(self, source: str, upper: int) -> dict[str, int]:
        """Return the frontier of the epochs before `upper`, of all incarnations."""
        found: dict[str, int] = {}
        for epoch in self._moved[source]:
            if epoch >= upper:
                break
            found.update({place: position for place, (_, _, position) in self._bound[source][epoch].items()})
        return found

    def ranges(self, source: str, epoch: int, *, whole: bool) -> Iterator[tuple[str, int, int]]:
        """Yield what an epoch has of a source: the ranges of its places.

        whole: with the records noted as lost. A table has them that was committed before they were lost to others.
        """
        for place, (partition, lower, position) in self._bound[source].get(epoch, {}).items():
            at = lower
            if whole:
                yield place, lower, position
                continue
            for lost, until in self.ask(_LOSSES, source, partition, epoch, self.since, epoch, self.since):
                if at < min(lost, position):  # it may be one of another epoch that is compacted
                    yield place, at, min(lost, position)
                at = max(at, until)
            if at < position:
                yield place, at, position

    def partition(self, source: str, epoch: int, place: str) -> str:
        """Return the partition that a place was at an epoch, which has a range of it."""
        return self._bound[source][epoch][place][0]

    def began(self, source: str) -> int:
        """Return the epoch with which a source's present incarnation begins."""
        return self._began.get(source, 0)

    def incarnation(self, source: str) -> int:
        """Return the number of a source's present incarnation."""
        return next((int(number) for name, number, _began in self.ask(_INCARNATIONS) if name == source), 0)

    def failed(self) -> dict[str, str]:
        """Return the sources that have failed, each with the code of its error."""
        found = self.ask("SELECT name, failure FROM sources WHERE failed_at IS NOT NULL")
        return {name: str(json.loads(failure)["code"]) for name, failure in found}

    def failed_at(self, source: str) -> int:
        """Return the epoch at which a source has failed."""
        [(epoch,)] = self.ask("SELECT failed_at FROM sources WHERE name = ? AND failed_at IS NOT NULL", source)
        return int(epoch)

    def failed_outputs(self) -> set[str]:
        """Return the outputs that have failed."""
        return {name for (name,) in self.ask("SELECT name FROM outputs WHERE failed_at IS NOT NULL")}


def known_since(changes: Iterable[Change], since: int, began: Mapping[str, int]) -> set[Change]:
    """Return what can be known of changes when the epochs before one are compacted: later ones, and where all was.

    began: at which epoch a source began the incarnation that it was in then.

    >>> moves = [(0, "orders", "p0", 5), (2, "orders", "p0", 7), (2, "orders", "p1", 3), (4, "orders", "p0", 9)]
    >>> sorted(known_since(moves, 3, {"orders": 1}))
    [(3, 'orders', 'p0', 7), (3, 'orders', 'p1', 3), (4, 'orders', 'p0', 9)]
    >>> known_since(moves, 3, {"orders": 3})
    {(4, 'orders', 'p0', 9)}
    """
    kept, last = set[Change](), dict[tuple[str, str], Change]()
    for epoch, source, partition, position in sorted(changes):
        if epoch > since:
            kept.add((epoch, source, partition, position))
        elif epoch >= began.get(source, 0):
            last[source, partition] = (since, source, partition, position)
    return {*kept, *last.values()}


def moved(frontier: Mapping[str, int]) -> dict[str, int]:
    """Return the places of a frontier that have something."""
    return {place: position for place, position in frontier.items() if position > 0}
