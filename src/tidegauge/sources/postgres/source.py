"""`PostgresSource`: tables of a database, as they were when the flow began, and every change since.

    database -> slot -> one reader in the driver -> chunks of transactions -> tasks: rows with `_op` -> N tables

Each table is a stream. All of them share one clock, the place in the server's log, where a transaction is at its
commit. So a transaction is in one epoch, over all its tables.

Invariants. The configuration is a value: the columns are looked up once, when the flow is declared first, and kept in
the source's folder. Those that tables get later are told of by their changes (`further`). The server's publication
and tables are never changed, and its slot alone is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.postgres.address import checked_address
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.fromtime.lsn import LSN, WAL
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.declaring import (
    checked_folder,
    checked_tables,
    first_declared,
    folder_of,
    stream_columns,
)
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.database.later import came_later
from tidegauge.sources.database.records import OURS, filed_bytes
from tidegauge.sources.postgres.catalog import look, slot_log
from tidegauge.sources.postgres.checks import check_server, check_tables, columns_of
from tidegauge.sources.postgres.chunks import decoded
from tidegauge.sources.postgres.followed import ReplicationSetup
from tidegauge.sources.postgres.further import refused
from tidegauge.sources.postgres.server import DistantServer
from tidegauge.sources.postgres.sessions import DatabasePlace, session
from tidegauge.sources.postgres.subscription import Replication
from tidegauge.sources.protocol import OnBadRecord
from tidegauge.sources.push.protocol import HeldBack

__all__ = ["PostgresSource"]

_SLOT: Final = re.compile(r"[a-z0-9_]{1,63}")
_LONGEST: Final = 63
_CONNECTIONS: Final = 32


@dataclass(frozen=True)
class PostgresSource:
    """Follow tables of a database by logical replication: their rows first, and then every change.

    Each table is a stream: `flow.source("shop_db", tg.PostgresSource(...)).stream("orders")`. Its rows are those of
    the table with `_op` and `_sequence`, see [rows with operations](rows-with-operations.md).

    Args:
        dsn: `postgresql://user@host/database`, as psql takes it, without a password.
        publication: the name of a publication that has the tables, for all operations.
        tables: the tables, `table` or `schema.table`, spelled as in the catalog.
        password: a reference, `env:NAME` or `file:PATH`. None for what psql would use: `PGPASSWORD`, `~/.pgpass`, a
            certificate.
        slot: the name of the replication slot, which the flow makes. None for one of the flow's and source's names.
        folder: where the first rows, and large transactions, wait until all outputs have them. It must outlive the
            driver; on a cluster, all machines must see it. Each source has a folder of its own in it.
        connections: how many read the first rows side by side, 1 to 32. It may be another one at each start.
        rate: how many first rows a second are read at most, by all connections together. None for any number. It may
            be another one at each start.
        keep_dropped_partitions: go on when partitions of a partitioned table are dropped, detached or truncated:
            their rows stay, as a history. Otherwise the table ends there. It may be another one at each start.
        metadata: add `_partition` (always `wal`), `_offset` (the place of the commit) and `_timestamp` (its time).

    Raises `InvalidArgument`, `InvalidPostgresUrl`, `SecretInClear`; and, when the columns are looked up for the first
    time, the errors TG-0360 to TG-0367 for a server that cannot be followed.
    """

    dsn: str
    _: KW_ONLY
    publication: str
    tables: Sequence[str]
    password: str | None = None
    slot: str | None = None
    folder: str = "tidegauge-postgres"
    connections: int = 2
    rate: int | None = None
    keep_dropped_partitions: bool = False
    metadata: bool = False
    owner: tuple[str, str] | None = None
    """The flow, and the name in it: set by `Dataflow.source`."""

    def __post_init__(self) -> None:
        checked_address(self.dsn, self.password)
        if not isinstance(self.publication, str) or not 0 < len(self.publication.encode()) <= _LONGEST:
            self._refuse("publication", self.publication, "the name of a publication")
        tables = checked_tables(self.tables, _name, source="PostgresSource")
        if self.slot is not None and (not isinstance(self.slot, str) or _SLOT.fullmatch(self.slot) is None):
            self._refuse("slot", self.slot, "a name of lower-case letters, digits and '_'")
        if type(self.connections) is not int or not 1 <= self.connections <= _CONNECTIONS:
            self._refuse("connections", self.connections, f"a number from 1 to {_CONNECTIONS}")
        if self.rate is not None and (type(self.rate) is not int or self.rate < 1):
            self._refuse("rate", self.rate, "a number of rows, 1 or more, or None")
        object.__setattr__(self, "tables", tables)
        object.__setattr__(self, "folder", checked_folder(self.folder, source="PostgresSource"))

    @staticmethod
    def _refuse(parameter: str, value: object, expected: str) -> None:
        raise InvalidArgument(parameter=f"PostgresSource({parameter})", value=value, expected=expected)

    def placed(self, flow: str, name: str) -> PostgresSource:
        """Return the source as the one of this name in this flow."""
        return replace(self, owner=(flow, name))

    @property
    def unit(self) -> str:
        """Positions are places in the log."""
        return "bytes"

    @property
    def from_time(self) -> FromTime:
        """The log's clock."""
        return LSN

    @property
    def streams(self) -> Mapping[str, pa.Schema]:
        """The columns of each table's stream. Looks them up, unless the source's folder has them."""
        return self._streams

    @cached_property
    def _streams(self) -> Mapping[str, pa.Schema]:
        if self.owner is None:  # asked only whether it is a source
            return {one: pa.schema([]) for one in self.tables}
        columns = self._columns()
        return {
            stream: stream_columns(columns[".".join(_name(stream))], metadata=self.metadata) for stream in self.tables
        }

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        said = {
            "kind": "postgres",
            "dsn": self.dsn,
            "publication": self.publication,
            "tables": list(self.tables),
            "slot": self._slot_name,
            "folder": self.folder,
            "metadata": self.metadata,
        }
        return said if self.password is None else {**said, "password": self.password}

    def later(self) -> Mapping[str, Frontier | None]:
        """Return the tables that came after the first rows of the others, with the places where they join."""
        came = came_later(self._folder, {".".join(_name(stream)): stream for stream in self.tables})
        return {one: None if place is None else Frontier({WAL: place}) for one, place in came.items()}

    def connect(self, start: Frontier, bound: Bound) -> Replication:
        """Return a subscription from a place in the log on. See `Replication` for what it raises."""
        return self.connect_alone(start, bound, lambda: None)

    def connect_alone(self, start: Frontier, bound: Bound, confirm: Callable[[], None]) -> Replication:
        """Return a subscription whose driver alone writes to the folder from now on: see `database.writing`."""
        setup = self.setup
        folder, columns = setup.folder.taken_over(confirm), self.followed(bound.schema)
        return Replication(replace(setup, columns=columns, folder=folder), start, bound)

    def held_back(self) -> HeldBack | None:
        """Return how much of the log the slot keeps, None where there is no slot, or it is lost. Asks the server."""
        with session(self._place) as connection:
            found = slot_log(connection.cursor(), self._slot_name)
        return None if found is None else HeldBack(found.size, found.limit, found.ending)

    def decode(self, stream: str, batch: pa.RecordBatch, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        """Return the rows of chunks. A change with a value that has no place in its column is a bad record."""
        return self.decode_by(stream, batch, self.streams[stream], on_bad_record)

    def decode_by(
        self, stream: str, batch: pa.RecordBatch, columns: pa.Schema, on_bad_record: OnBadRecord
    ) -> pa.RecordBatch:
        """Return the rows of chunks in these columns."""
        return decoded(batch, columns, ".".join(_name(stream)), on_bad_record)

    def refused(self, stream: str, column: str) -> str:
        """Return why a column that came to a table is not taken on, "" if it may be."""
        return refused(self._folder, ".".join(_name(stream)), column)

    def beside(self, batch: pa.RecordBatch) -> int:
        """Return the bytes of files that the decoding of chunks reads."""
        return filed_bytes(batch)

    @property
    def setup(self) -> ReplicationSetup:
        """What a subscription works with."""
        tables = {stream: _name(stream) for stream in self.tables}
        columns = self._columns()
        return ReplicationSetup(
            DistantServer(self._place),
            self._place.shown if self.owner is None else self.owner[1],
            self._place,
            self.publication,
            self._slot_name,
            tables,
            columns,
            self._folder,
            self.connections,
            rate=self.rate,
            keeps_partitions=self.keep_dropped_partitions,
        )

    @property
    def _place(self) -> DatabasePlace:
        return DatabasePlace(self.dsn, self.password)

    @property
    def _folder(self) -> SourceFolder:
        return folder_of(self.folder, self.owner)

    @property
    def _slot_name(self) -> str:
        if self.slot is not None:
            return self.slot
        return re.sub(r"[^a-z0-9_]", "_", "_".join(["tidegauge", *(self.owner or ())]).lower())[:_LONGEST]

    def followed(self, bound: pa.Schema | None) -> Mapping[str, pa.Schema]:
        """Return the columns of tables: those that they were declared with, and those that were taken on."""
        columns = dict(self._columns())
        for stream in self.tables:
            if bound is not None and stream in bound.names:
                own = [one for one in bound.field(stream).type if one.name not in OURS]
                columns[".".join(_name(stream))] = pa.schema(own)
        return columns

    def _columns(self) -> Mapping[str, pa.Schema]:
        return first_declared(self._folder, [".".join(_name(stream)) for stream in self.tables], self._look)

    def _look(self) -> Mapping[str, pa.Schema]:
        names = [_name(stream) for stream in self.tables]
        with session(self._place) as connection:
            found = look(connection.cursor(), self.publication, names, self._slot_name)
        check_server(self._place.shown, found)
        check_tables(self._place.shown, self.publication, found)
        return {str(table): columns_of(self._place.shown, table) for table in found.tables}


def _name(table: str) -> tuple[str, str]:
    """Return the schema and the name of a table.

    >>> _name("orders"), _name("shop.orders")
    (('public', 'orders'), ('shop', 'orders'))
    """
    parts = table.split(".") if isinstance(table, str) else []
    named = ["public", *parts] if len(parts) == 1 else parts
    if len(named) != 2 or not all(part and "\0" not in part and len(part.encode()) <= _LONGEST for part in named):
        expected = f"'table' or 'schema.table', each of at most {_LONGEST} bytes"
        raise InvalidArgument(parameter="PostgresSource(tables)", value=table, expected=expected)
    return named[0], named[1]
