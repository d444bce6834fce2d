"""Who may write to a source's folder: one connection, that of the driver which had the lease last.

A driver that slept past its lease may be anywhere when it wakes up: about to connect, or about to note how far it is.
Whatever it notes then would be taken for a word of its successor. So each connection asks for a number first:

    ask        it gets a number higher than all before
    confirm    the driver looks whether the lease is still its own
    begin      from now on it alone may write, unless one with a higher number has begun

Who begins had the lease after it asked. So of two that begin, the one that had the lease later has the higher number,
and the other one never writes again. A change is made under a lock of the file system, with a look at who may write:
no driver can fall asleep in between and be overtaken. Where a file system has no locks, one could, in that moment.

Invariant: all changes of a folder are those of the connections in the order of their numbers.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as path:
...     older, newer = begun(path, print), begun(path, print)
...     with newer.alone():
...         print("written by number", newer.number)
...     with older.alone():
...         print("never")
Traceback (most recent call last):
tidegauge.errors.databases.FolderTaken: TG-0976: connection 1 cannot write to ...: connection 2 of process ...
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tidegauge.disk import make_folder, synchronise, write_durably
from tidegauge.errors.databases import FolderTaken

__all__ = ["FolderWriter", "begun"]

_FILE: Final = "writer.json"
_LOCK: Final = ".writer.lock"
_PATIENCE: Final = 10.0
"""Seconds to wait for a change that somebody else makes: a few milliseconds, unless that process does not move."""
_PAUSE: Final = 0.005
_NO_LOCKS: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK})


@dataclass(frozen=True, slots=True)
class _Writers:
    """asked: the highest number. begun: that of the connection which may write, 0 for none. by: which one it is.
    process: where that is, for people."""

    asked: int = 0
    begun: int = 0
    by: str = ""
    process: str = "unknown"


@dataclass(frozen=True, slots=True)
class FolderWriter:
    """A connection that has begun. by: tells it from others of its number, in a folder that was put back."""

    path: str
    number: int
    by: str

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock for a change. Raises `FolderTaken` where another one has begun since.

        It cannot be entered again by who is inside.
        """
        with _locked(self.path, self.number):
            found = _read(self.path)
            if (found.begun, found.by) != (self.number, self.by):
                raise _taken(self.path, self.number, found)
            yield


def begun(path: str, confirm: Callable[[], object]) -> FolderWriter:
    """Return the connection that may write to a folder from now on.

    confirm: raises where the driver has lost its lease. Raises that, `FolderTaken` and `OSError`.
    """
    folder, by = Path(path), uuid.uuid4().hex
    make_folder(folder)
    with _locked(path, 0):
        found = _read(path)
        number = max(found.asked, found.begun) + 1
        _write(folder, _Writers(number, found.begun, found.by, found.process))
    confirm()
    with _locked(path, number):
        found = _read(path)
        if found.begun > number:
            raise _taken(path, number, found)
        process = f"{os.getpid()} on {socket.gethostname()}"
        _write(folder, _Writers(max(found.asked, number), number, by, process))
    return FolderWriter(path, number, by)


def _taken(path: str, number: int, found: _Writers) -> FolderTaken:
    detail = f"connection {found.begun} of process {found.process} has begun since"
    return FolderTaken(path=path, number=number, detail=detail)


@contextmanager
def _locked(path: str, number: int) -> Iterator[None]:
    """Hold the lock of a folder. Raises `FolderTaken` where somebody else does not give it back."""
    descriptor = os.open(Path(path, _LOCK), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    break
                if not isinstance(error, BlockingIOError):
                    raise
                if time.monotonic() > until:
                    detail = f"process {_read(path).process} is in the middle of a change, and does not move"
                    raise FolderTaken(path=path, number=number, detail=detail) from None
                time.sleep(_PAUSE)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for processes that were forked meanwhile, and have it too
        os.close(descriptor)


def _read(path: str) -> _Writers:
    """Return who may write; nobody where that is not to be understood: then each connection begins anew."""
    try:
        said: dict[str, Any] = json.loads(Path(path, _FILE).read_text())
        return _Writers(int(said["asked"]), int(said["begun"]), str(said["by"]), str(said["process"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return _Writers()


def _write(folder: Path, writers: _Writers) -> None:
    beside = folder / f".{_FILE}.{uuid.uuid4().hex}"
    write_durably(beside, json.dumps(asdict(writers)).encode())
    beside.replace(folder / _FILE)
    synchronise(folder)
