"""A store in a SQLite file: how it is opened, and what its errors mean.

Invariant: a transaction that writes holds the file's write lock from its first statement; a commit survives
a power cut (`synchronous=FULL`).
"""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError, SQLAlchemyError

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.store import (
    CorruptStore,
    InvalidStoreUrl,
    NotAStore,
    StoreAway,
    StoreBusy,
    StoreFailed,
    StoreFull,
    StoreNotReadable,
    StoreNotWritable,
    StoreTooNew,
)
from tidegauge.remap.store.address import File
from tidegauge.remap.store.damage import beheaded, examine, look
from tidegauge.remap.store.schema import LAYOUT, store_layout
from tidegauge.remap.store.sending import Parcel
from tidegauge.remap.store.storefile import GuardedConnection, StoreFile

__all__ = ["PATIENCE", "Sqlite", "check_readable", "delivered"]

PATIENCE: Final = 10.0
"""Seconds to wait for a lock; an address may say otherwise with `?timeout=`."""

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED: Final = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_STRANGE: Final = ("Could not decode to UTF-8", "no such table", "no such column")
_REFUSED: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_CRAMPED: Final = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
"""What a limit on the size of files looks like, and a disk that is full from the start, or gives errors."""
_PAGES: Final = 16
"""With room for fewer blocks a disk is full."""


def check_readable(address: File) -> None:
    """Raise `StoreNotReadable` for a file that is there, or may be, and that this user may not read."""
    try:
        address.path.stat()
    except PermissionError as error:
        raise StoreNotReadable(url=address.shown, detail=f"{address.path.parent}: {error.strerror}") from None
    except OSError:
        return
    if not os.access(address.path, os.R_OK):
        raise StoreNotReadable(url=address.shown, detail=f"{address.path} may not be opened")


class Sqlite:
    """The database in a file."""

    def __init__(self, address: File) -> None:
        self.address: Final = address
        self._file: Final = StoreFile(address.path, url=address.shown)

    def engine(self) -> Engine:
        """Return a pool of connections; the file's folder is made. Raises `StoreNotReadable`, `StoreNotWritable`,
        `InvalidStoreUrl`, `CorruptStore`, `NotAStore`, `StoreTooNew`, `StoreAway`; then nothing of it was changed."""
        path, shown = self.address.path, self.address.shown
        check_readable(self.address)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreNotWritable(url=shown, detail=f"{path.parent}: {error.strerror}") from error
        try:
            self._look()
        except (OSError, sqlite3.OperationalError) as error:
            raise StoreAway(url=shown, detail=f"{path}: {error}", moved=False) from None
        file = self._file

        def guarded(*arguments: Any, **settings: Any) -> GuardedConnection:
            file.before()
            connection = GuardedConnection(*arguments, **settings)
            connection.file = file
            return connection

        waits: dict[str, Any] = {} if "timeout" in self.address.url.query else {"timeout": PATIENCE}
        try:
            engine = create_engine(self.address.url, connect_args={**waits, "factory": guarded}, hide_parameters=True)
        except (SQLAlchemyError, ValueError, TypeError):
            raise InvalidStoreUrl(url=shown, detail="a part of it has no meaning") from None
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "connect", lambda connection, _: file.opened(connection))
        event.listen(engine, "close", lambda connection, _: file.closed(connection))
        event.listen(engine, "checkout", _checked_out)
        event.listen(engine, "checkin", _checked_in)
        return engine

    def _look(self) -> None:
        """Look at the file before SQLite opens it, and may change it. Raises as `engine`."""
        path, shown = self.address.path, self.address.shown
        if path.is_dir():
            raise StoreNotWritable(url=shown, detail=f"{path} is a folder")
        if beheaded(path):
            raise self._damaged("it does not begin as a SQLite file does")
        if path.exists() and not (os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK)):
            raise StoreNotWritable(url=shown, detail="the file or its folder is read-only")
        before = look(path)
        if before.layout is not None and before.layout > LAYOUT:
            raise StoreTooNew(url=shown, found=before.layout, known=LAYOUT)
        if before.fault:
            raise self._damaged(before.fault)

    def options(self, *, writes: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """Return what SQLAlchemy is to be told of a transaction: nothing."""
        return {}

    def begin(self, connection: Connection, *, writes: bool, alone: bool) -> None:  # noqa: ARG002
        """Begin a transaction. While one writes, nobody else does."""
        driver: Any = connection.connection.driver_connection
        driver.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        driver.file.check(driver, writes=writes)

    def now(self, connection: Connection) -> datetime | None:  # noqa: ARG002
        """A file has no clock."""
        return None

    def deliver(self, connection: Connection, parcel: Parcel) -> Sequence[tuple[Any, ...]]:
        """Execute a parcel. The driver's errors are what they are."""
        return delivered(connection, parcel)

    def explain(self, error: BaseException, *, lost: bool) -> TidegaugeError:  # noqa: ARG002
        """Return an exception of the driver in our words. A file that is away may come back as it was."""
        url, detail = self.address.shown, " ".join(str(error).split())
        code = getattr(error, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        if primary in _BUSY:
            return StoreBusy(url=url, detail=detail)
        if primary in _DAMAGED or isinstance(error, ValueError) or detail.startswith(_STRANGE):
            return self._damaged(detail)
        if code == sqlite3.SQLITE_FULL or (code in _CRAMPED and _cramped(self.address.path)):
            return StoreFull(url=url, detail=detail)
        if primary == sqlite3.SQLITE_IOERR or (primary in _REFUSED and self._file.written):
            self._file.doubt()
            return StoreAway(url=url, detail=f"{detail} ({getattr(error, 'sqlite_errorname', '')})", moved=False)
        if primary in _REFUSED:
            return StoreNotWritable(url=url, detail=detail)
        return StoreFailed(url=url, detail=detail)

    def _damaged(self, detail: str) -> CorruptStore | NotAStore | StoreAway:
        url = self.address.shown
        try:
            found = examine(self.address.path)
        except (OSError, sqlite3.OperationalError) as error:
            self._file.doubt()
            return StoreAway(url=url, detail=f"{detail}; {error}", moved=False)
        if found.ours:
            return CorruptStore(url=url, detail=found.detail or detail, intact=found.intact)
        return NotAStore(url=url, detail=detail)


def delivered(connection: Connection, parcel: Parcel) -> Sequence[tuple[Any, ...]]:
    """Execute a parcel on a connection of SQLite, and return the rows of its last statement."""
    driver: Any = connection.connection.driver_connection
    found: Sequence[tuple[Any, ...]] = []
    for text, sets in parcel:
        cursor = driver.execute(text, sets[0]) if len(sets) == 1 else driver.executemany(text, sets)
        found = cursor.fetchall()
    return found


def _checked_out(connection: Any, _record: Any, _proxy: Any) -> None:
    if connection.given_up:  # of a disk that was mounted anew since: another one is made in its place
        raise DisconnectionError


def _checked_in(connection: Any, record: Any) -> None:
    if connection is not None and connection.doubtful:  # the pool that it came from is gone
        record.invalidate()


def _cramped(path: Path) -> bool:
    """Whether a file may be refused more room: the disk has next to none, or files are limited in their size."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return False
    limited = resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
    return disk.f_bavail < _PAGES or limited


def _prepare(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun by us, not guessed by the driver
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=FULL")
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if tables and store_layout.name not in tables:
        return  # a database of something else, which is left as it is
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
