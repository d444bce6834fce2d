"""The sessions of applications with a simulated database, and what befalls its server.

A transaction changes rows of several tables: some come, others change, some get another key, some go. What a flow has
to have of it is told from the transaction, and not by the code that decodes it.

Invariant: what a transaction does depends on the seed, the instant, and the rows that are there by then.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Protocol

import pyarrow as pa

from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.mysql.source import MySqlSource
from tidegauge.sources.postgres.source import PostgresSource
from tidegauge.sources.push.protocol import TellsColumns
from tidegauge.sources.push.source import PushedSource, joined_columns
from tidegauge.testing.simulation.plan import Act
from tidegauge.testing.simulation.upstream.database.source import SimulatedMySql, SimulatedPostgres
from tidegauge.testing.simulation.upstream.database.tables import (
    DatabaseRows,
    DatabaseTable,
    LoggedTransaction,
    Row,
    RowChange,
)
from tidegauge.testing.simulation.writers.feed import WorldMeeting
from tidegauge.testing.simulation.writers.lasting import LastingPlaces
from tidegauge.testing.simulation.writers.values import check_columns, in_its_column, made

__all__ = ["DatabaseUpstream", "TableBeginning", "data_tables", "row_of"]

_OURS: Final = ("_op", "_sequence", "_partition", "_offset", "_timestamp")
_WHOLE: Final = 0.6
"""How often all that there is comes at once."""
NUMBER: Final = 16384
"""The server's number of the first table."""
_FEW: Final = 6
_AGAIN: Final = 0.6
"""How often a transaction changes the row once more that it has changed last, in a table with large values."""
_STAYS: Final = 0.7
"""How often a row whose key changes stays the same otherwise."""


@dataclass(frozen=True, slots=True)
class TableBeginning:
    """Where a flow has a table from. since: the place of its first rows. upto: what changed up to here comes with
    them. given: the partition and the position at which they come. at: when they were read, in microseconds."""

    since: int
    upto: int
    given: tuple[str, int]
    at: int


class WrittenLog(Protocol):
    """A server that sessions write to."""

    @property
    def database(self) -> DatabaseRows: ...
    @property
    def away(self) -> bool: ...
    def begin(self) -> int: ...
    def finish(self, number: int, changes: Sequence[RowChange]) -> None: ...
    def write(self, changes: Sequence[RowChange]) -> None: ...
    def leave(self, *, killed: bool) -> None: ...
    def come_back(self) -> None: ...


class FollowedServer(Protocol):
    """A server as one kind of source follows it. log: that of the server. place: the partition of its positions.
    overtaken: whether something is gone that the flow needs. large: the streams whose changes leave large values
    out."""

    @property
    def log(self) -> WrittenLog: ...
    @property
    def place(self) -> str: ...
    @property
    def large(self) -> Collection[str]: ...
    @property
    def overtaken(self) -> bool: ...
    def end(self, place: str) -> int:
        """Return the next position of a partition."""
        ...

    @property
    def followed(self) -> DatabaseRows:
        """The tables, by the log that the flow has begun with."""
        ...

    def source(self, meet: WorldMeeting) -> SimulatedPostgres | SimulatedMySql:
        """Return the source, as one driver has it."""
        ...

    def told(self) -> int:
        """Return how far the server was told that everything is durable, 0 for nothing."""
        ...

    def begins(self, table: DatabaseTable) -> TableBeginning | None:
        """Return where a table began, None where it has not."""
        ...

    def fitted(self, table: DatabaseTable, row: Row) -> Row:
        """Return a row that is made, with a key that the table can take."""
        ...

    def numbered(self, table: DatabaseTable, place: int, rows: Sequence[Row]) -> Iterable[tuple[int, Row]]:
        """Yield the first rows of a table, which are of a place, with their numbers."""
        ...

    def first(self, row: Row, place: int, at: int, number: int) -> dict[str, Any]:
        """Return a row that was there at the beginning. number: among those of its table."""
        ...

    def changed(self, transaction: LoggedTransaction, table: DatabaseTable) -> Iterator[dict[str, Any]]:
        """Yield the rows that a transaction makes of a table."""
        ...

    def act(self, act: Act, random: Random) -> None:
        """Do what befalls such a server alone."""
        ...


