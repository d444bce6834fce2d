"""The sessions of applications with a simulated database, and what befalls its server: see `PostgresLog`.

A transaction changes rows of several tables: some come, others change, some get another key, some go. What a flow has
to have of it is told from the transaction, and not by the code that decodes it.

Invariant: what a transaction does depends on the seed, the instant, and the rows that are there by then.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

import pyarrow as pa

from tidegauge.remap.fromtime.lsn import WAL
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.postgres.source import PostgresSource
from tidegauge.sources.protocol import BadRecord
from tidegauge.sources.push.source import PushedSource
from tidegauge.testing.simulation.clock import VirtualClock
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.database.sender import SimulatedServer
from tidegauge.testing.simulation.upstream.database.server import PostgresLog
from tidegauge.testing.simulation.upstream.database.source import SimulatedPostgres
from tidegauge.testing.simulation.upstream.database.tables import DatabaseTable, LoggedTransaction, Row, RowChange
from tidegauge.testing.simulation.writers.feed import WorldMeeting
from tidegauge.testing.simulation.writers.values import check_columns, made

__all__ = ["DatabaseUpstream"]

_OURS: Final = ("_op", "_sequence", "_partition", "_offset", "_timestamp")
_WHOLE: Final = 0.6
"""How often all frames that there are come at once."""
_NUMBER: Final = 16384
_FEW: Final = 6
_SPILL: Final = 200
"""Bytes of a transaction from which on it is written to files, in some worlds: two changes, or three."""


class DatabaseUpstream:
    """A database that applications write to, and a flow follows in place of the one that its user named."""

    def __init__(
        self, name: str, user: PushedSource, source: PostgresSource, clock: VirtualClock, *, seed: int
    ) -> None:
        self.acknowledges = True
        self.overtaken = False
        self.whole = True
        self.made_anew = 0
        self.spoilt = False
        self.schema: Final = user.schema
        self._user: Final = user
        self._source: Final = source
        self._seed: Final = seed
        self._random: Final = Random(f"{seed} {name} cuts")  # noqa: S311 - nothing is secret here
        self.tables: Final = tuple(
            DatabaseTable(stream, place, _data(source.streams[stream]), _NUMBER + number, self._random.random() < 0.3)
            for number, (stream, place) in enumerate(source.setup.tables.items())
        )
        self._spill: Final = _SPILL if self._random.random() < 0.4 else None
        for table in self.tables:
            check_columns(name, table.columns)
        self.log: Final = PostgresLog(self.tables, clock)
        self.log.sparing = self._spill is None  # in a file, a value is known within its piece alone
        path = tempfile.mkdtemp(prefix="tidegauge-simulated-")
        weakref.finalize(self, shutil.rmtree, path, True)  # noqa: FBT003 - ignoring errors
        self.folder: Final = SourceFolder(path)
        self._open: int | None = None
        self._write("first", self._random.randrange(_FEW))

    def _cut(self, count: int) -> int:
        return count if self._random.random() < _WHOLE else self._random.randrange(count + 1)

    def source(self, meet: WorldMeeting) -> PushedSource:
        """Return the source, as one driver has it."""
        server = SimulatedServer(self.log, cut=self._cut, meet=meet, wait=meet.wait, gone=meet.gone)
        return replace(self._user, source=SimulatedPostgres(self._source, self.folder, server, self._spill))

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Let the server be stopped, or killed, or started. No session that has a transaction open outlives that."""
        if self._open is not None:  # whoever makes a slot waits for it, and nobody may be left to end it
            self.log.finish(self._open, [])
            self._open = None
        if away:
            self.log.leave(killed=self._random.random() < 0.5)
        else:
            self.log.come_back()

    def learn(self, partition: str, details: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return the partition: there is one."""
        return partition

    def forget(self, place: str) -> None:
        """Nothing: there is one place."""

    def there(self) -> dict[str, int]:
        """Return how far the flow has to come: behind the last transaction."""
        found = self.log.database.log
        return {WAL: found[-1].place + 1} if found else {}

    def end(self, place: str) -> int:  # noqa: ARG002
        """Return the end of the log."""
        return self.log.end

    def start(self, place: str) -> int:  # noqa: ARG002 - first rows are at the beginning
        """Return 0."""
        return 0

    def told(self) -> Mapping[str, int]:
        """Return how far the server was told that everything is durable."""
        return {WAL: self.log.told} if self.log.told else {}

    def bad(self, place: str, lower: int, upper: int) -> list[BadRecord]:  # noqa: ARG002
        """Nothing: all values fit."""
        return []

    def blurred(self, place: str, lower: int, upper: int) -> bool:  # noqa: ARG002
        """False: nothing is taken out of a log."""
        return False

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:  # noqa: ARG002
        """Return the rows of a range of the log, each in its stream's column; first rows are before their place."""
        found = self.folder.stream()
        point = 0 if found is None else found.point
        at = 0 if found is None else found.at
        batches: list[pa.RecordBatch] = []
        for table in self.tables:
            rows: list[dict[str, Any]] = []
            if lower < point <= upper:
                first = self.log.database.rows_at(table.stream, point)
                rows += [_row(row, "insert", point - 1, at, number) for number, row in enumerate(first)]
            for transaction in self.log.database.between(max(lower, point), upper):
                rows += _changed(transaction, table)
            columns = self._source.streams[table.stream]
            batch = pa.RecordBatch.from_pylist([{name: row[name] for name in columns.names} for row in rows], columns)
            batches += [self._in_its_column(table.stream, batch)] if rows else []
        return batches

    def _in_its_column(self, stream: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        struct = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
        arrays = [struct if column.name == stream else pa.nulls(rows.num_rows, column.type) for column in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def act(self, act: Act) -> None:
        """Do what applications do, or the network, or an administrator."""
        random = Random(f"{self._seed} {act.at} {act.what}")  # noqa: S311 - nothing is secret here
        log = self.log
        match act.what:
            case "append":
                self._write(act.at, act.number)
            case "transact" if self._open is not None:
                number, self._open = self._open, None
                commits = random.random() < 0.6
                log.finish(number, [*self._changes(random, act.at, act.number)] if commits else [])
            case "transact":
                self._open = log.begin()
            case "compact":
                log.checkpoint()
            case "grow":
                log.grow(act.number)
            case "retention":
                self._lose_slot(random)
            case "cut":
                log.cut()
            case "late":
                log.slow = True
            case "arrive":
                log.deliver()

    def _write(self, at: object, count: int) -> None:
        if not self.log.away:
            random = Random(f"{self._seed} {at} changes")  # noqa: S311 - nothing is secret here
            self.log.write([*self._changes(random, at, count)])

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

    def _changes(self, random: Random, at: object, count: int) -> Iterator[RowChange]:
        """Yield what a transaction does, to several tables."""
        rows = {stream: dict(found) for stream, found in self.log.database.rows.items()}
        position = Random(f"{at}").randrange(1 << 32)  # noqa: S311 - nothing is secret here
        for number in range(count):
            table = random.choice(self.tables)
            columns, shard, lower = table.columns, table.number - _NUMBER, position + number
            new: Row = made(columns, seed=self._seed, shard=shard, lower=lower, upper=lower + 1).to_pylist()[0]
            there, key = rows[table.stream], table.key
            old = there[random.choice([*there])] if there else None
            what = "insert" if old is None else random.choice(("insert", "insert", "update", "key", "delete"))
            if what == "insert" or (what == "key" and new[key] in there):
                old = there.get(new[key])
            elif what == "update" and old is not None:
                new = {name: old[name] if name == key or random.random() < 0.4 else new[name] for name in new}
            change = RowChange(table.stream, old, None if what == "delete" else new)
            if old is not None and (change.new is None or old[key] != new[key]):
                del there[old[key]]
            if change.new is not None:
                there[new[key]] = new
            yield change


def _data(stream: pa.Schema) -> pa.Schema:
    return pa.schema([column for column in stream if column.name not in _OURS])


def _row(row: Row, op: str, place: int, at: int, order: int) -> dict[str, Any]:
    """Return a row of a stream. order: where it is in its transaction."""
    said = {"_op": op, "_sequence": (place << 32) + order, "_partition": WAL, "_offset": place, "_timestamp": at}
    return {**row, **said}


def _changed(transaction: LoggedTransaction, table: DatabaseTable) -> Iterator[dict[str, Any]]:
    """Yield the rows that a transaction makes of a table."""
    mine = [change for change in transaction.changes if change.stream == table.stream]
    for number, change in enumerate(mine):
        old, new, place = change.old, change.new, transaction.place
        moved = old is not None and (new is None or table.whole or old[table.key] != new[table.key])
        if old is not None and moved:
            shown = {name: old[name] if table.whole or name == table.key else None for name in table.columns.names}
            yield _row(shown, "delete", place, transaction.at, 2 * number)
        if new is not None:
            op = "update" if old is not None and not moved else "insert"
            yield _row(new, op, place, transaction.at, 2 * number + moved)
