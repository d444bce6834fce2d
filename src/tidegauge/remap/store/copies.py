"""A SQLite store at one instant, to look into or to keep; the file and its companions stay untouched.

SQLite itself writes when it only reads: opening a file repairs what a user that died left behind, and the last one to
close moves the contents of the -wal into the file. So a file that stands alone is opened as one that nobody changes,
and one with something in its -wal is copied, and the copy is opened.

Invariants. Nothing is written beside the file, and no lock that this process has on it is let go: the file is read by
SQLite alone, because closing our own descriptor lets go of all. A backup is whole and on the disk when its name is
there, and nothing that had the name is lost; a driver may be writing meanwhile.

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
from uuid import uuid4

from tidegauge.disk import synchronise
from tidegauge.errors.history import BackupExists, BackupFailed, ServerBacksUp
from tidegauge.remap.store.address import File, parse

__all__ = ["backup", "copy", "immutable", "untouched", "waits", "wal_of"]

_Stamps: TypeAlias = list[tuple[int, int, int] | None]


@contextmanager
def untouched(path: Path) -> Iterator[tuple[sqlite3.Connection, bool]]:
    """Open a file to look into it, and say whether it stood still meanwhile: pages torn out of a file that is being
    written may seem damaged."""
    if not waits(wal_of(path)):
        with closing(immutable(path)) as connection:
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
        with closing(immutable(path)) as whole, closing(sqlite3.connect(to)) as made:
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


def immutable(path: Path) -> sqlite3.Connection:
    """Open a file alone, without its -wal, as one that nobody changes."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)


def _stamps(*paths: Path) -> _Stamps:
    return [_stamp(path) for path in paths]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def backup(url: str, target: Path) -> int:
    """Copy the store at an address into a new file, and return the copy's size in bytes.

    Raises `BackupExists`, `BackupFailed`, `ServerBacksUp` for a store on a server, and what `parse` raises.
    """
    address = parse(url)
    if not isinstance(address, File):
        raise ServerBacksUp(store=address.shown)
    if target.exists():
        raise BackupExists(target=str(target))
    draft = target.with_name(f".{target.name}-{uuid4().hex}")
    try:
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True)
        _backed_up(address.path, draft)
        size = draft.stat().st_size
        target.hardlink_to(draft)  # unlike a rename, it replaces nothing
        synchronise(target.parent)
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, FileExistsError) and draft.exists():
            raise BackupExists(target=str(target)) from None
        raise BackupFailed(store=address.shown, target=str(target), detail=str(error)) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return size


def _backed_up(path: Path, draft: Path) -> None:
    with (
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as store,
        closing(sqlite3.connect(draft)) as copy,
    ):
        store.backup(copy)  # in one step: all of it as of one instant
        with copy:
            copy.execute("DELETE FROM leases")  # nobody drives the copy
        copy.execute("PRAGMA journal_mode=DELETE").fetchall()  # so that the copy is one file
        found = [str(row[0]) for row in copy.execute("PRAGMA quick_check(1)")]
        if found != ["ok"]:
            raise sqlite3.DatabaseError(f"the copy is damaged, as the store is: {found[0]}")
    synchronise(draft)
