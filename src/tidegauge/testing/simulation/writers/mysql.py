"""What befalls a simulated MariaDB or MySQL, and what a flow has to have of its transactions: see `BinlogLog`.

Its log is purged, also past the flow; it is begun anew (RESET MASTER); an older copy of the server is put back; a
table is emptied, dropped, or changed, or a row goes by its key alone.

Invariant: a flow that has begun with a log has the rows of that one, whatever takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.later import LaterTables, joined_places
from tidegauge.sources.mysql.source import MySqlSource
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.database.binlog import BinlogLog
from tidegauge.testing.simulation.upstream.database.binlog_events import BinlogTransaction, LoggedEvent, events
from tidegauge.testing.simulation.upstream.database.binlog_sender import SimulatedBinlogServer
from tidegauge.testing.simulation.upstream.database.source import SimulatedMySql, over_mysql
from tidegauge.testing.simulation.upstream.database.tables import (
    DatabaseRows,
    DatabaseTable,
    LoggedTransaction,
    Row,
    RowChange,
)
from tidegauge.testing.simulation.writers.database import TableBeginning, data_tables, row_of
from tidegauge.testing.simulation.writers.feed import WorldMeeting

__all__ = ["FollowedBinlog"]

_BITS: Final = 40
_SPILL: Final = 80
"""Bytes of a table's changes in a transaction from which on they are written to files, in some worlds: two rows."""
_SPILLS: Final = 0.4
_UNTOLD: Final = 40
"""How much of `retention` it takes that the log does not tell a row that goes."""
_EARLY: Final = 0.5
"""How often a column comes right behind the key."""


