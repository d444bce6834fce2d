"""A copy of a SQLite store as it is at one instant, taken while a driver may be writing to it.

Invariant: the copy is whole and on the disk when its name is there, and nothing that had the name is lost. The store
itself is only read.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

from tidegauge.errors.history import BackupExists, BackupFailed, ServerBacksUp
from tidegauge.remap.store.address import File, parse

__all__ = ["backup"]


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
        _copy(address.path, draft)
        size = draft.stat().st_size
        target.hardlink_to(draft)  # unlike a rename, it replaces nothing
        _synchronise(target.parent)
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, FileExistsError) and draft.exists():
            raise BackupExists(target=str(target)) from None
        raise BackupFailed(store=address.shown, target=str(target), detail=str(error)) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return size


def _copy(path: Path, draft: Path) -> None:
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
    _synchronise(draft)


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
