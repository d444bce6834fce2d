"""The faults of a damaged SQLite file, and which of its tables can still be read to the end.

Invariant: looking writes nothing, neither to the file nor beside it (`untouched`); what it holds is only counted.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> path = Path(folder.name) / "shop.db"
>>> made = sqlite3.connect(path)
>>> _ = made.execute("CREATE TABLE flows (id)")
>>> made.close()
>>> with path.open("r+b") as file:
...     _ = file.truncate(5000)
>>> found = examine(path)
>>> found.detail
'it has 5000 of its 8192 bytes: it was cut short'
>>> folder.cleanup()
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Table

from tidegauge.remap.store.copies import untouched, waits, wal_of
from tidegauge.remap.store.leftover import doubtful, foreign_wal, uppers_of
from tidegauge.remap.store.schema import LAYOUT, metadata, store_layout

__all__ = ["Damage", "Look", "beheaded", "examine", "look"]

_MAGIC: Final = b"SQLite format 3\0"
_HEADER: Final = 100
_OF_THE_DISK: Final = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_FAULTS: Final = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises of a damaged file; Python cannot always read what SQLite says of it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The faults of a file, and its intact tables, for people. `ours` is False if it is no SQLite file at all;
    `detail` is "" if SQLite finds no fault with it."""

    ours: bool
    detail: str
    intact: str


@dataclass(frozen=True, slots=True)
class Look:
    """What a file says before it is opened: the version of its layout, None where it has none; and what SQLite finds
    wrong with it, "" where that is nothing."""

    layout: int | None
    fault: str


def look(path: Path) -> Look:
    """Look at a file before it is opened, and changed by that. One that somebody writes to has been looked at.

    Raises `OSError`, and `sqlite3.OperationalError`, where the disk does not let anybody look.
    """
    if not path.exists():
        return Look(None, "")
    before = uppers_of(path) if doubtful(path) else None
    with untouched(path) as (connection, still):
        if not still:
            return Look(None, "")
        try:
            layout, fault = _layout(connection), _check(connection)
            if before is not None and layout == LAYOUT and not fault:
                fault = foreign_wal(connection, before)
            return Look(layout, fault)
        except _FAULTS as error:
            if _of_the_disk(error):
                raise
            return Look(None, str(error))


def _layout(connection: sqlite3.Connection) -> int | None:
    try:
        [(version,)] = connection.execute(f"SELECT version FROM {store_layout.name}")  # noqa: S608
    except (sqlite3.OperationalError, ValueError):  # no such table, or not one row: opening it says what it is
        return None
    return version if isinstance(version, int) else None


def beheaded(path: Path) -> bool:
    """Whether SQLite would begin a new database over a file's contents: it takes one byte for an empty file, and
    treats anything beside an empty or missing file as leftovers."""
    if waits(path.with_name(f"{path.name}-journal")):
        return False  # somebody who made the file died on the way, and SQLite puts that right
    kept = waits(wal_of(path))  # looked at first: who makes a store makes it last
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return kept
    except OSError:
        return False  # not to be looked at, which opening it says better
    return size == 1 or (size == 0 and kept)


def examine(path: Path) -> Damage:
    """Look at a file that SQLite calls damaged. Raises as `look`: a dead disk looks like damage, too."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER)
        size = path.stat().st_size
    except FileNotFoundError:
        return Damage(ours=True, detail="it is gone, and its -wal is not", intact="none can be read")
    if len(header) < _HEADER and header.startswith(_MAGIC[: len(header)]):
        detail = f"no more than {size} bytes of it are left" if size else "it was emptied, and its -wal was not"
        return Damage(ours=True, detail=detail, intact="none can be read")
    if not header.startswith(_MAGIC):
        return Damage(ours=False, detail="it does not begin as a SQLite file does", intact="none can be read")
    page = int.from_bytes(header[16:18])
    full = (65536 if page == 1 else page) * int.from_bytes(header[28:32])
    short = size < full and not waits(wal_of(path))  # what is missing may be on its way
    detail = f"it has {size} of its {full} bytes: it was cut short" if short else ""
    try:
        with untouched(path) as (connection, _still):
            connection.execute(
                "PRAGMA writable_schema=ON"
            )  # lets SQLite read on where a file is shorter than it says
            return Damage(ours=True, detail=detail or _check(connection), intact=_readable(connection))
    except _FAULTS as error:
        if _of_the_disk(error):
            raise
        return Damage(ours=True, detail=detail or str(error), intact="none can be read")


def _check(connection: sqlite3.Connection) -> str:
    try:
        lines = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
    except _FAULTS as error:
        if _of_the_disk(error):
            raise
        return str(error)
    return " ".join(" ".join(lines).split()) if lines != ["ok"] else ""


def _of_the_disk(error: Exception) -> bool:
    """Whether a fault says nothing of the file, but of what it is on."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_DISK


def _readable(connection: sqlite3.Connection) -> str:
    counts = {name: _count(connection, table) for name, table in metadata.tables.items()}
    whole = {name: rows for name, rows in counts.items() if rows is not None}
    told = [f"{name} ({rows} rows)" for name, rows in sorted(whole.items())]
    lost = sorted(metadata.tables.keys() - whole.keys())
    return f"{_listed(told)} can be read, {_listed(lost)} cannot"


def _count(connection: sqlite3.Connection, table: Table) -> int | None:
    """Read every row of a table in the order of its key, so from itself and not from an index; None when that does
    not come to its end."""
    query = f"SELECT * FROM {table.name} ORDER BY {', '.join(column.name for column in table.primary_key)}"  # noqa: S608
    try:
        return sum(1 for _ in connection.execute(query))
    except _FAULTS:
        return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
