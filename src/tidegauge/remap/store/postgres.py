"""A store in a PostgreSQL database: how it is opened, and what its errors mean.

Invariants. A transaction that writes locks its flow's row first, and then reads: each statement sees everything
committed before it, so anything read under the lock is true until the end. A transaction that reads sees one instant.
Commits survive a crash of the server, even if its default is not to wait for the disk. A driver that falls silent in
a transaction, frozen or cut off, keeps its locks for `SILENCE` seconds, which is less than its lease. A server that
falls silent is not waited for either (`silence`).

So a write can be tried again when its connection broke: as long as the first attempt may still come to its commit, it
holds the lock, and the next one sees what came of it. How long to wait, an address may say otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DBAPIError

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.redaction import Redaction
from tidegauge.errors.store import (
    CorruptStore,
    InvalidStoreUrl,
    StoreBusy,
    StoreFailed,
    StoreFull,
    StoreNotWritable,
    StoreUnreachable,
)
from tidegauge.remap.store.address import Server
from tidegauge.remap.store.sending import Parcel

__all__ = ["CLIENT", "PATIENCE", "SILENCE", "Postgres"]

PATIENCE: Final = 10
"""Seconds to wait for a lock, and for a server to answer."""

SILENCE: Final = 15
"""Seconds after which the server ends a transaction whose driver says nothing."""

CLIENT: Final[Mapping[str, str]] = {
    "client_encoding": "utf8",
    "connect_timeout": str(PATIENCE),
    "fallback_application_name": "tidegauge",
    "keepalives_idle": str(PATIENCE),
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": str(1000 * PATIENCE),
}
"""Settings of a client that does not wait for ever for a server whose line is cut."""
_SESSION: Final = """
    SELECT set_config(name, value, %s)
    FROM (VALUES ('lock_timeout', '0', %s),
                 ('idle_in_transaction_session_timeout', '0', %s),
                 ('synchronous_commit', 'off', 'on')) AS wanted (name, unless, value)
    WHERE current_setting(name) = unless
