"""What befalls a simulated PostgreSQL, and what a flow has to have of its transactions: see `PostgresLog`.

Invariant: a slot is taken away or moved on by somebody else alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.remap.fromtime.lsn import WAL
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.later import LaterTables
from tidegauge.sources.postgres.source import PostgresSource
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.database.partitioned import PARTS, PartitionedTable, quarter
from tidegauge.testing.simulation.upstream.database.sender import SimulatedServer
from tidegauge.testing.simulation.upstream.database.server import PartedStandby, PostgresLog
from tidegauge.testing.simulation.upstream.database.source import SimulatedPostgres, over_postgres
from tidegauge.testing.simulation.upstream.database.tables import DatabaseRows, DatabaseTable, LoggedTransaction, Row
from tidegauge.testing.simulation.writers.database import TableBeginning, data_tables, row_of
from tidegauge.testing.simulation.writers.feed import WorldMeeting

__all__ = ["FollowedPostgres"]

_BITS: Final = 32
_WHOLE: Final = 0.3
"""How often the log has old rows of a table."""
_SPILL: Final = 200
"""Bytes of a transaction from which on it is written to files, in some worlds: two changes, or three."""
_SPILLS: Final = 0.4
_LARGE: Final = 0.5
"""How often texts are large, where outputs can fill them in."""
_PARTS_GO: Final = 0.5
"""How often a table that changes gets a partition as well, and a loss is one of rows that go with partitions."""
_SPREAD: Final = 0.7
"""How often tables with the same columns are partitions of one that is not followed."""
_SYNCED: Final = 0.8
"""How often a standby has the slot."""
_PARTED: Final = 0.4
"""How often the rows of a table are in partitions, if its key is a number."""
_VALUED: Final = 0.2
"""How often a column comes with values in the rows of before."""


class FollowedPostgres:
    """The server. folder: the source's. cut: how many frames come at once. filling: see `writers.upstream_of`."""

    def __init__(
        self,
        source: PostgresSource,
        clock: VirtualClock,
        folder: SourceFolder,
        random: Random,
        cut: Callable[[int], int],
        filling: Collection[str] = (),
    ) -> None:
        self.overtaken = False
        self.bereft: Final[set[str]] = set()
        """The streams whose rows came or went without a word in the log."""
        self.place: Final = WAL
        self._source: Final = source
        self._folder: Final = folder
        self._cut: Final = cut
        self._former: tuple[DatabaseRows, int] | None = None
        """The tables by the last log that somebody has begun with, and its end, if that is not the server's."""
        parts = _apart(random)
        tables = data_tables(source, lambda: random.random() < _WHOLE)
        spread = _alike(tables) if parts.random() < _SPREAD else ()
        numbered = [one.stream for one in tables if one.columns.types[0] == pa.int64() and one.stream not in spread]
        tables = tuple(replace(one, parted=one.stream in numbered and parts.random() < _PARTED) for one in tables)
        self._spill: Final = _SPILL if random.random() < _SPILLS else None
        self.log: Final = PostgresLog(tables, clock, spread)
        self.log.sparing = self._spill is None  # in a file, a value is known within its piece alone
        if random.random() < _LARGE:
            self.log.large = frozenset(filling)

    @property
    def followed(self) -> DatabaseRows:
        """The tables, by the log that the flow has begun with."""
        return self.log.database if self.log.begun or self._former is None else self._former[0]

    @property
    def large(self) -> frozenset[str]:
        """The streams whose changes leave large values out."""
        return self.log.large

    def end(self, place: str) -> int:  # noqa: ARG002 - there is one
        """The end of the log, or of the one before it, if that is further."""
        return max(self.log.end, 0 if self._former is None else self._former[1])

    def source(self, meet: WorldMeeting) -> SimulatedPostgres:
        """Return the source, as one driver has it."""
        server = SimulatedServer(self.log, cut=self._cut, meet=meet, wait=meet.wait, gone=meet.gone, spawn=meet.spawn)
        return over_postgres(self._source, self._folder, server, self._spill)

    def told(self) -> int:
        """Return the furthest place that a slot was told of."""
        return self.log.told

    def begins(self, table: DatabaseTable) -> TableBeginning | None:
        """Return where a table began, None where it has not."""
        name, record = ".".join(table.place), self._folder.stream()
        if record is None or not record.point:
            return None
        if name in record.oids:
            return TableBeginning(record.point, record.point, (WAL, record.point - 1), record.at)
        joined = LaterTables(self._folder, record.identity, record.incarnation).joined.get(name)
        if joined is None:
            return None
        return TableBeginning(joined.since, joined.place, (WAL, joined.place - 1), joined.at)

    def fitted(self, table: DatabaseTable, row: Row) -> Row:
        """Return a row with a key that a partition has: where there is none, half of all keys further down."""
        parted = self.log.parted.get(table.stream)
        return row if parted is None or parted.holds(row) else {**row, table.key: row[table.key] - (1 << 63)}

    def numbered(self, table: DatabaseTable, place: int, rows: Sequence[Row]) -> Iterable[tuple[int, Row]]:
        """Yield first rows with their numbers, which those who read them have given them."""
        numbers = self.log.numbers[table.stream, place]
        return ((numbers[row[table.key]], row) for row in rows)

    def first(self, row: Row, place: int, at: int, number: int) -> dict[str, Any]:
        """Return a row that was there at the beginning."""
        return _row(row, "insert", place, at, number)

    def changed(self, transaction: LoggedTransaction, table: DatabaseTable) -> Iterator[dict[str, Any]]:
        """Yield the rows that a transaction makes of a table."""
        mine = [change for change in transaction.changes if change.stream == table.stream]
        for number, change in enumerate(mine):
            old, new, place = change.old, change.new, transaction.place
            moved = old is not None and (new is None or table.whole or old[table.key] != new[table.key])
            if old is not None and moved:
                shown = {name: value if table.whole or name == table.key else None for name, value in old.items()}
                yield _row(shown, "delete", place, transaction.at, 2 * number)
            if new is not None:
                op = "update" if old is not None and not moved else "insert"
                yield _row(new, op, place, transaction.at, 2 * number + moved)

    def act(self, act: Act, random: Random) -> None:
        """Do what befalls such a server alone."""
        log = self.log
        match act.what:
            case "compact":
                log.checkpoint()
            case "grow":
                log.grow(act.number)
            case "alter":
                self._add_column(random)
                self._add_partition(_apart(random))
            case "retention":
                parts = _apart(random)
                if not (parts.random() < _PARTS_GO and self._lose_rows(parts)):
                    self._lose_slot(random)
            case "bereave":
                self._lose_rows(random)
            case "cut":
                log.cut()
            case "part":
                self._part(random)
            case "promote":
                self._promote()
            case "late":
                log.slow = True
            case "arrive":
                log.deliver()

    def _add_partition(self, random: Random) -> None:
        """Let a table have the partition that it lacks."""
        free = [one for one in self.log.parted.values() if PARTS - 1 not in one.parts]
        if free and random.random() < _PARTS_GO and not self.log.open:  # who writes to it is younger
            made = random.random() < 0.5
            self._repartition(random.choice(free), lambda table, by: table.attach(PARTS - 1, by, made=made))

    def _lose_rows(self, random: Random) -> bool:
        """Have rows come or go with a partition, if there is one, and the flow has an epoch."""
        record, spread = self._folder.stream(), self.log.spread
        if record is None or not record.done:
            return False
        if spread is not None:
            stream = random.choice([*spread.attached])
            self.overtaken = True
            self.bereft.add(stream)
            self.log.detach_for_a_while(stream, dict.clear)
            self._wait_for_standby()
            return True
        if not self.log.parted:
            return False
        parted = random.choice([*self.log.parted.values()])
        number = random.choice([*parted.parts])
        if not any(quarter(key) == number for key in self.log.database.rows[parted.table.stream]):
            return False
        self.overtaken = True
        self.bereft.add(parted.table.stream)
        match random.randrange(3):
            case 0:  # another one is in its place, with the rows that went
                rows = [
                    row for key, row in self.log.database.rows[parted.table.stream].items() if quarter(key) == number
                ]
                self._repartition(parted, lambda table, _: table.detach(number))
                self._repartition(parted, lambda table, by: table.attach(number, by, made=False), rows)
            case 1:
                self._repartition(parted, lambda table, by: table.attach_again(number, by))
            case _:
                self._repartition(parted, lambda table, _: table.empty(number))
        return True

    def _repartition(
        self, parted: PartitionedTable, work: Callable[[PartitionedTable, int], object], rows: Sequence[Row] = ()
    ) -> None:
        self.log.repartition(parted.table.stream, work, rows)
        self._wait_for_standby()

    def _wait_for_standby(self) -> None:
        """Have the standby get the last change of a table, which is not made before it is there."""
        if (there := self.log.standby) is not None:
            self.log.part(there.slots)

    def _add_column(self, random: Random) -> None:
        """Let a table have one more column, some with values in the rows of before."""
        added, stream = self.log.database.added, random.choice([*self.log.database.tables])
        column = pa.field(f"more_{len(added)}", random.choice((pa.int64(), pa.string(), pa.decimal128(10, 2))))
        self.log.add_column(stream, column, valued=random.random() < _VALUED)
        self._wait_for_standby()

    def _lose_slot(self, random: Random) -> None:
        """Drop the slot, move it on behind the flow's back, or let the server remove log that it needs."""
        slot = self.log.slots.get(self._source.setup.slot)
        if slot is None or slot.temporary:
            return
        self.overtaken = True
        self.log.cut()
        match random.randrange(3):
            case 0:
                del self.log.slots[self._source.setup.slot]
            case 1:
                slot.confirmed = slot.kept = self.log.end
            case _:
                slot.lost = "the server removed log that it needed (wal_status is 'lost')"

    def _part(self, random: Random) -> None:
        """Give the standby nothing more. It has the slot, or an older state of it, or none."""
        name = self._source.setup.slot
        slot = self.log.slots.get(name)
        there = slot is not None and not slot.temporary and not slot.lost and random.random() < _SYNCED
        self.log.part({name: random.choice((slot.confirmed, slot.kept))} if there and slot is not None else {})

    def _promote(self) -> None:
        """Have the standby in the place of the server. What it lacks may be what somebody has read."""
        log, slot = self.log, self.log.slots.get(self._source.setup.slot)
        there = log.standby or PartedStandby(log.end, {})
        lacks = slot is not None and not slot.temporary and self._source.setup.slot not in there.slots
        known = log.begun or self._folder.stream() is not None
        begins = known and not self.told()  # a run may know the server, and have no epoch yet
        self.overtaken = self.overtaken or lacks or begins or log.shown > there.place
        if log.begun or self._former is None:
            self._former = log.database, self.end(self.place)
        log.promote()


def _alike(tables: Sequence[DatabaseTable]) -> tuple[str, ...]:
    """Return the streams of tables with the columns of the first one, if they are several, whose keys are numbers."""
    first = tables[0].columns
    found = tuple(one.stream for one in tables if one.columns == first)
    return found if len(found) > 1 and first.types[0] == pa.int64() else ()


def _apart(random: Random) -> Random:
    """Return a generator of its own: the other one draws the same numbers as without it, so old seeds stay good."""
    found = Random()  # noqa: S311 - nothing is secret here
    found.setstate(random.getstate())
    found.seed(found.random())
    return found


def _row(row: Row, op: str, place: int, at: int, order: int) -> dict[str, Any]:
    """Return a row of a stream. order: where it is in its transaction."""
    return row_of(row, op, (WAL, place, at), (place << _BITS) + order)