class DatabaseUpstream(LastingPlaces):
    """A database that applications write to, and a flow follows in place of the one that its user named."""

    def __init__(
        self,
        name: str,
        user: PushedSource,
        source: PostgresSource | MySqlSource,
        server: Callable[[SourceFolder, Random, Callable[[int], int]], FollowedServer],
        *,
        seed: int,
    ) -> None:
        self.acknowledges = isinstance(source, PostgresSource)
        self._user: Final = user
        self._source: Final = source
        self._seed: Final = seed
        self._random: Final = Random(f"{seed} {name} cuts")  # noqa: S311 - nothing is secret here
        path = tempfile.mkdtemp(prefix="tidegauge-simulated-")
        weakref.finalize(self, shutil.rmtree, path, True)  # noqa: FBT003 - ignoring errors
        self.folder: Final = SourceFolder(path)
        self.server: Final = server(self.folder, self._random, self._cut)
        self.log: Final[Any] = self.server.log
        self.tables: Final = tuple(self.log.database.tables.values())
        for table in self.tables:
            check_columns(name, table.columns)
        self._open: int | None = None
        self._write("first", self._random.randrange(_FEW))

    @property
    def schema(self) -> pa.Schema:
        """The columns that the flow gets, and those that came to tables since, where it takes these on."""
        if not isinstance(self._source, TellsColumns):
            return self._user.schema
        further = {one: pa.schema([]) for one in self._source.streams}
        for added in self.log.database.added:
            further[added.stream] = further[added.stream].append(added.column)
        return joined_columns(self._user.schema, further)

    @property
    def overtaken(self) -> bool:
        """Whether something is gone that the flow needs."""
        return self.server.overtaken

    def _cut(self, count: int) -> int:
        return count if self._random.random() < _WHOLE else self._random.randrange(count + 1)

    def source(self, meet: WorldMeeting) -> PushedSource:
        """Return the source, as one driver has it."""
        return replace(self._user, source=self.server.source(meet))

    def set_away(self, away: bool) -> None:  # noqa: FBT001
        """Let the server be stopped, or killed, or started. No session that has a transaction open outlives that."""
        self._end_session()
        if away:
            self.log.leave(killed=self._random.random() < 0.5)
        else:
            self.log.come_back()

    def _end_session(self) -> None:
        if self._open is not None:  # whoever makes a slot waits for it, and nobody may be left to end it
            self.log.finish(self._open, [])
            self._open = None

    def there(self) -> dict[str, int]:
        """Return how far the flow has to come: behind the last transaction, and to where all tables have begun."""
        place, gone = self.server.place, self.log.database.gone
        never = place, self.end(place)
        begun = {table.stream: self.server.begins(table) for table in self.tables}
        given = [(place, one.place) for one in self.server.followed.log[-1:]]
        given += [one.given if one else never for stream, one in begun.items() if one or stream not in gone]
        return {where: 1 + max(position for one, position in given if one == where) for where, _ in given}

    def end(self, place: str) -> int:
        """Return the end of the log."""
        return self.server.end(place)

    def told(self) -> Mapping[str, int]:
        """Return how far the server was told that everything is durable."""
        told = self.server.told()
        return {self.server.place: told} if told else {}

    def rows(self, place: str, lower: int, upper: int) -> list[pa.RecordBatch]:
        """Return the rows of a range of a partition, each in its stream's column."""
        server, batches = self.server, list[pa.RecordBatch]()
        for table in self.tables:
            if (begun := server.begins(table)) is None:
                continue
            rows, changes = list[dict[str, Any]](), list[LoggedTransaction]()
            where, position = begun.given
            if where == place and lower <= position < upper:
                first = server.followed.rows_at(table.stream, begun.since)
                rows += [
                    server.first(row, begun.since - 1, begun.at, number)
                    for number, row in server.numbered(table, begun.since, first)
                ]
                changes += server.followed.between(begun.since, begun.upto)
            if place == server.place:
                changes += server.followed.between(max(lower, begun.upto), upper)
            for transaction in changes:
                rows += server.changed(transaction, table)
            columns = pa.schema([*self.schema.field(table.stream).type])
            found = [{name: row.get(name) for name in columns.names} for row in rows]
            batch = pa.RecordBatch.from_pylist(found, columns)
            batches += [in_its_column(batch, table.stream, self.schema)] if rows else []
        return batches

    def act(self, act: Act) -> None:
        """Do what applications do, or the network, or an administrator."""
        random = Random(f"{self._seed} {act.at} {act.what}")  # noqa: S311 - nothing is secret here
        match act.what:
            case "append":
                self._write(act.at, act.number)
            case "transact" if self._open is not None:
                number, self._open = self._open, None
                commits = random.random() < 0.6
                self.log.finish(number, [*self._changes(random, act.at, act.number)] if commits else [])
            case "transact":
                self._open = self.log.begin()
            case "promote":
                self._end_session()
                self.server.act(act, random)
            case _:
                self.server.act(act, random)

    def _write(self, at: object, count: int) -> None:
        if not self.log.away:
            random = Random(f"{self._seed} {at} changes")  # noqa: S311 - nothing is secret here
            self.log.write([*self._changes(random, at, count)])

    def _changes(self, random: Random, at: object, count: int) -> Iterator[RowChange]:
        """Yield what a transaction does, to several tables."""
        now = self.log.database.tables_at(self.server.end(self.server.place))
        rows = {stream: dict(found) for stream, found in self.log.database.rows.items()}
        position = Random(f"{at}").randrange(1 << 32)  # noqa: S311 - nothing is secret here
        again, last = Random(f"{at} again"), dict[str, Any]()  # noqa: S311 - nothing is secret here
        for number in range(count):
            table = random.choice(self.tables)
            columns, shard, lower = now[table.stream].columns, table.number - NUMBER, position + number
            new: Row = made(columns, seed=self._seed, shard=shard, lower=lower, upper=lower + 1).to_pylist()[0]
            new = self.server.fitted(table, new)
            there, key = rows[table.stream], table.key
            old = there[random.choice([*there])] if there else None
            if table.stream in self.server.large and last.get(table.stream) in there and again.random() < _AGAIN:
                old = there[last[table.stream]]
            what = "insert" if old is None else random.choice(("insert", "insert", "update", "key", "delete"))
            if what == "insert" or (what == "key" and new[key] in there):
                old = there.get(new[key])
            elif what == "update" and old is not None:
                new = {name: old.get(name) if name == key or random.random() < 0.4 else new[name] for name in new}
            elif what == "key" and old is not None:
                stays = again.random() < _STAYS
                new = {name: old.get(name) if name != key and stays else new[name] for name in new}
            change = RowChange(table.stream, old, None if what == "delete" else new)
            if old is not None and (change.new is None or old[key] != new[key]):
                del there[old[key]]
            if change.new is not None:
                there[new[key]] = new
            last[table.stream] = new[key]
            yield change


def data_tables(source: PostgresSource | MySqlSource, whole: Callable[[], bool]) -> tuple[DatabaseTable, ...]:
    """Return the tables of a source. whole: whether the log has old rows of one, and not their keys alone."""
    return tuple(
        DatabaseTable(stream, place, _data(source.streams[stream]), NUMBER + number, whole())
        for number, (stream, place) in enumerate(source.setup.tables.items())
    )


def _data(stream: pa.Schema) -> pa.Schema:
    return pa.schema([column for column in stream if column.name not in _OURS])


def row_of(row: Row, op: str, place: tuple[str, int, int], sequence: int) -> dict[str, Any]:
    """Return a row of a stream. place: the partition, the number in it, and the time in microseconds."""
    partition, offset, at = place
    return {
        **row,
        "_op": op,
        "_sequence": sequence,
        "_partition": partition,
        "_offset": offset,
        "_timestamp": at,
    }
