"""The tables of one connection that came later: which are on their way, and what they give where they join.

The log may stand still when a table is ready, and its last transaction may be bound. So the rows of a table have a
position of their own: a partition of the source's clock (`ServerKind.joins`) counts how often tables joined. It is
bound with the transactions before, in one epoch.

Invariant: what a table gives where it joins is durable (`later`) before it is given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.mysqlsource import (
    BinlogPastFirstRows,
    BinlogServerUnfit,
    BinlogSnapshotLost,
    FirstRowsOutdated,
)
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.attempts import RowsAttempts
from tidegauge.sources.database.folder import LogBeginning
from tidegauge.sources.database.later import LaterTables
from tidegauge.sources.mysql.arriving import TablesUnderWay, given_later
from tidegauge.sources.mysql.catalog import FollowedTable
from tidegauge.sources.mysql.followed import BinlogSetup
from tidegauge.sources.mysql.gathering import EventGathering
from tidegauge.sources.mysql.shapes import LoggedTable

__all__ = ["AddedTables", "began_with"]


def began_with(record: LogBeginning, names: Collection[str]) -> LogBeginning:
    """Return where a stream begins, with the tables with which it did: these, if an older version wrote it.

    >>> began_with(LogBeginning("3-57-9", "server 57", 0, point=10), ["shop.orders"]).oids
    {'shop.orders': 0}
    """
    if not record.point or record.oids:
        return record
    return replace(record, oids=dict.fromkeys(names, 0))


class AddedTables:
    """These tables. Its methods do not wait.

    record: where the source began, None where that is not known. domain: whose transactions change the tables. start:
    where the stream is to begin. bound: the bound frontier. there: how far the log goes.
    """

    def __init__(
        self,
        setup: BinlogSetup,
        identity: str,
        incarnation: int,
        record: LogBeginning | None,
        domain: str,
        start: Frontier,
        bound: Frontier,
        there: Frontier,
    ) -> None:
        self._setup: Final = setup
        self._domain: Final = domain
        self._later: Final = LaterTables(setup.folder, identity, incarnation)
        self._start: Final = start
        self._joins: Final = "" if setup.kind.joins in there else setup.kind.joins
        self._given = start[self._joins]
        self._arriving: TablesUnderWay | None = None
        names = setup.names
        late = set() if record is None else record.later(names)
        if record is not None:
            shown = setup.server.shown
            self._later.take_out(names, record.oids, bound[domain], source=shown, shown=lambda one: f"{one - 1}")
        joined = {name: one for name, one in self._later.joined.items() if names.get(name) in late}
        self._declared: Final = {one.stream: one for one in joined.values()}
        self._waiting = {name: one for name, one in self._later.joined.items() if one.place > self._given}
        """The tables that join at a place that is yet to come, by name. Those that were taken out give nothing."""
        places = [one.place for one in self._later.joined.values()]
        self._last = max(start[self._joins], bound[self._joins], *places)
        """The last place at which tables joined."""
        self._awaited: dict[str, FollowedTable | None] = dict.fromkeys(late - self._declared.keys())
        """The streams that have not joined: each with its table, None for one that cannot be read at present."""
        self._unfit: dict[str, Transient] = {}
        self._attempts: Final = RowsAttempts(setup.server.shown, setup.server.clock)
        self.outdated = False
        """Whether a look at the tables may show others than the last one, since reading them has failed."""
        self.late = frozenset(late)
        """The streams that came later."""

    @property
    def awaited(self) -> Collection[str]:
        """The streams that have not joined."""
        return self._awaited.keys()

    @property
    def hindered(self) -> TidegaugeError | None:
        """Why tables have to wait, None where nothing keeps them from being read."""
        return next(iter(self._unfit.values()), self._attempts.failure) if self._awaited else None

    @property
    def shapes(self) -> dict[str, LoggedTable]:
        """The columns of the tables that joined by their places, where the log does not name them."""
        return {stream: LoggedTable.decoded(one.shape) for stream, one in self._declared.items() if one.shape}

    def logged(self, position: Frontier) -> Frontier:
        """Return the part of a position that the server knows."""
        return Frontier({one: next_ for one, next_ in position.items() if one != self._joins})

    def reached(self, logged: Frontier) -> Frontier:
        """Return the position that has all of a position of the log, and all that joined and was given."""
        return Frontier({**logged, self._joins: self._given}) if self._given else logged

    def end(self, logged: Frontier) -> Frontier:
        """Return how far the source goes, where its log ends at a position."""
        place = max([self._given, *(one.place for one in self._waiting.values())])
        return Frontier({**logged, self._joins: place}) if place else logged

    def forget(self) -> None:
        """Forget all of it: the source begins anew, with all tables that it has. Raises why one cannot be read."""
        for error in self._unfit.values():
            raise error
        self.late = frozenset()
        self._awaited, self._unfit = {}, {}
        self._waiting = {}
        self._declared.clear()
        self._later.forget(self._setup.names)

    def see(self, tables: Mapping[str, FollowedTable]) -> None:
        """Take in how the tables of streams are. One that cannot be read keeps no other from it."""
        self.outdated = False
        for stream in self._awaited:
            error = self._setup.unfit(tables[stream]) if self._joins else self._no_place()
            self._unfit.pop(stream, None)
            if error is not None:
                self._unfit[stream] = error
                self._attempts.tell(self._named([stream]), error)
            self._awaited[stream] = None if error is not None else tables[stream]

    def begin(self, gathering: EventGathering) -> None:
        """Begin to wait for the tables. Raises `BinlogSnapshotLost`, `BinlogPastFirstRows`."""
        shown, path = self._setup.server.shown, self._setup.folder.path
        if not self._awaited:
            self._later.give_up()
        self._later.tidy(coming=False)  # a driver may have died before it did
        for stream in self._awaited:
            gathering.aside.pass_over(stream)
        for stream, one in self._declared.items():
            if one.table not in self._waiting:
                continue
            if one.done:
                raise BinlogPastFirstRows(source=shown, gtid=f"{self._domain}: {one.since - 1}")
            if not one.whole or one.upto < self._start[self._domain]:
                detail = f"files of {one.table} are missing in {path}"
                raise BinlogSnapshotLost(source=shown, gtid=f"{self._domain}: {one.since - 1}", detail=detail)
            gathering.aside.pass_over(stream, before=one.upto)

    def go_on(self, gathering: EventGathering) -> bool:
        """Go on a little; return whether tables have something to give at the place reached.

        What keeps their rows from being read is theirs alone: it is tried again, after growing delays.
        """
        try:
            if self._arriving is None:
                self._begin_reading(gathering)
            ready = self._arriving is not None and self._arriving.go_on(gathering)
        except (OSError, Transient) as error:
            self._give_up(gathering, error)
            ready = False
        return ready or any(one.upto <= gathering.reached[self._domain] for one in self._waiting.values())

    def given(self, gathering: EventGathering) -> list[tuple[str, pa.RecordBatch]]:
        """Have tables join at the place reached, and return what those give that join up to there."""
        found: list[tuple[str, pa.RecordBatch]] = []
        if not self.go_on(gathering):
            return found
        self._join(gathering)
        for one in sorted(self._waiting.values(), key=lambda each: each.place):
            if one.upto <= gathering.reached[self._domain]:
                del self._waiting[one.table]
                self._given = max(self._given, one.place)
                if self._declared.get(one.stream) is one:
                    gathering.join(one.stream, LoggedTable.decoded(one.shape) if one.shape else None)
                    found += [(one.stream, batch) for batch in given_later(one, self._domain, self._joins)]
        return found

    def settle(self, frontier: Frontier) -> None:
        """Take in that every output has everything before a position."""
        self._later.settle(frontier[self._joins], coming=False)

    def close(self) -> None:
        """Give up the reading of rows."""
        if self._arriving is not None:
            self._arriving.close()

    def _no_place(self) -> Transient:
        used = f"transactions of the domain {self._setup.kind.joins} are in its log, and added tables need it"
        remedy = "take the added tables out, and declare a source of another name for them"
        return BinlogServerUnfit(source=self._setup.server.shown, detail=used, remedy=remedy)

    def _named(self, streams: Collection[str]) -> list[str]:
        """Return the whole names of the tables of streams."""
        return [".".join(self._setup.tables[stream]) for stream in streams]

    def _begin_reading(self, gathering: EventGathering) -> None:
        """Begin to read the rows of the tables that can be read, if it is time to."""
        coming = {stream: table for stream, table in self._awaited.items() if table is not None}
        if coming and not self.outdated and self._attempts.due:
            self._arriving = TablesUnderWay(self._setup, self._later, self._domain, coming, gathering)

    def _give_up(self, gathering: EventGathering, error: Exception) -> None:
        for stream in self._awaited:
            gathering.aside.pass_over(stream)
        self.close()
        if isinstance(error, FirstRowsOutdated):
            self._later.give_up()
        self._arriving, self.outdated = None, True
        self._attempts.failed(self._named(self._awaited), error)

    def _join(self, gathering: EventGathering) -> None:
        """Have the tables join that are whole."""
        if self._arriving is None:
            return
        place = max(self._last, 1) + 1
        try:
            if not self._arriving.go_on(gathering):
                return
            joined = self._arriving.joined(gathering, place)
        except (OSError, Transient) as error:
            self._give_up(gathering, error)
            return
        self._later.join(joined)
        self._last = place
        for one in joined:
            self._declared[one.stream] = self._waiting[one.table] = one
            del self._awaited[one.stream]
            self._unfit.pop(one.stream, None)
        self._arriving = None
        self._attempts.succeeded()
