"""`MySqlSource`: tables of a MariaDB or a MySQL, as they were when the flow began, and every change since.

    database -> binary log -> one reader in the driver -> chunks of transactions -> tasks: rows with `_op` -> N tables

Each table is a stream. All of them share one clock, the server's own numbers of transactions (GTIDs). So a
transaction is in one epoch, over all its tables.

Invariants. The configuration is a value: the columns are looked up once, when the flow is declared first, and kept in
the source's folder. Nothing is ever changed at the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from tidegauge import secrets
from tidegauge.errors.databases import FolderDamaged
from tidegauge.errors.flow import InvalidArgument
from tidegauge.remap.binding import Bound
from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.fromtime.mariadb import MARIADB
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
from tidegauge.sources.database.records import filed_bytes
from tidegauge.sources.mysql.address import ServerAddress, address_of
from tidegauge.sources.mysql.catalog import check_server, columns_of, look
from tidegauge.sources.mysql.chunks import decoded
from tidegauge.sources.mysql.followed import BinlogSetup
from tidegauge.sources.mysql.joining import began_with
from tidegauge.sources.mysql.server import DistantBinlogServer
from tidegauge.sources.mysql.servers import MARIADB_SERVER, ServerKind, kind_named
from tidegauge.sources.mysql.sessions import ServerPlace, session
from tidegauge.sources.mysql.subscription import BinlogSubscription
from tidegauge.sources.protocol import OnBadRecord

__all__ = ["KIND_NOTE", "MySqlSource"]

_LONGEST: Final = 64
KIND_NOTE: Final = "server.json"
"""The kind of the server, as it was found first."""


@dataclass(frozen=True)
class MySqlSource:
    """Follow tables of a MariaDB or a MySQL by its binary log: their rows first, and then every change.

    Each table is a stream: `flow.source("shop_db", tg.MySqlSource(...)).table("orders")`. Its rows are those of the
    table with `_op` and `_sequence`, see [rows with operations](rows-with-operations.md).

    Args:
        url: `mysql://user@host:port/database`, without a password; with `?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE` the
            certificate of the server is checked.
        tables: the tables, `table` or `database.table`, spelled as in the catalog. Each needs a primary key.
        password: a reference, `env:NAME` or `file:PATH`. None for a user without a password.
        folder: where the first rows, and large transactions, wait until all outputs have them. It must outlive the
            driver; on a cluster, all machines must see it. Each source has a folder of its own in it.
        metadata: add `_partition` (the domain of the GTID; of MySQL the server), `_offset` (its number) and
            `_timestamp` (its time).

    Raises `InvalidArgument`, `SecretInClear`; and, when the columns are looked up for the first time, the errors
    TG-0332 to TG-0337 for a server that cannot be followed.
    """

    url: str
    _: KW_ONLY
    tables: Sequence[str]
    password: str | None = None
    folder: str = "tidegauge-mysql"
    metadata: bool = False
    owner: tuple[str, str] | None = None
    """The flow, and the name in it: set by `Dataflow.source`."""

    def __post_init__(self) -> None:
        address = address_of(self.url)
        if self.password is not None:
            secrets.check("password", self.password)
        tables = checked_tables(self.tables, lambda one: _name(one, address), source="MySqlSource")
        object.__setattr__(self, "tables", tables)
        object.__setattr__(self, "folder", checked_folder(self.folder, source="MySqlSource"))

    def placed(self, flow: str, name: str) -> MySqlSource:
        """Return the source as the one of this name in this flow."""
        return replace(self, owner=(flow, name))

    @property
    def unit(self) -> str:
        """Positions count transactions."""
        return "transactions"

    @property
    def from_time(self) -> FromTime:
        """The server's clock. Looks the server up, unless the source's folder knows its kind."""
        return MARIADB if self.owner is None else self._kind.clock

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
            stream: stream_columns(columns[".".join(name)], metadata=self.metadata)
            for stream, name in self._names.items()
        }

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        said = {
            "kind": "mysql",
            "url": self.url,
            "tables": list(self.tables),
            "folder": self.folder,
            "metadata": self.metadata,
        }
        return said if self.password is None else {**said, "password": self.password}

    def later(self) -> Mapping[str, Frontier | None]:
        """Return the tables that came after the first rows of the others, with the positions where they join."""
        came = came_later(self._folder, {".".join(name): stream for stream, name in self._names.items()})
        joins = self._kind.joins if came else ""
        return {one: None if place is None else Frontier({joins: place}) for one, place in came.items()}

    def connect(self, start: Frontier, bound: Bound) -> BinlogSubscription:
        """Return a subscription from a position on. See `BinlogSubscription` for what it raises."""
        return self.connect_alone(start, bound, lambda: None)

    def connect_alone(self, start: Frontier, bound: Bound, confirm: Callable[[], None]) -> BinlogSubscription:
        """Return a subscription whose driver alone writes to the folder from now on: see `database.writing`."""
        setup = self.setup
        return BinlogSubscription(replace(setup, folder=setup.folder.taken_over(confirm)), start, bound)

    def decode(self, stream: str, batch: pa.RecordBatch, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        """Return the rows of chunks. A change with a value that has no place in its column is a bad record."""
        return decoded(batch, self.streams[stream], ".".join(self._names[stream]), on_bad_record)

    def beside(self, batch: pa.RecordBatch) -> int:
        """Return the bytes of files that the decoding of chunks reads."""
        return filed_bytes(batch)

    @property
    def setup(self) -> BinlogSetup:
        """What a subscription works with."""
        flow, called = self.owner or ("", "")
        server = DistantBinlogServer(self._place, f"{flow}/{called} {self._folder.path}")
        return BinlogSetup(server, called, self._kind, self._names, self._columns(), self._folder)

    @property
    def _place(self) -> ServerPlace:
        return ServerPlace(address_of(self.url), self.password)

    @property
    def _names(self) -> Mapping[str, tuple[str, str]]:
        address = address_of(self.url)
        return {stream: _name(stream, address) for stream in self.tables}

    @property
    def _folder(self) -> SourceFolder:
        return folder_of(self.folder, self.owner)

    def _columns(self) -> Mapping[str, pa.Schema]:
        names = [".".join(name) for name in self._names.values()]
        return first_declared(self._folder, names, self._look)

    @property
    def _kind(self) -> ServerKind:
        self._columns()
        try:
            noted = self._folder.noted(KIND_NOTE)
            if noted is None:  # by a version before MySQL
                return MARIADB_SERVER
            return kind_named(noted["clock"], noted.get("server"))
        except (ValueError, KeyError, TypeError) as error:
            raise FolderDamaged(path=f"{self._folder.path}/{KIND_NOTE}", detail=repr(error)) from None

    def _look(self) -> Mapping[str, pa.Schema]:
        known = self._folder.columns()
        fresh = [name for name in self._names.values() if known is None or ".".join(name) not in known]
        with session(self._place) as connection:
            found = look(connection, fresh)
        check_server(self._place.shown, found)
        record = None if known is None else self._folder.stream()
        if known is not None and record is not None and (noted := began_with(record, known)) != record:
            self._folder.keep_stream(noted)
        if known is None:
            self._folder.note(KIND_NOTE, {"clock": found.kind.clock.kind, "server": found.kind.name}, durable=True)
        return {str(table): columns_of(self._place.shown, table) for table in found.tables}


def _name(table: str, address: ServerAddress) -> tuple[str, str]:
    """Return the database and the name of a table.

    >>> place = ServerAddress("ada", "db", 3306, "shop")
    >>> _name("orders", place), _name("stock.items", place)
    (('shop', 'orders'), ('stock', 'items'))
    """
    parts = table.split(".") if isinstance(table, str) else []
    named = [address.database, *parts] if len(parts) == 1 else parts
    if len(named) != 2 or not all(part and "\0" not in part and len(part) <= _LONGEST for part in named):
        expected = f"'table' or 'database.table', each of at most {_LONGEST} letters"
        raise InvalidArgument(parameter="MySqlSource(tables)", value=table, expected=expected)
    return named[0], named[1]
