"""The laws, looked at from outside: in a database, in tables and in upstreams, simulated ones or real ones.

    at a binding           it is of the next epoch, goes back nowhere, and has nothing that upstream lacks (`ledger`)
    at publishing          every live output holds the epoch
    at an acknowledgement  every output of the source holds the acknowledged records
    at any time            a reader of all tables at a published epoch finds them there, the same each time; so do
                           those that hold it, whatever is compacted (`holding`)
    after the faults       before long, all records are bound, in every table, published and acknowledged
    at each status         no epoch is staged before its records have come whole
    at a bad record        its source fails, at the epoch that has it; or it is collected, in that epoch; or somebody
                           skips it, and it is a gap
    when rows change       the table has those of the new code, of every epoch, and no other
    places with others
    in the end             every epoch of every table has the rows that its bindings say, and no lease is left;
                           (`contents`); of one world, `leaks` has more

No code of the system decides here whether the system is right, but for the steps of a flow: they are run over each
epoch as one batch, because the rows of an epoch do not depend on how it was cut.

A law that breaks while a driver comes by is kept, and is raised by the world: it is not the driver's to handle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from random import Random
from typing import Final

import pyarrow as pa

from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.push import PieceUnreadable
from tidegauge.flow.board import Board
from tidegauge.flow.spec import FlowSpec
from tidegauge.sources.protocol import BadRecord
from tidegauge.sources.union.places import InputLife
from tidegauge.testing.simulation.contents import EpochContents, MadeBy
from tidegauge.testing.simulation.evidence import TableEvidence, UpstreamEvidence
from tidegauge.testing.simulation.lateness import LateOutputs, held_back
from tidegauge.testing.simulation.ledger import BindingLedger, Broken, Forget, moved
from tidegauge.testing.simulation.rows import by_epoch

__all__ = ["Checks"]


class Checks:
    """The laws of one world, and what they have to remember. broken: the first that did not hold."""

    def __init__(
        self,
        spec: FlowSpec,
        ledger: BindingLedger,
        lake: TableEvidence,
        upstreams: Mapping[str, UpstreamEvidence],
        made_by: MadeBy | None = None,
        coming: Collection[str] = (),
    ) -> None:
        self.broken: Broken | None = None
        self._spec: Final = spec
        self._ledger: Final = ledger
        self._lake: Final = lake
        self._upstreams: Final = upstreams
        self._read: Final = sorted(set().union(*(spec.origins(name) for name in spec.outputs)))
        self._seen: Final[dict[tuple[str, int], Counter[str]]] = {}
        self._boards: Final[dict[str, Board]] = {}  # what each driver has shown last
        self._behind: Final[set[str]] = set()
        """Outputs whose source had failed, and that may lack published epochs, or do as far as the driver knows."""
        self._driving = ""
        """The driver that has written to the store last."""
        self.late: Final = LateOutputs(spec, ledger, lake, coming=coming)
        self._clean: Final[dict[str, int]] = {}
        """Of each table: the epochs before it are known to have no bad record."""
        self.older = False
        """Whether somebody has put the store back, and it is not recovered."""
        self._blind = False
        """Whether somebody is about to recover it."""
        self.era = 0
        """How often the store went back, or came back to what the tables hold, or a table was removed."""
        self._telling: Final[dict[str, int]] = {}
        """Of who was told that upstream is the bound one: how often that had been recreated by then."""
        self._told_by: Final[dict[str, str]] = {}
        """Which driver told an upstream last."""
        self.skipped: Final[set[tuple[str, str, int]]] = set()
        """Bad records that somebody skipped: their sources, places and positions."""
        self._contents: Final = EpochContents(
            ledger, upstreams, self.skipped, made_by or (lambda name, _epoch: spec.outputs[name])
        )
        self._astray: Final[set[str]] = set()
        """Outputs that drivers did without while the store was older: their tables may be of the other history."""
        self._misled: Final[set[str]] = set()
        """Places that were told what the driver meant for those before them, which went in that very instant."""

    def put_back(self, forget: Forget) -> None:
        """Hear that the store is older than the tables. forget: see `BindingLedger.go_back`.

        Until it is recovered, nothing is known of what upstream may have been told.
        """
        self.older = True
        self._astray.clear()
        self.era += 1
        self._ledger.go_back(forget)
        self._excuse_failed()
        self.late.put_back()
        self._see_no_more(self._held())

    def recovering(self) -> None:
        """Look at nothing for a while: the store gets many epochs at once that were bound before."""
        self._blind = True

    def recovered(self, forget: Forget, *, without: Collection[str]) -> None:
        """Look at all again: the store has what the tables hold. Raises `Broken` where it has not.

        without: outputs that the flow lacked when it was recovered: epochs are published that only the others hold.
        """
        self._blind = self.older = False
        self._astray.clear()
        self._clean.clear()
        self.era += 1
        self._ledger.come_back(self._held(), forget)
        for name in without:
            self.late.left_out(name)
        self._see_no_more(self._ledger.upper)
        self._published()
        for source in self._read:
            self._acknowledged(source, self.late.names)

    def dropped(self, name: str, *, removed: bool) -> None:
        """Hear that an output was dropped while no driver ran. removed: its table is gone, and its rows.

        A backup from before that knows of a table that is gone.
        """
        self.late.dropped(name, removed=removed)
        if removed:
            self.era += 1
            self._clean.pop(name, None)
            self._read_anew(name)

    def remade(self, name: str) -> None:
        """Hear that all rows of a table have just become others. Raises `Broken` if these are wrong."""
        self._read_anew(name)
        self._ledger.follow()
        self._content(name)

    def _read_anew(self, name: str) -> None:
        """Forget what readers saw of a table."""
        for seen in [one for one in self._seen if one[0] == name]:
            del self._seen[seen]

    def parted(self) -> None:
        """Look at tables of two histories, one of them the store's: they have all that is published in common."""
        for name in [one for one in self._level() if one not in self._astray]:
            actual = self._rows(name)
            past = max(self._ledger.since, self.late.floor(name))
            for epoch in range(past + 1, self._ledger.published):
                self._contents.there(name, [epoch], actual)

    def _held(self) -> int:
        """Return the first epoch that no table holds."""
        return max(map(self._lake.upper, self._spec.outputs))

    def _see_no_more(self, least: int) -> None:
        """Forget what readers saw of epochs from one on: published and in no table, they may be bound anew."""
        for one in [one for one in self._seen if one[1] >= least]:
            del self._seen[one]

    def at(self, place: str, *, who: str = "", without: Collection[str] = (), first: bool = False) -> None:
        """Look at the newest durable facts when a driver comes to a place.

        who: which part of it. without: outputs that its flow does not have. first: whether a commit that was just
        made has brought all that its table has.
        """
        if self.broken is not None or self._blind:
            return
        try:
            if place == "store committed":
                before = self._ledger.upper
                self._ledger.follow()
                if before < self._ledger.upper:
                    self._derived()
                driver = who.partition(".")[0]
                self._driving = driver if driver in self._boards else self._driving
                self.late.found(driver, era=self.era)
                self._astray.update(without if self.older else ())
                for name in without:
                    self.late.left_out(name)
                if any(
                    upstream.made_anew or upstream.overtaken or upstream.spoilt
                    for upstream in self._upstreams.values()
                ):
                    self._excuse_failed()
            elif place == "after publish":
                self._published(by=who.partition(".")[0])
            elif place.endswith(": confirmed"):
                self._telling[who] = self._upstreams[place.removesuffix(": confirmed")].made_anew
            elif place.endswith(": acknowledged"):
                source = place.removesuffix(": acknowledged")
                self._told_by[source] = who.partition(".")[0]
                if self._telling.pop(who, 0) != self._upstreams[source].made_anew:
                    self._misled.update(self._upstreams[source].told())
                if not self.older:
                    self._acknowledged(source, without)
            elif (first or self.late.there) and place.endswith(": committed"):
                self.late.committed(place.removesuffix(": committed"), driver=who.partition(".")[0], first=first)
        except Broken as broken:
            self.broken = broken

    def _derived(self) -> None:
        """A union lacks nothing that is bound of an input, right after a binding. One that has failed does."""
        failed = self._ledger.failed() if self._spec.derived else {}
        for name, union in self._spec.derived.items():
            mine = self._ledger.frontiers[name]
            for one in union.made_of if mine and name not in failed else ():
                theirs, there = self._ledger.frontiers[one], dict(InputLife(one).mine(mine))
                if lacking := {place: end for place, end in theirs.items() if end > there.get(place, 0)}:
                    said = f"{name} has {there} of {one}, of which {lacking} is bound"
                    raise Broken("an epoch binds of a union what it binds of its inputs", said)

    def shown(self, board: Board, *, by: str = "") -> None:
        """Look at what a driver shows to people."""
        self._boards[by] = board
        for name, source in board.sources.items():
            if isinstance(source.unread, PieceUnreadable) and self.broken is None:  # nobody here removes one
                law = "an epoch is staged when all that it has of a source has come"
                self.broken = Broken(law, f"{name}: {source.unread.evidence}")

    def _excuse_failed(self) -> None:
        """Know which outputs have failed by now, or their sources: epochs are published without them.

        They catch up later: also one whose failure a store has forgotten that went back to a backup.
        """
        failed = self._ledger.failed()
        self._behind.update(name for name, plan in self._spec.outputs.items() if plan.source in failed)
        self._behind.update(self._ledger.failed_outputs())

    def _uppers(self, *, live: bool) -> dict[str, int]:
        """Return the first epoch that each output lacks. live: without those that have failed."""
        gone, lost = ({*self._ledger.failed_outputs()}, {*self._ledger.failed()}) if live else (set(), set())
        gone |= self.late.shut_out
        return {
            name: self._ledger.holds(plan.source, max(self._lake.upper(name), self.late.first(name)))
            for name, plan in self._spec.outputs.items()
            if name not in gone and plan.source not in lost
        }

    def _level(self) -> dict[str, int]:
        """Return the first epoch that each live output lacks, without those that catch up.

        While a source has failed, epochs are published without its outputs. Once it is resumed, they catch up. A
        commit that the driver has not heard of yet does not count: until then it goes on without that output.
        """
        uppers, board = self._uppers(live=True), self._boards.get(self._driving)
        heard = {} if board is None else {name: output.upper for name, output in board.outputs.items()}
        level = [
            name for name in uppers if min(uppers[name], heard.get(name, uppers[name])) >= self._ledger.published
        ]
        self._behind.difference_update(level)
        behind = self._behind | self.late.behind
        return {name: upper for name, upper in uppers.items() if name not in behind}

    def _published(self, *, by: str | None = None) -> None:
        """Look at the published epochs. by: the driver that has just published some, if one has."""
        self._ledger.follow()
        for name, upper in self._level().items():
            if upper < self._ledger.published:
                said = f"{self._ledger.published} epochs are published, {name} has {upper}"
                raise Broken("what is published is in every table", said)
        self.late.published(None if by is None else self._boards.get(by))
        for name in [one for one in self._spec.outputs if one not in self._astray]:
            self._decoded(name)

    def _decoded(self, name: str) -> None:
        """A table has no epoch with a bad record, unless its flow collects them."""
        source, upper = self._spec.outputs[name].source, self._lake.upper(name)
        if source in self._spec.collecting or not self._upstreams[source].spoilt:
            return
        for epoch in range(max(self._clean.get(name, 0), self.late.begun(name)), upper):
            bad = [
                one
                for place, one in self._contents.bad(source, epoch)
                if (source, place, one.position) not in self.skipped
            ]
            if bad:
                said = f"{name} holds epoch {epoch}, which has {bad[0]}"
                raise Broken("a bad record fails its source, or is collected", said)
        self._clean[name] = upper

    def _acknowledged(self, source: str, without: Collection[str]) -> None:
        told = self._upstreams[source].told()
        for name, plan in self._spec.outputs.items():
            if source not in self._spec.origins(name) or name in without:
                continue
            held = self._ledger.until(plan.source, self._ledger.holds(plan.source, self._lake.upper(name)))
            known = self.late.told(name)
            if plan.source != source:  # a union of it
                held, known = dict(InputLife(source).mine(held)), dict(InputLife(source).mine(known))
            for place, position in told.items():
                if position > max(held.get(place, 0), known.get(place, 0)) and place not in self._misled:
                    said = f"{place} is acknowledged to {position}, {name} holds it to {held.get(place, 0)}"
                    raise Broken("nothing is acknowledged before it is durable", said)

    def held(self, source: str, place: str) -> int:
        """Return how much of a place every output of its source holds."""
        uppers = [self._lake.upper(name) for name, plan in self._spec.outputs.items() if plan.source == source]
        held = [self._ledger.until(source, self._ledger.holds(source, upper)) for upper in uppers]
        return min((frontier.get(place, 0) for frontier in held), default=0)

    def read(self, random: Random) -> None:
        """Read all tables at one published epoch. Raises `Broken`."""
        if self._ledger.published == 0 or self._blind:
            return
        epoch = random.randrange(self._ledger.published)
        for name, upper in self._level().items():
            if upper <= epoch:
                raise Broken("readers find all tables at one epoch", f"{name} has {upper}, {epoch} is published")
            found = self._rows(name, epoch).get(epoch, Counter())
            if self._seen.setdefault((name, epoch), found) != found:
                raise Broken("a published epoch does not change", f"{name} at {epoch}")

    def holds(self, name: str, epoch: int, *, era: int) -> bool:
        """Whether a table can be read as of a published epoch, and could since `era`."""
        known = self._ledger.ask("SELECT name FROM outputs WHERE name = ?", name)
        there = self.late.floor(name) <= epoch < self._level().get(name, -1)
        plan = self._spec.outputs[name]
        if plan.past is not None and not self._lake.upper(name):  # it may get rows of an old one from the other table
            there = there and not self._ledger.began(plan.source)
        return bool(known) and not self.older and era == self.era and there

    def saw(self, name: str, as_of: int, rows: pa.Table) -> None:
        """Look at what a reader of a table saw as of an epoch. Raises `Broken`."""
        found = by_epoch(rows)
        if beyond := sorted(epoch for epoch in found if epoch > as_of):
            raise Broken("a reader sees nothing of later epochs", f"{name} as of {as_of}: {beyond}")
        for epoch in range(as_of + 1):
            there = found.get(epoch, Counter())
            if self._seen.setdefault((name, epoch), there) != there:
                raise Broken("a published epoch does not change", f"{name} at {epoch}, as of {as_of}")

    def _rows(self, name: str, as_of: int | None = None) -> dict[int, Counter[str]]:
        """Return the rows of a table by epoch, in no order."""
        return by_epoch(self._lake.rows(name, as_of=as_of))

    def caught_up(self, *, but: Collection[str] = ()) -> bool:
        """Whether all records are bound, in every live table, published and acknowledged.

        but: outputs that need not be that far, so that upstream need not be told. An output that has failed is one,
        and so is one that comes after any of these.
        """
        if self.older:
            return False
        self._ledger.follow()
        failed, upper, but = self._ledger.failed(), self._ledger.upper, held_back(self._spec, self._ledger, but)
        for name, upstream in self._upstreams.items() if not self.over() else ():
            bound = self._ledger.frontiers[name]
            if name not in failed and any(bound.get(place, 0) < end for place, end in upstream.there().items()):
                return False
        told = {*self._read}.difference(*map(self._spec.origins, but))
        if not failed and not all(self._is_acknowledged(name) for name in told):
            return False
        live = {name: upper for name, upper in self._uppers(live=True).items() if name not in but}
        return all(held >= upper for held in live.values()) and (not live or self._ledger.published >= upper)

    def over(self) -> bool:
        """Whether the sources of all outputs have failed, so that nobody reads the others any more."""
        return {plan.source for plan in self._spec.outputs.values()} <= self._ledger.failed().keys()

    def state(self) -> str:
        """Return how far everything is, for people."""
        ledger = self._ledger
        return (
            f"{ledger.upper} epochs are bound and {ledger.published} published; the tables have "
            f"{self._uppers(live=False)}; bound is {ledger.frontiers}; upstream has "
            f"{ {name: upstream.there() for name, upstream in self._upstreams.items()} }"
        )

    def at_the_end(self, *, orderly: bool, after: Collection[str] = ()) -> None:
        """Look at everything once more. orderly: whether the last driver stopped as it was told. Raises `Broken`.

        after: drivers without the lease that woke up when it had stopped. What one of them was about to tell an
        upstream is old, and nobody is left to tell that one anew.
        """
        if self.broken is not None:
            raise self.broken
        self._ledger.follow()
        if orderly and (leases := self._ledger.ask("SELECT holder FROM leases")):
            raise Broken("a driver that stops gives its lease back", str(leases))
        self.late.settled()
        failed = self._ledger.failed()
        for name, upstream in self._upstreams.items():
            needed = upstream.overtaken or (failed.get(name) == RecordUnparsable.code and self.failing(name))
            if name in failed and not needed:
                raise Broken("no source fails without need", name)
        failing = {name: self._spec.outputs[name].source for name in self._ledger.failed_outputs()}
        for name, source in failing.items():
            upstream = self._upstreams[source]
            if not (upstream.overtaken or upstream.spoilt):
                raise Broken("no output fails without need", name)
        for name in self._spec.outputs:
            self._decoded(name)
            self._content(name)
        behind = frozenset[str]().union(*map(self._spec.origins, held_back(self._spec, self._ledger, ())))
        for name in self._read:
            told = orderly and not failed and self._told_by.get(name) not in after
            if told and name not in behind and not self._is_acknowledged(name):
                said = f"{name}: {self._upstreams[name].told()}, bound {self._ledger.frontiers[name]}"
                raise Broken("what is published is acknowledged in the end", said)

    def failing(self, source: str) -> list[tuple[str, BadRecord]]:
        """Return the bad records at which a source has failed."""
        return self._contents.bad(source, self._ledger.failed_at(source))

    def _is_acknowledged(self, source: str) -> bool:
        """Whether upstream was told of all that is bound, where it keeps what it is told."""
        upstream, bound = self._upstreams[source], moved(self._ledger.frontiers[source])
        told = {
            place: min(position, bound.get(place, 0)) if place in self._misled else position
            for place, position in upstream.told().items()
        }
        return not upstream.acknowledges or moved(told) == bound

    def _content(self, name: str) -> None:
        """Every epoch of a table has the rows that its bindings say."""
        actual, upper = self._rows(name), self._lake.upper(name)
        if beyond := sorted(epoch for epoch in actual if epoch >= upper):
            raise Broken("no row is of an epoch that its table does not hold", f"{name}: {beyond}")
        for epoch in range(upper):
            found = actual.get(epoch, Counter())
            if self._seen.get((name, epoch), found) != found:
                raise Broken("a published epoch does not change", f"{name} at {epoch}, in the end")
        if early := sorted(epoch for epoch in actual if epoch < self.late.floor(name)):
            raise Broken("no row is of an epoch before that of its table's past", f"{name}: {early}")
        first, stamp = self.late.first(name), self.late.stamp(name)
        self._contents.all_there(name, actual, upper=upper, first=first, stamp=stamp)
