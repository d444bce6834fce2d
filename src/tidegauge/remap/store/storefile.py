"""Whether a store's file is still the one that is open, and nobody has written over it.

Somebody may move or remove a file, restore it from a backup, or rename its folder, under a driver that has it open.
SQLite goes on with the open file, and a second driver begins with the one at the path. So every transaction begins
with a check that the file at the path, its -wal and its -shm are the open ones, by device and inode. Copying a backup
into the same file changes only the file's time and size; so do SQLite's own checkpoints. Then we read the flows from
the file without its -wal: the state that a checkpoint wrote lies between the previous one and the one that the
transaction sees. And the latter never goes back.

A checkpoint that runs beside readers leaves out each page that has changed since one of them began, and leaves the
file so until the next one: it is not whole by itself, cannot be read or shows what never was, and proves nothing.
What somebody copies over it is whole.

A file that is not to be seen is *away*: its mount went, its disk gives errors, or somebody has moved it. It may come
back and be the same, by its inode and its flows, also where the device has another number because a disk was mounted
anew. Then the connections are of the old disk, and are left alone. A file without a name any more was removed, and
does not come back.

Invariant: a driver whose store is not the one at its path begins no transaction on it, and so does nothing that needs
one: it binds nothing, publishes nothing, and commits no output. Nor does it close a connection: the last one to close
moves the -wal into the file, and removes by their names the files beside the path.

>>> before, now = {1: ("a", 5, 4, 0)}, {1: ("a", 9, 9, 0), 2: ("b", 0, 0, 0)}
>>> follows(now, before), follows(before, now), follows({1: ("c", 9, 9, 0)}, before)
(False, True, False)
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from operator import le
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidegauge.errors.store import StoreAway, StoreReplaced

__all__ = ["GuardedConnection", "StoreFile", "follows"]

_Flows: TypeAlias = Mapping[int, tuple[str, int, int, int]]
"""The flows by number: the incarnation, and three counts that never go back."""

_Identity: TypeAlias = tuple[int, int]
_COUNTS: Final = ("upper", "published", "since")
_FLOWS: Final = f"SELECT id, incarnation, {', '.join(f'CAST({name} AS INTEGER)' for name in _COUNTS)} FROM flows"  # noqa: S608
_PATIENCE: Final = 10.0
"""Seconds for which a whole file that does not fit is looked at again: a checkpoint may come between two looks."""


def follows(earlier: _Flows, later: _Flows) -> bool:
    """Whether this state of the flows may have become `later`: none is gone or recreated, none went back."""
    return all(
        flow in later and later[flow][0] == said[0] and all(map(le, said[1:], later[flow][1:]))
        for flow, said in earlier.items()
    )


class StoreFile:
    """One file of a store, as the connections of one process have it open."""

    def __init__(self, path: Path, *, url: str) -> None:
        self.path: Final = path
        self.lost = False
        """Whether the path's -wal, or what the file holds, is not ours."""
        self.written = False
        """Whether a transaction that writes has begun on it."""
        self._url: Final = url
        self._real: Final = path.resolve()  # where SQLite puts what is beside it, whatever a link says later
        self._beside: Final = tuple(self._real.with_name(f"{self._real.name}-{kind}") for kind in ("wal", "shm"))
        self._open = set[GuardedConnection]()
        self._anchor: int | None = None
        self._file: _Identity | None = None
        self._companions: tuple[_Identity | None, ...] = ()
        self._stamp = (0, 0)
        self._flows: _Flows = {}
        self._schema = 0
        self._seen: _Flows = {}
        self._lock: Final = threading.Lock()

    def before(self) -> None:
        """Look before a connection is made: it would be to another file, or make one.

        Raises `StoreReplaced`, or `StoreAway`.
        """
        if self._file is not None:
            self._same_file()

    def opened(self, connection: GuardedConnection) -> None:
        """Note which files are open, once the first connection has opened them."""
        with self._lock:
            self._open.add(connection)
            if len(self._open) == 1:  # SQLite removes what is beside the file with its last connection
                self._companions = tuple(_identity(path) for path in self._beside)
                self._anchor = _anchor(self._real)
            if self._file is None:
                found = self.path.stat()
                self._file, self._stamp = (found.st_dev, found.st_ino), (found.st_mtime_ns, found.st_size)
                self._schema, self._flows = self._on_disk()

    def closed(self, connection: GuardedConnection) -> None:
        """Note that a connection has gone, or is left."""
        with self._lock:
            self._open.discard(connection)
            if not self._open and self._anchor is not None:
                os.close(self._anchor)
                self._anchor = None

    def doubt(self) -> None:
        """Note that the disk gave errors: the open connections may be of a dead mount, and are used no more."""
        for connection in list(self._open):
            connection.doubtful = True

    def there(self) -> bool:
        """Whether the file at the path is ours."""
        return self._file is None or (not self.lost and _identity(self.path) == self._file)

    def check(self, connection: GuardedConnection, *, writes: bool) -> None:
        """Look whether a transaction that has begun is on the file at the path.

        Raises `StoreReplaced`, or `StoreAway`.
        """
        stamp = self._same_file()
        if connection.given_up:
            raise self._mounted_anew()
        seen = _flows(connection) if writes else self._seen
        beside = tuple(map(_identity, self._beside))
        if beside != self._companions:
            self._same_file()  # all of it may have gone away since
            if any(known not in (None, found) for known, found in zip(self._companions, beside, strict=True)):
                self.lost = True
                raise self._replaced("its -wal or -shm was removed, or another one is there")
            self._companions = beside  # SQLite makes them with the first transaction
        with self._lock:
            fits = not writes or follows(self._seen, seen)
            if fits and stamp != self._stamp:
                fits = self._accounted_for(stamp, connection, seen if writes else None)
            if not fits:
                self.lost = True
                raise self._replaced("something else was written into it")
            if writes:
                self._seen, self.written = seen, True

    def _same_file(self) -> tuple[int, int]:
        """Return the time and size of the file at the path, which is ours. Raises `StoreReplaced`, `StoreAway`."""
        try:
            found = self.path.stat()
        except OSError as error:
            raise self._not_seen(error) from None
        known = self._file
        if known is None or found.st_ino != known[1]:
            raise self._replaced("another file is at its path")
        if found.st_dev != known[0]:
            self._move((found.st_dev, found.st_ino))
            raise self._mounted_anew()
        return found.st_mtime_ns, found.st_size

    def _not_seen(self, error: OSError) -> StoreReplaced | StoreAway:
        """Return what it means that there is nothing at the path, or that nobody can look."""
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            return StoreAway(url=self._url, detail=f"{self.path}: {error.strerror}", moved=False)
        with self._lock, suppress(OSError):
            if self._anchor is not None and os.fstat(self._anchor).st_nlink == 0:
                return self._replaced("it was removed")
        if self._file is not None and _device_above(self._real) == self._file[0]:
            return StoreAway(url=self._url, detail=f"it is not at its path any more ({error.strerror})", moved=True)
        return StoreAway(url=self._url, detail=f"the disk with {self.path} is not mounted", moved=False)

    def _move(self, now: _Identity) -> None:
        """Leave the connections to the old disk, and expect the file on another one."""
        for connection in list(self._open):
            connection.leave()
            self.closed(connection)
        self._file = now

    def _mounted_anew(self) -> StoreAway:
        return StoreAway(url=self._url, detail="its disk was mounted anew, and is looked at", moved=False)

    def _accounted_for(self, stamp: tuple[int, int], connection: sqlite3.Connection, seen: _Flows | None) -> bool:
        """Whether what the file says without its -wal is what a checkpoint may have made of it.

        seen: what a transaction that writes sees. Nobody else writes then, so the file lies between what it was and
        that. But the checkpoint of another connection may be under way: its pages come one after another.
        """
        known = None if seen is None else connection.execute("PRAGMA schema_version").fetchone()[0]
        until = time.monotonic() + _PATIENCE
        while True:
            schema, flows = self._on_disk()
            if follows(self._flows, flows) and (
                seen is None or (schema in (self._schema, known) and follows(flows, seen))
            ):
                if seen is not None:
                    self._stamp, self._schema, self._flows = stamp, schema, flows
                return True
            if not self._whole():
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.02)

    def _on_disk(self) -> tuple[int, _Flows]:
        """Return the number of the schema, and the flows, as the file says without its -wal; -1 and none where it
        cannot be read."""
        try:
            with closing(self._alone()) as connection:
                return connection.execute("PRAGMA schema_version").fetchone()[0], _flows(connection)
        except (sqlite3.Error, UnicodeDecodeError):
            return -1, {}

    def _whole(self) -> bool:
        """Whether the file is a database without its -wal."""
        try:
            with closing(self._alone()) as connection:
                return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
        except (sqlite3.Error, UnicodeDecodeError):
            return False

    def _alone(self) -> sqlite3.Connection:
        """Open the file without its -wal.

        Not through a descriptor of our own: to close one lets go of all locks that this process has on the file.
        """
        return sqlite3.connect(f"{self.path.as_uri()}?immutable=1", uri=True)

    def _replaced(self, detail: str) -> StoreReplaced:
        return StoreReplaced(url=self._url, detail=detail)


