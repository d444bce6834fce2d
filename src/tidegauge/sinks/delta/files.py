"""The data files of a Delta table, each with its epochs, as delta-rs's snapshot of the table has them.

Invariant: every statement about a file is true of all its rows: if the log does not say, the file itself is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidegauge.errors.sinks import DeletedRows
from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.delta.creating import snapshot
from tidegauge.sinks.delta.head import log_read
from tidegauge.sinks.location import TablePath, inside, staging
from tidegauge.sinks.protocol import StagedFile

__all__ = [
    "LiveFile",
    "epochs_in",
    "epochs_of",
    "files_of",
    "has_deletion_vectors",
    "live",
    "named",
    "named_files",
    "paths_of",
    "remove_unnamed",
]

pc: Final = library("pyarrow.compute")
pq: Final = library("pyarrow.parquet")

_UNREADABLE: Final = (OSError, KeyError, pa.ArrowException)


def files_of(table: DeltaTable, folder: str) -> list[StagedFile]:
    """Return the files in the order of their epochs. Raises `DeletedRows` for deletion vectors."""
    if has_deletion_vectors(table):
        raise DeletedRows(table=folder)
    found = [_file(row, folder) for row in _actions(table).to_pylist()]
    return sorted(found, key=lambda file: (file.first_epoch, file.last_epoch, file.path))


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that the log names. known: what it holds, None where nobody knows. sound: whether it is as it was."""

    path: str
    known: StagedFile | None
    sound: bool

    @property
    def epochs(self) -> range | None:
        """From its first to its last."""
        return None if self.known is None else range(self.known.first_epoch, self.known.last_epoch + 1)


def live(table: DeltaTable, folder: str) -> list[LiveFile]:
    """Return the files that the log names. Raises `DeletedRows` for deletion vectors."""
    if has_deletion_vectors(table):
        raise DeletedRows(table=folder)
    return [_live(row, folder) for row in _actions(table).to_pylist()]


def epochs_in(path: TablePath) -> range | None:
    """Return the epochs from a data file's first to its last, read from the file; None where it cannot be read."""
    try:
        rows, first, last = epochs_of(path)
    except _UNREADABLE:
        return None
    return range(first, last + 1) if rows else range(0)


def remove_unnamed(folder: str, files: Sequence[StagedFile]) -> None:
    """Remove staged files. Files that the log names are kept, whatever the caller believes of them.

    It looks at a snapshot of its own: the snapshot of a commit under way in another thread must not change.
    """
    if not files:
        return
    with log_read(folder):
        try:
            named = paths_of(snapshot(folder))
        except TableNotFoundError:
            named = set()
    place = staging(folder)
    for file in files:
        if file.path not in named:
            place.remove(file.path)


def named(folder: str, version: int) -> set[str]:
    """Return the paths of the files that a version of a table names. Raises `DeletedRows` for deletion vectors."""
    table = snapshot(folder, version)
    if has_deletion_vectors(table):
        raise DeletedRows(table=folder)
    return paths_of(table)


def named_files(folder: str, version: int) -> list[StagedFile]:
    """Return the files that a version names, to be taken out: their paths and sizes alone. Raises `DeletedRows`."""
    table = snapshot(folder, version)
    if has_deletion_vectors(table):
        raise DeletedRows(table=folder)
    rows = _actions(table).to_pylist()
    return [StagedFile(str(row["path"]), 0, int(row["size_bytes"]), 0, 0) for row in rows]


def paths_of(table: DeltaTable) -> set[str]:
    """Return the files' paths, relative to the table."""
    return {str(path) for path in _actions(table)["path"].to_pylist()}


def _actions(table: DeltaTable) -> Any:
    """Return what the table says of its files, and of the columns that we ask for: a wide table says much."""
    wanted = {"path", "size_bytes", "num_records", f"min.{EPOCH}", f"max.{EPOCH}"}
    actions = pa.table(table.get_add_actions(flatten=True))
    return actions.select([name for name in actions.schema.names if name in wanted])


def has_deletion_vectors(table: DeltaTable) -> bool:
    """Whether a table's log says of single rows that they are gone."""
    if "deletionVectors" not in (table.protocol().reader_features or []):
        return False
    return bool(pa.table(table.deletion_vectors()).num_rows)


def _file(row: dict[str, Any], folder: str) -> StagedFile:
    path, rows = row["path"], row.get("num_records")
    first, last = row.get(f"min.{EPOCH}"), row.get(f"max.{EPOCH}")
    if rows is None or first is None or last is None:  # a file with a NaN, or rewritten without such statistics
        rows, first, last = epochs_of(inside(folder, path))
    return StagedFile(path=path, rows=rows, bytes=row["size_bytes"], first_epoch=first, last_epoch=last)


def _live(row: dict[str, Any], folder: str) -> LiveFile:
    path = str(row["path"])
    try:
        file = _file(row, folder)
    except _UNREADABLE:
        return LiveFile(path, None, sound=False)
    try:
        size = inside(folder, path).stat().st_size
    except OSError:
        return LiveFile(path, file, sound=False)
    return LiveFile(path, file, sound=size == file.bytes)


def epochs_of(path: TablePath) -> tuple[int, int, int]:
    """Return rows, first and last epoch of a data file, read from the file itself."""
    with pq.ParquetFile(readable(path)) as file:
        epochs = file.read(columns=[EPOCH]).column(EPOCH)
    ends = pc.min_max(epochs).as_py()
    return len(epochs), ends["min"] or 0, ends["max"] or 0
