"""What sources stage as files: manifests that end with their digest, and Parquet files that must stay as they were.

Invariant: a file gives the bytes that were written, or an error of its source that tells the difference.

>>> data = sealed({"format": 1, "batch": 7})
>>> unsealed(data, "b.json", formats=[1], damaged=BatchDamaged)["batch"]
7
>>> unsealed(data[:-5], "b.json", formats=[1], damaged=BatchDamaged)
Traceback (most recent call last):
tidegauge.errors.batches.BatchDamaged: TG-0684: b.json is not as it was written: its 54 bytes do not ...
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Protocol

import pyarrow as pa

from tidegauge.errors.batches import BatchDamaged
from tidegauge.errors.polls import PollDamaged
from tidegauge.errors.sources import CorruptFile, FolderAway, RangeOvertaken
from tidegauge.sources.formats.parquet import Parquet
from tidegauge.sources.protocol import Split
from tidegauge.sources.staging import StagingPath, check_there, opened, path_of

__all__ = ["Damaged", "StagedSplit", "manifest_digest", "sealed", "staged_rows", "unsealed"]

Damaged = type[BatchDamaged] | type[PollDamaged]
"""The error of a file that is not as it was written."""


class StagedSplit(Split, Protocol):
    """A file that a task reads, of `weight` bytes. rows: how many it has."""

    @property
    def path(self) -> str: ...  # noqa: D102
    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def schema(self) -> pa.Schema: ...  # noqa: D102


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return what no other manifest has."""
    return _digest(_body(manifest))


def sealed(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as JSON, with its digest in a second line."""
    body = _body(manifest)
    return body + b"\n" + _digest(body).encode() + b"\n"


def unsealed(data: bytes, path: str, *, formats: Collection[int], damaged: Damaged) -> Any:
    """Return the manifest that `sealed` made. Raises `damaged`, also for one of other formats."""
    body, _, rest = data.partition(b"\n")
    if rest != _digest(body).encode() + b"\n":
        raise damaged(path=path, detail=f"its {len(data)} bytes do not have the digest that they end with")
    said: Any = json.loads(body)
    if said["format"] not in formats:
        known = max(formats)
        raise damaged(path=path, detail=f"it has format {said['format']!r}, and this version knows {known}")
    return said


def staged_rows(split: StagedSplit, folder: StagingPath, *, damaged: Damaged) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file.

    Raises `damaged`, `RangeOvertaken` for a file that was removed, and `FolderAway` where its folder is not there.
    """
    parquet, rows = Parquet(split.schema), 0
    try:
        with opened(path_of(split.path), expected=split.weight) as (file, size):
            if size != split.weight:
                raise damaged(path=split.path, detail=f"it has {size} bytes, and had {split.weight}")
            last = len(parquet.groups(file))
            for decoded in parquet.decode_groups(file, first=0, last=last, schema=split.schema):
                rows += decoded.rows.num_rows
                yield decoded.rows
    except FileNotFoundError:
        try:
            check_there(folder)
        except OSError:
            raise FolderAway(folder=str(folder), what="not there", count=1, path=split.path) from None
        raise RangeOvertaken(partition=split.partition, asked=split.lower, there=split.upper) from None
    except CorruptFile as error:
        raise damaged(path=split.path, detail=error.summary) from error
    if rows != split.rows:
        raise damaged(path=split.path, detail=f"it has {rows} rows, and had {split.rows}")


def _body(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest).encode()


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()