class FollowedBinlog:
    """The server. folder: the source's. cut: how many events come at once."""

    def __init__(
        self,
        source: MySqlSource,
        clock: VirtualClock,
        folder: SourceFolder,
        random: Random,
        cut: Callable[[int], int],
    ) -> None:
        self.overtaken = False
        self.large: Final[frozenset[str]] = frozenset()
        self._source: Final = source
        self._folder: Final = folder
        self._cut: Final = cut
        self._spill: Final = _SPILL if random.random() < _SPILLS else None
        self._together: Final = random.randrange(1, 4)
        self.log: Final = BinlogLog(data_tables(source, lambda: True), clock, source.setup.kind)
        self.place: Final = self.log.domain
        self._joins: Final = source.setup.kind.joins
        self._followed: DatabaseRows | None = None
        self._last: dict[str, int] = {}

    @property
    def followed(self) -> DatabaseRows:
        """The tables, by the log that the flow has begun with."""
        return self._followed or self.log.database

    def end(self, place: str) -> int:
        """Return the next number of a domain or a server, also of the log that the flow has begun with."""
        if place == self._joins:
            return max(joined_places(self._folder).values(), default=0)
        return max(self._last.get(place, 0), self.log.executed.get(place, 0)) + 1

    def source(self, meet: WorldMeeting) -> SimulatedMySql:
        """Return the source, as one driver has it."""
        log, together = self.log, self._together
        server = SimulatedBinlogServer(
            log,
            cut=self._cut,
            together=together,
            meet=meet,
            wait=meet.wait,
            gone=meet.gone,
            spawn=meet.spawn,
        )
        return over_mysql(self._source, self._folder, server, self._spill)

    def told(self) -> int:
        """Return 0: such a server is told of nothing."""
        return 0

    def begins(self, table: DatabaseTable) -> TableBeginning | None:
        """Return where a table began, None where it has not."""
        name, record = ".".join(table.place), self._folder.stream()
        if record is None or not record.point:
            return None
        if name in record.oids:
            return TableBeginning(record.point, record.point, (self.place, record.point - 1), record.at)
        joined = LaterTables(self._folder, record.identity, record.incarnation).joined.get(name)
        if joined is None:
            return None
        return TableBeginning(joined.since, joined.upto, (self._joins, joined.place - 1), joined.at)

    def fitted(self, table: DatabaseTable, row: Row) -> Row:  # noqa: ARG002
        """Return the row: tables take all keys."""
        return row

    def numbered(self, table: DatabaseTable, place: int, rows: Sequence[Row]) -> Iterable[tuple[int, Row]]:  # noqa: ARG002
        """Yield first rows with their numbers: they are read in their order."""
        return enumerate(rows)

    def first(self, row: Row, place: int, at: int, number: int) -> dict[str, Any]:
        """Return a row that was there at the beginning."""
        return row_of(row, "insert", (self.place, place, at), (place << _BITS) + number)

    def changed(self, transaction: LoggedTransaction, table: DatabaseTable) -> Iterator[dict[str, Any]]:
        """Yield the rows that a transaction makes of a table."""
        place = (self.place, transaction.place, transaction.at)
        within = {(one.change, one.after): one.at for event in self._events(transaction) for one in event.images}
        for number, change in enumerate(transaction.changes):
            if change.stream != table.stream:
                continue
            old, new, key = change.old, change.new, table.key
            moved = old is not None and (new is None or old[key] != new[key])
            for row, op, after in ((old if moved else None, "delete", False), (new, "update", True)):
                if row is not None:
                    said = "insert" if after and (old is None or moved) else op
                    sequence = (transaction.place << _BITS) + within[number, after]
                    yield row_of(row, said, place, sequence)

    def _events(self, transaction: LoggedTransaction) -> Iterator[LoggedEvent]:
        one = BinlogTransaction(self.place, transaction.number, 0, 0, transaction.changes)
        tables = self.followed.tables_at(transaction.number)
        return events(one, tables, self.log.kind, together=self._together)

    def act(self, act: Act, random: Random) -> None:
        """Do what befalls such a server alone."""
        match act.what:
            case "grow":
                self.log.grow(act.number)
            case "cut":
                self.log.cut()
            case "late" if not (self.log.away or self.log.kind.by_sets):  # first rows of a MySQL wait for commits
                self.log.hold_up()
            case "arrive":
                self.log.let_go()
            case "alter" if not self.log.away:
                self._add_column(random)
            case "retention" if not self.log.away and act.number == _UNTOLD:
                self._tell_less(random)
            case "retention" if not self.log.away:
                self._lose(random)

    def _add_column(self, random: Random) -> None:
        """Let a table have one more column, also in the midst of the others where the log names them."""
        table = random.choice([*self.log.database.tables.values()])
        column = pa.field(
            f"more_{len(self.log.database.added)}", random.choice((pa.int64(), pa.string(), pa.decimal128(10, 2)))
        )
        if not self.log.is_read(table):  # or it waits for that, and is given up
            self.log.add_column(table, column, early=self.log.kind.named and random.random() < _EARLY)

    def _tell_less(self, random: Random) -> None:
        """Let a row go in a session whose log has keys alone."""
        table = random.choice([*self.log.database.tables.values()])
        if rows := [*self.log.database.rows[table.stream].values()]:
            self.overtaken = True
            self.log.write([RowChange(table.stream, random.choice(rows), None)], keys=True)

    def _lose(self, random: Random) -> None:
        """Take something from the flow that it needs."""
        self.overtaken = True
        begun = self._folder.stream()
        log, table = self.log, random.choice([*self.log.database.tables.values()])
        match random.choice(("purge", "reset", "put back", "truncate", "change", "drop")):
            case "purge":
                log.cut()
                if random.random() < 0.7:  # or the flow has all that is purged
                    log.state("ANALYZE TABLE {}", table)
                log.purge(log.executed)
            case "reset":
                self._keep(begun=begun is not None)
                log.reset()
            case "put back" if begun is not None and begun.done:
                self._keep(begun=True)
                log.put_back(len(log.transactions))
            case "truncate" | "change" | "drop" if log.is_read(table):
                pass  # it waits for the reader, and is given up
            case "truncate":
                log.state("TRUNCATE TABLE {}", table)
            case "change" if not log.kind.named and random.random() < _EARLY:
                log.add_column(table, pa.field("more", pa.int64()), early=True)
            case "change":
                log.state("ALTER TABLE {} MODIFY nothing int FIRST", table)
            case "drop":
                log.drop(table)

    def _keep(self, *, begun: bool) -> None:
        """Remember the log, which is about to become another one."""
        if begun and self._followed is None:
            self._followed, self._last = self.log.database, dict(self.log.executed)
