"""The data files of a Delta table, each with its epochs and its deletion vector.

They are as delta-rs's snapshot of the table has them, and their vectors as the log itself has these (`delta.adds`).

Invariant: every statement about a file is true of all its rows: if the log does not say, the file itself is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.delta.adds import vectors_in
from tidegauge.sinks.delta.creating import snapshot
from tidegauge.sinks.delta.head import log_read
from tidegauge.sinks.layout.values import texts_of
from tidegauge.sinks.location import TablePath, inside, staging
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.vectors import count_of, path_of, text_of

__all__ = [
    "LiveFile",
    "epochs_in",
    "epochs_of",
    "files_of",
    "live",
    "named",
    "named_files",
    "paths_of",
    "remove_unnamed",
]

pc: Final = library("pyarrow.compute")
pq: Final = library("pyarrow.parquet")

_PARTITION: Final = "partition."
_UNREADABLE: Final = (OSError, KeyError, pa.ArrowException)


def files_of(table: DeltaTable, folder: str) -> list[StagedFile]:
    """Return the files in the order of their epochs."""
    found = [_file(row, folder) for row in _rows(table, folder)]
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
    """Return the files that the log names."""
    return [_live(row, folder) for row in _rows(table, folder)]


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
            table = snapshot(folder)
            named = paths_of(table) | {path_of(one) for one in vectors_in(table, folder).values()}
        except TableNotFoundError:
            named = set()
    place = staging(folder)
    for file in files:
        if file.path not in named:
            place.remove(file.path)


def named(folder: str, version: int) -> set[str]:
    """Return the names of the files of a version; see `StagedFile.name`."""
    table = snapshot(folder, version)
    vectors = vectors_in(table, folder)
    return {path + text_of(folder, vectors.get(path)) for path in paths_of(table)}


def named_files(folder: str, version: int) -> list[StagedFile]:
    """Return the files that a version names, to be taken out: their names and sizes alone."""
    return [
        StagedFile(row["path"], 0, row["size_bytes"], 0, 0, partition=row["partition"], deletions=row["deletions"])
        for row in _rows(snapshot(folder, version), folder)
    ]


def paths_of(table: DeltaTable) -> set[str]:
    """Return the files' paths, relative to the table."""
    return {unquote(path) for path in _actions(table).column("path").to_pylist()}


def _rows(table: DeltaTable, folder: str) -> list[dict[str, Any]]:
    """Return what the table says of its files: a wide table says much, and we ask for little of it."""
    actions, vectors = _actions(table), vectors_in(table, folder)
    names = [name for name in actions.schema.names if name.startswith(_PARTITION)]
    order = [f"{_PARTITION}{name}" for name in table.metadata().partition_columns] if names else []
    texts = [texts_of(actions.column(name).combine_chunks()) for name in order]
    found: list[dict[str, Any]] = actions.drop_columns(names).to_pylist()
    for at, row in enumerate(found):
        row["path"] = unquote(row["path"])  # delta-rs gives it as the log has it
        row["deletions"] = text_of(folder, vectors.get(row["path"]))
        row["partition"] = tuple(
            (name.removeprefix(_PARTITION), text[at]) for name, text in zip(order, texts, strict=True)
        )
    return found


def _actions(table: DeltaTable) -> Any:
    wanted = {"path", "size_bytes", "num_records", f"min.{EPOCH}", f"max.{EPOCH}"}
    actions = pa.table(table.get_add_actions(flatten=True))
    return actions.select([name for name in actions.schema.names if name in wanted or name.startswith(_PARTITION)])


def _file(row: dict[str, Any], folder: str) -> StagedFile:
    path, rows = row["path"], row.get("num_records")
    first, last = row.get(f"min.{EPOCH}"), row.get(f"max.{EPOCH}")
    if rows is None or first is None or last is None:  # a file with a NaN, or rewritten without such statistics
        rows, first, last = epochs_of(inside(folder, path))
    deletions = row["deletions"]
    left = rows - count_of(deletions)
    return StagedFile(path, left, row["size_bytes"], first, last, partition=row["partition"], deletions=deletions)


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