class GuardedConnection(sqlite3.Connection):
    """A connection that is left open to the end of the process if closing it would overwrite a file that is not ours.

    The last one to close moves the contents of the -wal to the file, and removes the -wal. sqlite3 has no other seam
    for it before Python 3.12.
    """

    file: StoreFile | None = None
    doubtful = False
    """Whether the disk has given errors since it was made."""
    given_up = False
    """Whether nothing more is to be done with it: it is closed, or left open for good."""

    def close(self) -> None:
        """Close the connection, if that does no harm."""
        if self.file is None or (not self.given_up and self.file.there()):
            self.given_up = True
            super().close()
        else:
            self.leave()

    def __del__(self) -> None:
        """Keep the connection from being closed when it is collected, where that does harm."""
        if self.file is not None and not self.given_up and not self.file.there():
            self.leave()

    def leave(self) -> None:
        """Leave the connection open for good."""
        if not self.given_up:
            self.given_up = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def _identity(path: Path) -> _Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _anchor(path: Path) -> int | None:
    """Return a descriptor that tells whether a file still has a name; None where the system has none such.

    It does not open the file, so to close it lets go of no lock that this process has on it.
    """
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (AttributeError, OSError):
        return None


def _device_above(path: Path) -> int | None:
    """Return the device of the nearest folder above a path that is there, None where it cannot be looked at."""
    for folder in path.parents:
        try:
            return folder.stat().st_dev
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
    return None


def _flows(connection: sqlite3.Connection) -> _Flows:
    """Return what a connection sees of the flows; nothing in a file that is new."""
    try:
        rows: list[Any] = connection.execute(_FLOWS).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return {}
    return {flow: (life, upper, published, since) for flow, life, upper, published, since in rows}
