"""Files in a Delta table's folder that no version within its retention names: what a VACUUM removes.

delta-rs says which files those are. Two kinds are told apart here. Some were in the table: others or we have taken
them out, and nobody puts them back. Some never were: they were staged by tasks that died, or by those that live.

Invariant: nothing else is ever named here: not a file of the newest version, none that a version within the retention
had, none of a program that stages beside us, and none that is younger than the retention.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Final

from deltalake import DeltaTable

from tidegauge.sinks.delta.adds import may_have_vectors, vectors_in
from tidegauge.sinks.delta.creating import snapshot
from tidegauge.sinks.delta.head import Action, actions_of
from tidegauge.sinks.delta.owner import Mine
from tidegauge.sinks.location import TablePath, at, inside, names_in
from tidegauge.sinks.protocol import OutputId
from tidegauge.sinks.upkeep import Remnant
from tidegauge.sinks.vectors import FOLDER, path_of

__all__ = ["remnants_of"]

_HOUR: Final = timedelta(hours=1)
_STAGING: Final = timedelta(days=1)
"""No file that was staged is a remnant sooner, whatever the retention."""


def remnants_of(folder: str, output: OutputId, retention: timedelta | None) -> list[Remnant]:
    """Return the remnants of a table, in the order of their names. retention: None for the table's own.

    Raises `DeltaError`, `OSError`, and `ValueError` for an entry that cannot be read.
    """
    hours = None if retention is None else -(-retention // _HOUR)
    table = snapshot(folder)
    found = set(table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=True))
    vectors = _vectors(folder, table, retention)
    if not found:
        return vectors
    # What a checkpoint no longer says was taken out, older entries of the log may.
    out = found & _taken_out(at(folder) / "_delta_log")
    out |= found & set(
        table.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=False)
    )
    mine = Mine.of(output)
    staged = {path for path in found - out if mine.named(path) and _old(folder, path)}
    sizes = {path: _bytes(folder, path) for path in sorted(out | staged)}
    return [
        *(Remnant(path, size, staged=path in staged) for path, size in sizes.items() if size is not None),
        *vectors,
    ]


def _vectors(folder: str, table: DeltaTable, retention: timedelta | None) -> list[Remnant]:
    """Return files of deletion vectors of ours that no version within the retention names: nobody else clears them.

    retention: None for as long as the log has the entry that took the vector out.
    """
    if not may_have_vectors(table):
        return []
    log = at(folder) / "_delta_log"
    since = 0.0 if retention is None else (time.time() - retention.total_seconds()) * 1000
    named = {path_of(vector) for vector in vectors_in(table, folder).values()}
    for removed in _removed(log, table.version()):
        if removed.get("deletionVector") and int(removed.get("deletionTimestamp") or 0) > since:
            named.add(path_of(removed["deletionVector"]))
    try:
        names = sorted(names_in(at(folder) / FOLDER))
    except FileNotFoundError:
        return []
    left = [path for path in (f"{FOLDER}/{name}" for name in names) if path not in named and _old(folder, path)]
    sizes = {path: _bytes(folder, path) for path in left}
    return [Remnant(path, size, staged=False) for path, size in sizes.items() if size is not None]


def _removed(log: TablePath, version: int) -> Iterator[Action]:
    """Yield what the log says of files that were taken out, as far back as its entries go."""
    for name in sorted(names_in(log)):
        if name.endswith(".json") and name[:-5].isdecimal() and int(name[:-5]) <= version:
            with suppress(FileNotFoundError):  # cleaned up meanwhile
                yield from (action["remove"] for action in actions_of(log / name) if "remove" in action)


def _taken_out(log: TablePath) -> set[str]:
    """Return the files that entries of the log take out."""
    paths = set[str]()
    for name in names_in(log):
        if name.endswith(".json") and name[:-5].isdecimal():
            with suppress(FileNotFoundError):  # cleaned up meanwhile
                paths |= {action["remove"]["path"] for action in actions_of(log / name) if "remove" in action}
    return paths


def _bytes(folder: str, path: str) -> int | None:
    """Return how large a file is, None where it is gone."""
    with suppress(FileNotFoundError):
        return inside(folder, path).stat().st_size
    return None


def _old(folder: str, path: str) -> bool:
    """Whether a staged file was last written longer ago than any task that lives has it open."""
    with suppress(FileNotFoundError):
        return time.time() - inside(folder, path).stat().st_mtime_ns / 1e9 > _STAGING.total_seconds()
    return False
