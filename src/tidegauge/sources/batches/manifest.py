"""A batch of a query: a manifest, which makes it visible, and the Parquet files that this names.

    orders/000000000007.json            the manifest of batch 7 of the query `orders`
    orders/000000000007/part-….parquet  its files

A manifest names the Spark query, by the id in its checkpoint, and the digest of the manifest before it. So two
tell whether one follows the other.

Invariant: a manifest is created last, whole, and never changed; the ids of batches have no gap; and the newest batch
stays, for the next one to be held against.

>>> made = BatchManifest("7d1f", first=0, batch=0, before="", files=(BatchFile("part-0", 120, 3),))
>>> decoded(made.encode(), "here") == made, made.rows
(True, 3)
>>> is_new(made, "7d1f", 1, place="orders"), is_new(made, "7d1f", 0, place="orders")
(True, False)
>>> is_new(made, "c0de", 0, place="orders")
Traceback (most recent call last):
tidegauge.errors.batches.AnotherCheckpoint: TG-0680: batch 0 of Spark's query c0de was to be written to orders, ...
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tidegauge.disk import local_path
from tidegauge.errors.batches import (
    AnotherCheckpoint,
    BatchDamaged,
    BatchesElsewhere,
    BatchesMissing,
    CheckpointBehind,
)
from tidegauge.errors.flow import InvalidArgument
from tidegauge.objects.path import ObjectPath
from tidegauge.sources.staged import manifest_digest, sealed, unsealed
from tidegauge.sources.staging import StagingPath, names_in

__all__ = [
    "STAGED_LOADS",
    "BatchFile",
    "BatchManifest",
    "LoadNote",
    "batches_in",
    "check_name",
    "decoded",
    "files_of",
    "is_new",
    "is_query",
    "manifest_path",
    "newest_in",
    "read_manifest",
    "root_at",
]

STAGED_LOADS: Final = "_loads"
"""The folder where loads stage, beside those of queries. It stays: so a removed load is no disk that is away."""
Place = TypeVar("Place", Path, ObjectPath, StagingPath)

_FORMAT: Final = 1
_LOADS: Final = 2
"""The format of a manifest of a load, which older versions do not read."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,127}")
"""Of a query's folder, and of a file in a batch."""
_MANIFEST: Final = re.compile(r"([0-9]{12})\.json")


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file of a batch: its name, its size in bytes, and how many rows it has."""

    name: str
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class LoadNote:
    """The files of a load. path: the addresses as they were given. inputs: how many files, and their size.

    at: where it was staged, in an object store, and stays; "" on a disk.
    """

    path: str
    inputs: int
    bytes: int
    at: str = ""

    def said(self) -> dict[str, Any]:
        """Return it as a manifest and a binding have it."""
        return {name: value for name, value in asdict(self).items() if value or name != "at"}


@dataclass(frozen=True, slots=True)
class BatchManifest:
    """What a batch has.

    query_id: of the Spark query, from its checkpoint. first: its first batch that was written here. before: the
    digest of the manifest of the batch before, "" for the first one. loaded: of a batch that is a load, which is a
    query of its own; its id is a digest of the loaded files.
    """

    query_id: str
    first: int
    batch: int
    before: str
    files: tuple[BatchFile, ...]
    loaded: LoadNote | None = None

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(file.rows for file in self.files)

    @property
    def digest(self) -> str:
        """What no other manifest has."""
        return manifest_digest(self._said())

    def encode(self) -> bytes:
        """Return it as JSON, with its digest in a second line."""
        return sealed(self._said())

    def _said(self) -> dict[str, Any]:
        files = [[file.name, file.size, file.rows] for file in self.files]
        form = _FORMAT if self.loaded is None else _LOADS
        said = {"format": form, "query": self.query_id, "first": self.first, "batch": self.batch}
        loaded = {} if self.loaded is None else {"loaded": self.loaded.said()}
        return {**said, "before": self.before, "files": files, **loaded}


def decoded(data: bytes, path: str) -> BatchManifest:
    """Return the manifest that `encode` made. Raises `BatchDamaged`, also for one of a newer version."""
    said = unsealed(data, path, formats=(_FORMAT, _LOADS), damaged=BatchDamaged)
    files = tuple(BatchFile(name, size, rows) for name, size, rows in said["files"])
    for file in files:
        if not _NAME.fullmatch(file.name):
            raise BatchDamaged(path=path, detail=f"it names a file {file.name!r}")
    loaded = LoadNote(**said["loaded"]) if said["format"] == _LOADS else None
    return BatchManifest(said["query"], said["first"], said["batch"], said["before"], files, loaded)


def is_new(newest: BatchManifest | None, query_id: str, batch: int, *, place: str) -> bool:
    """Whether a batch is to be written, given the newest one there; False where it is this one, which is run again.

    Raises `AnotherCheckpoint`, `CheckpointBehind` and `BatchesMissing`.
    """
    if newest is None:
        return True
    if newest.query_id != query_id:
        raise AnotherCheckpoint(batch=batch, found=query_id, known=newest.query_id, place=place)
    if batch < newest.batch:
        raise CheckpointBehind(batch=batch, newest=newest.batch, place=place)
    if batch > newest.batch + 1:
        raise BatchesMissing(batch=batch, missing=newest.batch + 1, place=place)
    return batch > newest.batch


def root_at(path: str | os.PathLike[str], *, where: str) -> str:
    """Return where the folders of queries are, absolute. Raises `BatchesElsewhere`, `InvalidArgument`."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgument(parameter=where, value=path, expected="the path of a folder, not empty")
    return local_path(
        path, parameter=where, elsewhere=lambda scheme: BatchesElsewhere(where=where, scheme=f"{scheme}:")
    )


def check_name(query: object) -> str:
    """Return a name of a query that can be that of a folder. Raises `InvalidArgument`."""
    if not is_query(query):
        expected = "letters, digits, '_', '-' and '.', at most 128, with a letter or digit first"
        raise InvalidArgument(parameter="query", value=query, expected=expected)
    return str(query)


def is_query(name: object) -> bool:
    """Whether a folder may be that of a query."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def manifest_path(folder: Place, batch: int) -> Place:
    """Return where the manifest of a batch is, in the folder of its query."""
    return folder / f"{batch:012}.json"


def files_of(folder: Place, batch: int) -> Place:
    """Return the folder of the files of a batch."""
    return folder / f"{batch:012}"


def batches_in(folder: StagingPath) -> Sequence[int]:
    """Return the ids of the batches there are, in their order; none where there is no folder. Raises `OSError`."""
    try:
        names = names_in(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(found[1]) for name in names if (found := _MANIFEST.fullmatch(name)))


def read_manifest(folder: StagingPath, batch: int) -> BatchManifest:
    """Return the manifest of a batch. Raises `FileNotFoundError` and `BatchDamaged`."""
    path = manifest_path(folder, batch)
    manifest = decoded(path.read_bytes(), str(path))
    if manifest.batch != batch:
        raise BatchDamaged(path=str(path), detail=f"it is the manifest of batch {manifest.batch}")
    return manifest


def newest_in(folder: StagingPath) -> BatchManifest | None:
    """Return the manifest of the newest batch that is there."""
    there = batches_in(folder)
    return read_manifest(folder, there[-1]) if there else None
