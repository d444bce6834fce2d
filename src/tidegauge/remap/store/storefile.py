"""Whether a store's file is still the one that is open, and nobody has written over it.

A file can be moved, removed, restored from a backup, or its folder be renamed, under a driver that has it open.
SQLite goes on with the file that it has, and a second driver begins with the one at the path. So every transaction
begins with a look: the file at the path, its -wal and its -shm are those that are open, told by device and inode. A
copy that is written into the same file changes none of that, but the file's time and size; so do SQLite's own
checkpoints. Then the file is asked what it says of its flows without its -wal: what a checkpoint wrote lies between
what was there before and what the transaction sees. And what that sees never goes back.

A checkpoint that runs beside readers leaves out each page that has changed since one of them began, and leaves the
file so until the next one: it is not whole by itself, cannot be read or shows what never was, and proves nothing.
What somebody copies over it is whole.

Invariant: a driver whose store is not the one at its path begins no transaction on it, and so does nothing that needs
one: it binds nothing, publishes nothing, and commits no output.

>>> before, now = {1: ("a", 5, 4, 0)}, {1: ("a", 9, 9, 0), 2: ("b", 0, 0, 0)}
>>> follows(now, before), follows(before, now), follows({1: ("c", 9, 9, 0)}, before)
(False, True, False)
"""

from __future__ import annotations

import ctypes
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidegauge.errors.store import StoreReplaced

__all__ = ["GuardedConnection", "StoreFile", "follows"]

_Flows: TypeAlias = Mapping[int, tuple[str, int, int, int]]
"""The flows by number: the incarnation, and three counts that never go back."""

_Identity: TypeAlias = tuple[int, int]
_COUNTS: Final = ("upper", "published", "since")
_FLOWS: Final = f"SELECT id, incarnation, {', '.join(f'CAST({name} AS INTEGER)' for name in _COUNTS)} FROM flows"  # noqa: S608
_PATIENCE: Final = 10.0
"""Seconds for which a whole file that does not fit is looked at again: a checkpoint may come between two looks."""


def follows(earlier: _Flows, later: _Flows) -> bool:
    """Whether what is said of the flows may have become `later`: none is gone or made anew, none went back."""
    return all(
        flow in later
        and later[flow][0] == said[0]
        and all(a <= b for a, b in zip(said[1:], later[flow][1:], strict=True))
        for flow, said in earlier.items()
    )


class StoreFile:
    """One file of a store, as the connections of one process have it open."""

    def __init__(self, path: Path, *, url: str) -> None:
        self.path: Final = path
        self.lost = False
        """Whether the path's -wal, or what the file holds, is not ours: then closing must not write to it."""
        self._url: Final = url
        real = path.resolve()  # where SQLite puts what is beside it, whatever a link says later
        self._beside: Final = tuple(real.with_name(f"{real.name}-{kind}") for kind in ("wal", "shm"))
        self._open = 0
        self._file: _Identity | None = None
        self._companions: tuple[_Identity | None, ...] = ()
        self._stamp = (0, 0)
        self._flows: _Flows = {}
        self._schema = 0
        self._seen: _Flows = {}
        self._lock: Final = threading.Lock()

    def before(self) -> None:
        """Look before a connection is made: it would be to another file, or make one. Raises `StoreReplaced`."""
        if self._file is not None:
            self._same_file()

    def opened(self) -> None:
        """Note which files are open, once the first connection has opened them."""
        with self._lock:
            self._open += 1
            if self._open == 1:  # SQLite removes what is beside the file with its last connection
                self._companions = tuple(_identity(path) for path in self._beside)
            if self._file is None:
                found = self.path.stat()
                self._file, self._stamp = (found.st_dev, found.st_ino), (found.st_mtime_ns, found.st_size)
                self._schema, self._flows = self._on_disk()

    def closed(self) -> None:
        """Note that a connection has gone."""
        with self._lock:
            self._open -= 1

    def check(self, connection: sqlite3.Connection, *, writes: bool) -> None:
        """Look whether a transaction that has begun is on the file at the path. Raises `StoreReplaced`."""
        stamp = self._same_file()
        seen = _flows(connection) if writes else self._seen
        beside = tuple(_identity(path) for path in self._beside)
        if beside != self._companions:
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
                self._seen = seen

    def _same_file(self) -> tuple[int, int]:
        """Return the time and the size of the file at the path, which is ours. Raises `StoreReplaced`."""
        try:
            found = self.path.stat()
        except OSError as error:
            raise self._replaced(f"it is not at its path any more ({error.strerror})") from None
        if (found.st_dev, found.st_ino) != self._file:
            raise self._replaced("another file is at its path")
        return found.st_mtime_ns, found.st_size

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
    """A connection that is left open to the end of the process where closing it would write over what is not ours.

    The last one to close moves what is in the -wal to the file, and removes the -wal. sqlite3 has no other seam for
    it before Python 3.12.
    """

    file: StoreFile

    def close(self) -> None:
        """Close the connection, if that does no harm."""
        if self.file.lost:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        else:
            super().close()


def _identity(path: Path) -> _Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _flows(connection: sqlite3.Connection) -> _Flows:
    """Return what a connection sees of the flows; nothing in a file that is new."""
    try:
        rows: list[Any] = connection.execute(_FLOWS).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return {}
    return {flow: (life, upper, published, since) for flow, life, upper, published, since in rows}
