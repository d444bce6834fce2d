"""A look into a SQLite file that changes nothing, neither the file nor anything beside it.

SQLite itself writes when it only reads: opening a file repairs what a user that died left behind, and the last one to
close moves the contents of the -wal into the file. So a file that stands alone is opened as one that nobody changes,
and one with something in its -wal is copied, and the copy is opened.

Invariant: nothing is written beside the file, and no lock that this process has on it is let go: the file is read by
SQLite alone, because closing our own descriptor lets go of all.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> path = Path(folder.name) / "shop.db"
>>> with closing(sqlite3.connect(path)) as made:
...     _ = made.execute("CREATE TABLE flows (id)")
>>> with untouched(path) as (connection, still):
...     print(connection.execute("SELECT name FROM sqlite_master").fetchall(), still)
[('flows',)] True
>>> folder.cleanup()
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

__all__ = ["copy", "untouched", "waits", "wal_of"]

_Stamps: TypeAlias = list[tuple[int, int, int] | None]


@contextmanager
def untouched(path: Path) -> Iterator[tuple[sqlite3.Connection, bool]]:
    """Open a file to look into it, and say whether it stood still meanwhile: pages torn out of a file that is being
    written may seem damaged."""
    if not waits(wal_of(path)):
        with closing(_immutable(path)) as connection:
            yield connection, not waits(_beside(path, "journal"))  # SQLite takes back what is in that one
        return
    with TemporaryDirectory(prefix="tidegauge-") as folder:
        still = copy(path, Path(folder) / path.name)
        with closing(sqlite3.connect(Path(folder) / path.name)) as connection:
            yield connection, still


def copy(path: Path, to: Path) -> bool:
    """Copy a file with what waits in its -wal; return whether it stood still meanwhile."""
    wal = wal_of(path)
    before = _stamps(path, wal)
    try:
        with closing(_immutable(path)) as whole, closing(sqlite3.connect(to)) as made:
            whole.backup(made)
    except (sqlite3.Error, UnicodeDecodeError):  # damaged, so nobody has it open
        shutil.copyfile(path, to)
    with suppress(FileNotFoundError):
        shutil.copyfile(wal, wal_of(to))
    return _stamps(path, wal) == before


def wal_of(path: Path) -> Path:
    """Return where the -wal of a file is, if it has one."""
    return _beside(path, "wal")


def waits(path: Path) -> bool:
    """Whether there is something in a -wal or a -journal."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _beside(path: Path, kind: str) -> Path:
    """Return where SQLite has a file's companion: beside the file itself, not beside a link to it."""
    real = path.resolve()
    return real.with_name(f"{real.name}-{kind}")


def _immutable(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)


def _stamps(*paths: Path) -> _Stamps:
    return [_stamp(path) for path in paths]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