"""
_SILENCES: Final = (f"{PATIENCE}s", f"{SILENCE}s")
_POOLED: Final = "tidegauge_pooled"
_OPTION: Final = re.compile(r"-c\s*(\w+)=(\S+)")
_POOLER: Final = "the pooler that it leads to does not pass on {name!r}; set it for the user (ALTER ROLE ... SET ...)"
_STATEMENTS: Final = (
    "the pooler that it leads to is in statement mode, and a store needs transactions: set pool_mode = transaction"
)
_ALONE: Final = int.from_bytes(b"tidegaug")
"""The number of our advisory lock; PostgreSQL has 2**64 of them in each database."""

_UNREACHABLE: Final = ("08", "57P01", "57P02", "57P03", "53300", "25P03")
_BUSY: Final = ("55P03", "40001", "40P01", "57014")
_DAMAGED: Final = ("XX001", "XX002")
_FULL: Final = ("53100",)
_REFUSED: Final = ("25006", "42501", "3F000")


@dataclass(frozen=True, slots=True)
class Postgres:
    """The database on a server."""

    address: Server

    def engine(self) -> Engine:
        """Return a pool of connections; none is made yet."""
        engine = create_engine(
            "postgresql+psycopg://",
            connect_args={**CLIENT, **self.address.settings},
            hide_parameters=True,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            use_native_hstore=False,
        )
        event.listen(engine, "do_connect", _connect)
        event.listen(engine, "connect", self._prepare)
        return engine

    def _prepare(self, connection: Any, record: Any) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            connection.close()
            detail = f"{encoding}, its encoding, cannot hold every name; 'createdb -E UTF8 -T template0' makes one"
            raise StoreNotWritable(url=self.address.shown, detail=detail)
        # Behind a pooler such as PgBouncer each transaction may be on another connection to the server, which the
        # pooler tells us a number of its own of. Then nothing is kept on one: no settings, no prepared statements.
        [(served_by,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
        if served_by != connection.info.backend_pid:
            self._refuse_lost_options(connection)
            connection.prepare_threshold = None
            connection.commit()
            record.info[_POOLED] = True
            return
        connection.execute(_SESSION, (False, *_SILENCES))
        connection.commit()

    def _refuse_lost_options(self, connection: Any) -> None:
        """Refuse an address whose options a pooler has passed over: the store would be made in another schema."""
        for name, value in _OPTION.findall(self.address.settings.get("options", "")):
            [(found,)] = connection.execute("SELECT current_setting(%s)", (name,)).fetchall()
            if found != value:
                raise InvalidStoreUrl(url=self.address.shown, detail=_POOLER.format(name=name))

    def options(self, *, writes: bool) -> Mapping[str, Any]:
        """Return what SQLAlchemy is to be told of a transaction."""
        return {} if writes else {"isolation_level": "REPEATABLE READ"}

    def begin(self, connection: Connection, *, writes: bool, alone: bool) -> None:  # noqa: ARG002
        """Set for a transaction what a connection of our own has for good.

        alone: keep all others that ask for it waiting until the transaction ends. Tables yet to be made have no rows
        to lock.
        """
        if connection.connection.info.get(_POOLED):
            driver: Any = connection.connection.driver_connection
            driver.execute(_SESSION, (True, *_SILENCES))
        if alone:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ALONE})")

    def now(self, connection: Connection) -> datetime | None:
        """Return the server's time, which is the same for drivers on all machines."""
        return connection.scalar(select(func.clock_timestamp()))

    def deliver(self, connection: Connection, parcel: Parcel) -> Sequence[tuple[Any, ...]]:
        """Execute a parcel. Errors are as SQLAlchemy raises them.

        Each statement waits for its answer. Not in a pipeline: there the server does not count a driver that falls
        silent as idle, and would let it keep its locks for ever.
        """
        from psycopg import Error

        driver: Any = connection.connection.driver_connection
        cursor = driver.cursor()
        try:
            for text, sets in parcel:
                cursor.execute(text, sets[0]) if len(sets) == 1 else cursor.executemany(text, sets)
            return cursor.fetchall() if cursor.description else []
        except Error as error:
            lost = driver.closed
            if lost:
                connection.invalidate(error)
            raise DBAPIError.instance(
                None, None, error, Error, hide_parameters=True, connection_invalidated=lost
            ) from None

    def explain(self, error: BaseException, *, lost: bool) -> TidegaugeError:
        """Return an exception of the driver in our words. `lost` when its connection is of no use any more."""
        url, detail = self.address.shown, Redaction(self.address.secrets).text(" ".join(str(error).split()))
        from psycopg import OperationalError

        state = getattr(error, "sqlstate", None) or ""
        if "unsupported startup parameter: options" in detail:
            return InvalidStoreUrl(url=url, detail=_POOLER.format(name="options"))
        if "statement pooling mode" in detail:
            return InvalidStoreUrl(url=url, detail=_STATEMENTS)
        unheard = not state and isinstance(error, OperationalError)  # the client says so, not the server
        if lost or unheard or state.startswith(_UNREACHABLE):
            return StoreUnreachable(url=url, detail=detail)
        if state in _BUSY:
            return StoreBusy(url=url, detail=detail)
        if state in _DAMAGED or isinstance(error, ValueError):
            return CorruptStore(url=url, detail=detail, intact="the server knows which can be read")
        if state in _FULL:
            return StoreFull(url=url, detail=detail)
        if state in _REFUSED:
            return StoreNotWritable(url=url, detail=detail)
        return StoreFailed(url=url, detail=detail)


def _connect(_dialect: Any, _record: Any, arguments: Any, settings: Any) -> Any:
    """Make a connection that does not wait for ever."""
    from tidegauge.remap.store.silence import Listener

    return Listener.connect(*arguments, **settings)
