"""What a subscription asks of a MariaDB or a MySQL, so that a simulation can answer in its place.

Invariant: whatever a subscription knows of a server it knows by these calls. So what it decides depends on answers
alone, and not on who gave them.

>>> server = DistantBinlogServer(ServerPlace(ServerAddress("ada", "db", 3306, "shop"), None), "shop/db")
>>> server.shown, server.clock.monotonic() <= server.clock.monotonic()
('the database db:3306/shop', True)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.clock import HERE, ServerClock
from tidegauge.sources.mysql.address import ServerAddress  # noqa: F401 - for the example
from tidegauge.sources.mysql.catalog import FollowedTable, ServerLook, look
from tidegauge.sources.mysql.dump import LogStream
from tidegauge.sources.mysql.firstrows import rows_transaction
from tidegauge.sources.mysql.keyed import RowsPart, TableKey
from tidegauge.sources.mysql.servers import ServerKind
from tidegauge.sources.mysql.sessions import ServerPlace, session

__all__ = ["BinlogServer", "DistantBinlogServer", "FirstRowsTransaction", "SendingBinlog"]


class SendingBinlog(Protocol):
    """A session that is sent the log, see `LogStream`."""

    @property
    def answered(self) -> bool: ...  # noqa: D102
    def start(self, state: str, needed: str, found: str) -> None: ...  # noqa: D102
    def start_after(self, executed: Frontier, needed: str, found: str) -> None: ...  # noqa: D102
    def events(self, seconds: float) -> Iterator[bytes]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class FirstRowsTransaction(Protocol):
    """A transaction that sees all tables at one place of the log, see `RowsTransaction`."""

    @property
    def gtids(self) -> str: ...  # noqa: D102
    @property
    def tables(self) -> Sequence[FollowedTable]: ...  # noqa: D102

    def key(self, database: str, table: str) -> TableKey | None: ...  # noqa: D102
    def rows(  # noqa: D102
        self, database: str, table: str, columns: pa.Schema, part: RowsPart | None
    ) -> Generator[Sequence[tuple[bytes | None, ...]], None, None]: ...


class BinlogServer(Protocol):
    """A server, and the time that passes while it answers."""

    @property
    def shown(self) -> str:
        """The server, for people."""
        ...

    def look(self, names: Sequence[tuple[str, str]]) -> ServerLook:
        """Look at the server and at tables, each a database and a name."""
        ...

    def oldest(self) -> str:
        """Return after which transactions the log begins, for people; "" where that cannot be said."""
        ...

    def log(self, *, beside: bool = False) -> SendingBinlog:
        """Begin a session that is sent the log. beside: another one than that of the stream, which goes on."""
        ...

    def first_rows(
        self, kind: ServerKind, names: Sequence[tuple[str, str]]
    ) -> AbstractContextManager[FirstRowsTransaction]:
        """Lend a transaction that sees the tables of this instant."""
        ...

    def beside(self, name: str, work: Callable[[], object]) -> None:
        """Begin work beside the stream. name: for people."""
        ...

    @property
    def clock(self) -> ServerClock:
        """The time that passes while it answers."""
        ...


@dataclass(frozen=True, slots=True)
class DistantBinlogServer:
    """A real one. name: tells this reader of its log from others."""

    place: ServerPlace
    name: str
    clock: ServerClock = HERE

    @property
    def shown(self) -> str:
        """The server, for people."""
        return self.place.shown

    def look(self, names: Sequence[tuple[str, str]]) -> ServerLook:
        """Look, in a session. Raises what `sessions.explained` does."""
        with session(self.place) as connection:
            return look(connection, names)

    def oldest(self) -> str:
        """Return what the first events of the log say, of a MariaDB."""
        try:
            with session(self.place) as connection, connection.cursor() as cursor:
                cursor.execute("SHOW BINARY LOGS")
                file = cursor.fetchone()[0].decode()
                cursor.execute("SHOW BINLOG EVENTS IN %s LIMIT 4", (file,))
                listed = [row[5].decode() for row in cursor.fetchall() if row[2] == b"Gtid_list"]
        except TidegaugeError:
            return ""
        return str(listed[0]) if listed else "[]"

    def log(self, *, beside: bool = False) -> SendingBinlog:
        """Begin a session. Raises what `sessions.explained` does."""
        return LogStream(self.place, f"{self.name} beside" if beside else self.name)

    def first_rows(
        self, kind: ServerKind, names: Sequence[tuple[str, str]]
    ) -> AbstractContextManager[FirstRowsTransaction]:
        """Lend the transaction."""
        return rows_transaction(self.place, kind, names)

    def beside(self, name: str, work: Callable[[], object]) -> None:
        """Begin it in a thread."""
        threading.Thread(target=work, name=name, daemon=True).start()
