"""From a URL to a database engine, and from a database's exceptions to errors that say what to do.

Invariants: a transaction that writes holds the write lock from its first statement (`BEGIN IMMEDIATE` on SQLite, the
flow's row locked on PostgreSQL), so what it read is still true when it writes; what was committed survives a power
cut (`synchronous=FULL`); no password is shown, whatever goes wrong.

A transaction that cannot begin, because somebody holds the lock or the server does not answer, is begun again after
growing pauses: nothing of it was done. One that fails later is never done again, as what came of it may be unknown;
whoever wrote stops, and finds out at the next start. A database that gave no answer the last time is not waited for.

>>> parse_url("mysql://root:secret@db/shop")
Traceback (most recent call last):
tidegauge.errors.store.InvalidStoreUrl: TG-0208: the store URL mysql://root:***@db/shop cannot be used: ...
"""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError, StatementError

from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.store import (
    InvalidStoreUrl,
    NotAStore,
    StoreBusy,
    StoreDriverMissing,
    StoreFailed,
    StoreNotWritable,
)

__all__ = ["PATIENCE", "PAUSES", "Database", "exists", "parse_url", "shown"]

PATIENCE: Final = 10.0
"""Seconds to wait for a lock on the database; a SQLite URL may say otherwise with `?timeout=`."""

PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between two attempts to begin a transaction. The flow stops after the last one."""

_SECRETS: Final = ("password", "passwd", "secret", "token")
_WRITES: Final = "tidegauge_writes"


def shown(url: URL) -> str:
    """Return a URL for people, without its secrets."""
    hidden = {key: "***" for key in url.query if any(word in key.lower() for word in _SECRETS)}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def parse_url(text: str) -> URL:
    """Return the URL with an absolute path. Raises `InvalidStoreUrl` for one that no store can have."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        scheme, found, _ = text.partition("://")
        raise InvalidStoreUrl(url=f"{scheme}://..." if found else "given", detail="it cannot be parsed") from None
    if url.get_backend_name() == "postgresql":
        if not url.database:
            raise InvalidStoreUrl(url=shown(url), detail="it names no database")
        return url
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise InvalidStoreUrl(url=shown(url), detail=f"{url.drivername!r} is neither sqlite nor postgresql")
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise InvalidStoreUrl(url=shown(url), detail="it names no file, and a store must outlive its process")
    return url.set(database=str(Path(url.database).absolute()))


def exists(text: str) -> bool:
    """Whether there is a database at a URL to connect to. What a server has is not known before one connects."""
    url = parse_url(text)
    return url.get_backend_name() != "sqlite" or Path(str(url.database)).exists()


class Database:
    """An open database: transactions that read, transactions that write, and errors in our words."""

    def __init__(self, text: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._url: Final = parse_url(text)
        self.url: Final = shown(self._url)
        lite = self._url.get_backend_name() == "sqlite"
        if lite:
            self._make_folder(Path(str(self._url.database)))
        self._view: Final[dict[str, Any]] = {} if lite else {"isolation_level": "REPEATABLE READ"}
        self._engine: Final = self._create_engine()
        self._sleep: Final = sleep
        self._answers = False

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view of the database."""
        with self._translated(), ExitStack() as opened:
            yield self._begin(opened, self._view)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that is durable when the block has ended, and nothing at all when it raises."""
        with self._translated(), ExitStack() as opened:
            yield self._begin(opened, {_WRITES: True})

    def _begin(self, opened: ExitStack, options: dict[str, Any]) -> Connection:
        """Begin a transaction, which ends with `opened`. Raises a transient error when it cannot, in all attempts."""
        pauses = iter(PAUSES)
        while True:
            try:
                with self._translated(), ExitStack() as begun:
                    connection = begun.enter_context(self._engine.connect())
                    begun.enter_context(connection.execution_options(**options).begin())
                    opened.push(begun.pop_all())
            except Transient:
                pause = next(pauses, None) if self._answers else None
                if pause is None:
                    self._answers = False
                    raise
                self._sleep(pause)
            else:
                self._answers = True
                return connection

    def _make_folder(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreNotWritable(url=self.url, detail=f"{path.parent}: {error.strerror}") from error
        if path.is_dir():
            raise StoreNotWritable(url=self.url, detail=f"{path} is a folder")

    def _create_engine(self) -> Engine:
        lite = self._url.get_backend_name() == "sqlite"
        arguments: dict[str, Any] = {"timeout": PATIENCE} if lite and "timeout" not in self._url.query else {}
        try:
            engine = create_engine(self._url, connect_args=arguments, hide_parameters=True, pool_pre_ping=not lite)
        except ModuleNotFoundError as error:
            raise StoreDriverMissing(url=self.url, package=str(error.name)) from None
        except (SQLAlchemyError, ValueError, TypeError):
            raise InvalidStoreUrl(url=self.url, detail="a part of it has no meaning") from None
        if lite:
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        return engine

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise self._translate(error.orig) from None
        except StatementError as error:
            if isinstance(error.orig, TidegaugeError):  # raised by a column's type
                raise error.orig from None
            raise
        except sqlite3.Error as error:
            raise self._translate(error) from None

    def _translate(self, error: BaseException | None) -> TidegaugeError:
        detail = " ".join(str(error).split())
        if self._url.password:
            detail = detail.replace(str(self._url.password), "***")
        code = getattr(error, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusy(url=self.url)
        if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return NotAStore(url=self.url, detail=detail)
        if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM):
            return StoreNotWritable(url=self.url, detail=detail)
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS, errno.ENOSPC):
            return StoreNotWritable(url=self.url, detail=detail)
        return StoreFailed(url=self.url, detail=detail)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun below, not guessed by the driver
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=FULL")
    # Two processes that open a new file at once both turn it to WAL; SQLite answers the second "locked" without
    # waiting, so wait for the first by taking the write lock.
    for _ in range(100):
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            connection.execute("BEGIN IMMEDIATE").close()
            connection.execute("COMMIT").close()
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
