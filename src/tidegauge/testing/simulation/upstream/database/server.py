"""`PostgresLog`: a server of PostgreSQL in memory: its tables, its log, its slots, and who is connected.

    a commit          is in the log at a place, with all that it changed
    a slot            knows what it was told is durable; a server that is killed forgets what came since it was kept
    a snapshot        has the rows that all transactions before the slot's first place made
    a connection      takes a slot, until it ends, is cut, or has been silent for a minute
    a standby         has all, until it is parted from the server, and takes its place on a timeline of its own

What a slot is told travels on the connection. While that is slow it stays on its way, and is lost with it.

Nothing here moves by itself: no clock, no chance, no thread.

Invariant: what committed at or after the place that a slot was told is never forgotten, but for what a standby lacks.

>>> table = DatabaseTable("orders", ("public", "orders"), pa.schema([("id", pa.int64())]), 16384)
>>> server = PostgresLog([table], VirtualClock())
>>> server.write([RowChange("orders", None, {"id": 5})])
>>> [len(one.changes) for one in server.database.log], server.end > server.database.log[0].place
([1], True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa  # noqa: F401 - for the example

from tidegauge.sources.postgres.catalog import TablePartition
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.upstream.database.partitioned import PartitionedTable, SpreadTables
from tidegauge.testing.simulation.upstream.database.tables import (
    AddedColumn,
    DatabaseRows,
    DatabaseTable,
    Row,
    RowChange,
)

__all__ = ["Line", "LogSlot", "PartedStandby", "PostgresLog"]

_FIRST: Final = 0x1A00000
_HEADER: Final = 0x38
"""Bytes of the record of a commit."""
_CHANGE: Final = 0x60
"""Bytes of a change."""


class Line(Protocol):
    """A connection that takes a slot."""

    @property
    def ended(self) -> bool:
        """Whether the server has seen that nobody is there any more."""
        ...


@dataclass(slots=True, eq=False)
class LogSlot:
    """A slot. confirmed: the place before which all is durable, as it was told. kept: the same, as it was written to
    the disk last. lost: why it can give nothing, "" if it can. line: who has it. synced: whether it came from
    another server while this one was its standby."""

    confirmed: int
    kept: int
    lost: str = ""
    line: Line | None = None
    temporary: bool = False
    synced: bool = False


@dataclass(frozen=True, slots=True)
class PartedStandby:
    """A standby that gets nothing more. place: where its log ends. slots: what those that it has were told."""

    place: int
    slots: Mapping[str, int]


class PostgresLog:
    """The server. end: how far its log goes. told: the furthest place that a slot was told of.

    away: whether it answers nobody. slow: whether what a slot is told stays on its way. sparing: whether it leaves
    out texts that a transaction has; large: the streams whose other texts it leaves out, too (see `messages`). cuts:
    how often all connections were cut. changes: how often there was news. open: the transactions that have not ended.
    parted: the partitions of tables that have some, by stream. spread: the tables that are partitions of another one.
    copied: the keys of rows that were read into files, by path and byte. numbers: those of first rows by their keys,
    by stream and place.
    timelines: where those before the present one have ended. standby: the one that was parted from it, if one was.
    shown: how far anybody knows that a log went. begun: whether anybody has followed the present timeline.
    """

    def __init__(self, tables: Sequence[DatabaseTable], clock: VirtualClock, spread: Sequence[str] = ()) -> None:
        self.database = DatabaseRows(tables)
        self.clock: Final = clock
        self.end = _FIRST
        self.told = self.shown = 0
        self.away = self.slow = self.sparing = False
        self.large: frozenset[str] = frozenset()
        self.cuts = self.changes = 0
        self.parted: Final = {one.stream: PartitionedTable(one) for one in tables if one.parted}
        self.spread: Final = SpreadTables([one for one in tables if one.stream in spread]) if spread else None
        self.copied: Final[dict[tuple[str, int], Sequence[Any]]] = {}
        self.numbers: Final[dict[tuple[str, int], Mapping[Any, int]]] = {}
        self.timelines: Final[list[int]] = []
        self.standby: PartedStandby | None = None
        self.begun = False
        self.slots: Final[dict[str, LogSlot]] = {}
        self.open: Final[set[int]] = set()
        self._ends: Final[dict[int, int]] = {}
        self._number = 700
        self._underway: Final[list[tuple[LogSlot, int]]] = []

    # What sessions of applications do.

    def begin(self) -> int:
        """Open a transaction."""
        self._number += 1
        self.open.add(self._number)
        return self._number

    def finish(self, number: int, changes: Sequence[RowChange]) -> None:
        """End a transaction, with its changes; with none where it is rolled back."""
        self.open.discard(number)
        changes = [routed for change in changes for routed in self._routed(change, number)]
        self.end += _CHANGE * (1 + len(changes))
        if changes:
            self.database.commit(self.end, at=self.clock.micros(), number=number, changes=changes)
            self._ends[self.end] = self.end + _HEADER
        self.end += _HEADER
        self.changes += 1

    def write(self, changes: Sequence[RowChange]) -> None:
        """Carry out a transaction."""
        self.finish(self.begin(), changes)

    def _routed(self, change: RowChange, number: int) -> Iterable[RowChange]:
        if self.spread is not None and change.stream in self.spread.attached:
            return self.spread.routed(change)
        table = self.parted.get(change.stream)
        return (change,) if table is None else table.routed(change, number)

    def detach_for_a_while(self, stream: str, work: Callable[[dict[Any, Row]], object]) -> None:
        """Detach one of the spread tables, change its rows, without a word in the log, and attach it again."""
        assert self.spread is not None  # noqa: S101 - it has such tables
        work(self.database.rows[stream])
        self.spread.attached[stream] = self.begin()
        self.finish(self.spread.attached[stream], [])

    def repartition(
        self, stream: str, work: Callable[[PartitionedTable, int], object], brought: Sequence[Row] = ()
    ) -> None:
        """Change which partitions a table has, in a transaction. Its rows are those of the partitions then.

        brought: rows that a partition has which is attached, from an earlier transaction.
        """
        table, rows, earlier = self.parted[stream], self.database.rows[stream], self.begin()
        self.finish(earlier, [])
        number = self.begin()
        work(table, number)
        table.bring(brought, earlier)
        rows.update({row[table.table.key]: row for row in brought})
        self.finish(number, [])
        for key in [key for key, row in rows.items() if not table.has(row)]:
            del rows[key]
        table.keep(self.end, self.horizon)

    def leaves(self, stream: str) -> tuple[TablePartition, ...]:
        """Return the partitions of a table, none where it has its rows itself."""
        return self.parted[stream].leaves if stream in self.parted else ()

    def attached(self, stream: str) -> int:
        """Return the transaction that attached a table to the one it is a partition of, 0 where it is none."""
        return 0 if self.spread is None else self.spread.attached.get(stream, 0)

    @property
    def horizon(self) -> int:
        """The number below which all transactions have ended."""
        return min([*self.open, self._number + 1])

    def grow(self, count: int) -> None:
        """Write other tables' changes to the log."""
        self.end += count * _CHANGE
        self.changes += 1

    def add_column(self, stream: str, column: Any, *, valued: bool) -> None:
        """Let a table have one more column: all changes from here on have it."""
        self.end += _CHANGE
        self.database.added.append(AddedColumn(self.end, stream, column, valued))
        self.end += _HEADER
        self.changes += 1

    def end_of(self, place: int) -> int:
        """Return where the commit at a place ends."""
        return self._ends[place]

    # What befalls it.

    def part(self, slots: Mapping[str, int]) -> None:
        """Give the standby nothing more. slots: those that it has, each with what it was told, at most the end."""
        self.standby = PartedStandby(self.end, dict(slots))

    def promote(self) -> None:
        """Be the standby that was parted: what it lacks is gone. Slots that it lacks are, too."""
        there = self.standby or PartedStandby(self.end, {})
        self.cut()
        self.open.clear()
        self.timelines.append(there.place)
        self.database, self.end = self.database.before(there.place), there.place + _CHANGE
        self.slots.clear()
        self.slots.update({name: LogSlot(at, at, synced=True) for name, at in there.slots.items()})
        self.standby, self.begun = None, False

    def follow(self, place: int) -> None:
        """Note that somebody was sent the log before a place, or has read the rows that it has made."""
        self.shown, self.begun = max(self.shown, place), True

    def checkpoint(self) -> None:
        """Keep what its slots know."""
        for slot in self.slots.values():
            slot.kept = slot.confirmed

    def cut(self) -> None:
        """Cut all connections. What slots are being told is lost."""
        self.cuts += 1
        self.changes += 1
        self._underway.clear()
        for name in [name for name, slot in self.slots.items() if slot.temporary]:
            del self.slots[name]

    def leave(self, *, killed: bool) -> None:
        """Answer nobody. killed: or it is stopped in order, and keeps what its slots know."""
        if not killed:
            self.checkpoint()
        self.away = True
        self.cut()
        for slot in self.slots.values():
            slot.confirmed = slot.kept
        self.open.clear()

    def come_back(self) -> None:
        """Answer again."""
        self.away = False
        self.changes += 1
        self.deliver()

    def tell(self, slot: LogSlot, place: int) -> None:
        """Hear that everything before a place is durable."""
        self._underway.append((slot, place))
        if not self.slow:
            self.deliver()

    def deliver(self) -> None:
        """Let slots hear all reports on their way, and from now on each at once."""
        self.slow = False
        for slot, place in self._underway:
            slot.confirmed = max(slot.confirmed, place)
            self.told = max(self.told, place)
        self._underway.clear()
