"""The data files of a table of Iceberg: as staged files for us, and as entries of its manifests for everybody.

Invariant: a file's epochs are true of all its rows: if a manifest does not tell them, the file is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.errors.iceberg import IcebergRowsDeleted
from tidegauge.lazy import library
from tidegauge.objects.address import is_address
from tidegauge.objects.reading import readable
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.iceberg.metrics import first_and_last, metrics
from tidegauge.sinks.iceberg.partitions import record_of
from tidegauge.sinks.iceberg.place import uri_of
from tidegauge.sinks.iceberg.staging import said
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.location import at, inside
from tidegauge.sinks.protocol import StagedFile

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table as PyIcebergTable
    from pyiceberg.table.snapshots import Snapshot

__all__ = [
    "entry_of",
    "full_path",
    "is_elsewhere",
    "live",
    "live_entries",
    "paths_in",
    "relative",
    "removed",
    "staged_of",
]

pc: Final = library("pyarrow.compute")
pq: Final = library("pyarrow.parquet")


def entry_of(folder: str, file: StagedFile, columns: pa.Schema, *, spec: int, lying: FileLayout) -> DataFile:
    """Return a staged file as an entry of a manifest.

    columns: those of its rows. spec: the number of the specification of the partitions, which are those of `lying`.
    """
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    ids, text = said(file)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{uri_of(folder)}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=record_of(file.partition, lying, columns),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        column_sizes={},
        split_offsets=None,
        sort_order_id=None,
        spec_id=spec,
        equality_ids=None,
        key_metadata=None,
        **metrics(text, columns, ids, epochs=(file.first_epoch, file.last_epoch)),
    )


def live_entries(table: PyIcebergTable, snapshot: Snapshot | None) -> Iterator[DataFile]:
    """Yield the data files of a snapshot. Raises `IcebergRowsDeleted` for one with delete files."""
    from pyiceberg.manifest import ManifestContent

    if snapshot is None:
        return
    for manifest in snapshot.manifests(table.io):
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if manifest.content == ManifestContent.DELETES:
            if entries:
                raise IcebergRowsDeleted(table=".".join(table.name()), count=len(entries))
            continue
        yield from (entry.data_file for entry in entries)


def live(table: PyIcebergTable, snapshot: Snapshot | None, folder: str) -> list[StagedFile]:
    """Return the data files of a snapshot in the order of their epochs. Raises as `live_entries`."""
    epoch = table.schema().find_field(EPOCH).field_id
    found = [staged_of(entry, folder, epoch) for entry in live_entries(table, snapshot)]
    return sorted(found, key=lambda file: (file.first_epoch, file.last_epoch, file.path))


def staged_of(entry: DataFile, folder: str, epoch: int) -> StagedFile:
    """Return an entry of a manifest as a staged file. epoch: the number of the column."""
    path = relative(entry.file_path, folder)
    ends = first_and_last(entry.lower_bounds, entry.upper_bounds, epoch)
    first, last = _ends_in(full_path(path, folder)) if ends is None else ends
    return StagedFile(path, entry.record_count, entry.file_size_in_bytes, first, last)


def relative(uri: str, folder: str) -> str:
    """Return the path of a file within a table's folder; the whole one where others have put it elsewhere.

    >>> relative("file:///lake/t/data/a.parquet", "/lake/t"), relative("s3a://b/t/data/a", "s3://b/t")
    ('data/a.parquet', 'data/a')
    """
    place = uri.replace("s3a://", "s3://", 1) if is_address(folder) else _plain(uri)
    return place.removeprefix(f"{folder}/")


def full_path(path: str, folder: str) -> str:
    """Return where a file is. path: as `relative` returned it."""
    return path if is_elsewhere(path) else str(inside(folder, path))


def is_elsewhere(path: str) -> bool:
    """Whether others have put a file outside of the table's folder. path: as `relative` returned it."""
    return path.startswith("/") or "://" in path


def removed(table: PyIcebergTable, path: str, folder: str) -> None:
    """Remove a file of a table, of data or of metadata. One that is gone is no error. path: from `relative`.

    By ourselves: Arrow's client, which pyiceberg has, each time puts an empty object in the place of the folder.
    """
    if is_elsewhere(path):
        with suppress(FileNotFoundError):
            table.io.delete(path)
    else:
        inside(folder, path).unlink(missing_ok=True)


def _plain(uri: str) -> str:
    return "/" + uri.removeprefix("file:").lstrip("/") if uri.startswith("file:") else uri


def _ends_in(path: str) -> tuple[int, int]:
    with pq.ParquetFile(readable(at(path))) as file:
        ends: dict[str, Any] = pc.min_max(file.read(columns=[EPOCH]).column(EPOCH)).as_py()
    return ends["min"] or 0, ends["max"] or 0


def paths_in(table: PyIcebergTable, snapshots: Iterable[Snapshot], folder: str) -> set[str]:
    """Return the paths of all files that some snapshots name."""
    manifests = {one.manifest_path: one for snapshot in snapshots for one in snapshot.manifests(table.io)}
    return {
        relative(entry.data_file.file_path, folder)
        for manifest in manifests.values()
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }
