"""bytewax's recovery store, read: the states from which its dataflow resumes, whenever it dies from now on.

It is a folder of SQLite files, over which the rows of these tables are spread:

    parts    part_index, part_count                         which file this is, of how many
    exs      ex_num, worker_count, resume_epoch             each execution, and where it began
    fronts   ex_num, worker_index, worker_frontier          how far each worker is; all before is durable
    commits  part_index, commit_epoch                       up to where older states of this file were removed
    snaps    step_id, state_key, snap_epoch, ser_change     the states at the end of epochs, pickled

bytewax resumes at the least frontier of the newest execution, with the newest state before that of each key. Both
only ever advance. The files are read one after the other, while bytewax writes: so the epoch is read first, and a
state that is removed meanwhile is older than one that counts, too (`commit_epoch` is before the epoch to resume at
by then).

Invariant: a state that is returned is one that bytewax has resumed from, or would, or a newer one has replaced.
Nothing is unpickled: a pickle of one text is read, and no other.

>>> import pickle
>>> text_of(pickle.dumps("tidegauge:1")), text_of(pickle.dumps(["no"]))
('tidegauge:1', None)
"""

from __future__ import annotations

import pickletools
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from tidegauge.errors.bytewax import RecoveryUnread

__all__ = ["resumed_from", "text_of"]

_VERSION: Final = 5
"""The `user_version` of the files: how many changes their schema has had."""
_PATIENCE: Final = 5.0
"""Seconds to wait for a file that is locked."""
_FIRST: Final = 1
"""The epoch of a dataflow that has never run."""

Key = tuple[str, str]


def resumed_from(folder: Path, keys: Iterable[Key]) -> dict[Key, str]:
    """Return the states of these steps and keys, where bytewax has one that is a text. Raises `RecoveryUnread`."""
    try:
        with ExitStack() as opened:
            files = [opened.enter_context(closing(_opened(path))) for path in sorted(folder.glob("*.sqlite3"))]
            _check_parts(folder, files)
            removed = max((epoch for (epoch,) in _rows(files, "SELECT commit_epoch FROM commits")), default=0)
            resume = _resume_epoch(files)
            if removed >= resume:
                problem = f"states up to epoch {removed} were removed, and it resumes at epoch {resume}"
                raise RecoveryUnread(folder=str(folder), problem=f"{problem}: its files are of different times")
            wanted = list(keys)
            return {key: text for file in files for key, text in _states(file, resume, wanted)}
    except (sqlite3.Error, OSError) as error:
        raise RecoveryUnread(folder=str(folder), problem=f"{type(error).__name__}: {error}") from error


def text_of(pickled: bytes | None) -> str | None:
    """Return the text of a pickle that is one text; None for any other. It is looked at, and never unpickled."""
    texts = list[str]()
    if pickled is None:
        return None
    for code, argument, _ in pickletools.genops(pickled):
        if code.name in {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}:
            texts.append(str(argument))
        elif code.name not in {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "STOP"}:
            return None
    return texts[0] if len(texts) == 1 else None


def _opened(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)


def _check_parts(folder: Path, files: list[sqlite3.Connection]) -> None:
    """Raise `RecoveryUnread` unless all files are there, of the form that is known."""
    found = {version for (version,) in _rows(files, "PRAGMA user_version")}
    if odd := found - {_VERSION}:
        raise RecoveryUnread(
            folder=str(folder), problem=f"its files have version {odd.pop()}, and {_VERSION} is known"
        )
    parts = set(_rows(files, "SELECT part_index, part_count FROM parts"))
    count = max((count for _, count in parts), default=0)
    missing = {(index, count) for index in range(max(count, 1))} - parts
    if missing or len(parts) != count:
        problem = f"{len(parts)} of its {count} files are there" if count else "it has no file"
        raise RecoveryUnread(folder=str(folder), problem=problem)


def _resume_epoch(files: list[sqlite3.Connection]) -> int:
    """Return the epoch at which bytewax would resume, or one before it: it may have advanced meanwhile."""
    newest = max(_rows(files, "SELECT ex_num, worker_count, resume_epoch FROM exs"), default=None)
    if newest is None:
        return _FIRST
    execution, workers, begun = newest
    asked = "SELECT worker_index, worker_frontier FROM fronts WHERE ex_num = ?"
    fronts = {**dict.fromkeys(range(workers), begun), **dict(_rows(files, asked, execution))}
    return int(max(begun, min(fronts.values())))


def _states(file: sqlite3.Connection, resume: int, keys: list[Key]) -> Iterator[tuple[Key, str]]:
    file.execute("BEGIN")  # what was removed, and the states that are left, of one instant
    removed = max((epoch for (epoch,) in file.execute("SELECT commit_epoch FROM commits")), default=0)
    asked = (
        "SELECT ser_change FROM snaps WHERE step_id = ? AND state_key = ? AND snap_epoch < ? "
        "ORDER BY snap_epoch DESC LIMIT 1"
    )
    for key in keys:
        for (pickled,) in file.execute(asked, (*key, max(resume, removed + 1))):
            if (text := text_of(pickled)) is not None:
                yield key, text
    file.execute("COMMIT")


def _rows(files: list[sqlite3.Connection], asked: str, *values: Any) -> Iterator[tuple[Any, ...]]:
    for file in files:
        yield from file.execute(asked, values)
