"""Writing a batch: tasks stage files, and then the driver publishes them by a manifest, once.

    orders/_staged/part-….parquet   by a task, durable once it is done
    orders/000000000007/…           moved there by the driver
    orders/000000000007.json        created by the driver, where nobody has

Invariant: a batch is published by one manifest, which names files in their place, whole and durable. Of two
drivers with one batch one publishes, and the other one finds that it is there. What no manifest names is removed when
the next one is published.

>>> import tempfile
>>> import pyarrow as pa
>>> from tidegauge.sources.batches.manifest import newest_in
>>> with tempfile.TemporaryDirectory() as root:
...     folder = Path(root, "orders")
...     file = stage(folder, iter([pa.record_batch({"id": [1, 2, 3]})]))
...     publish(folder, "7d1f", 0, [file])
...     newest_in(folder).rows, sorted(path.name for path in folder.iterdir())
(3, ['000000000000', '000000000000.json'])
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidegauge.disk import put_new, synchronise
from tidegauge.errors.batches import BatchUnlike
from tidegauge.sources.batches.manifest import (
    BatchFile,
    BatchManifest,
    files_of,
    is_new,
    manifest_path,
    newest_in,
    read_manifest,
)
from tidegauge.sources.staging import StagingPath, make_folder, write_rows

__all__ = ["STAGED", "check_again", "discard", "publish", "stage", "write_part"]

STAGED: Final = "_staged"
_TEMPORARY: Final = "_manifest-"
_GROUP: Final = 32 << 20
"""About how many bytes in memory become a row group."""


def stage(folder: Path, batches: Iterator[pa.RecordBatch]) -> BatchFile | None:
    """Write the rows of a task into a file of its own, for `publish`; None where there are none. Runs in a task."""
    return write_part(folder / STAGED, batches)


def write_part(folder: StagingPath, batches: Iterator[pa.RecordBatch]) -> BatchFile | None:
    """Write rows into a file of its own in a folder, durably; None where there are none."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return None
    make_folder(folder)
    path = folder / f"part-{uuid.uuid4().hex}.parquet"
    rows = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal rows
        for group in _groups(first, filled):
            rows += group.num_rows
            yield group

    try:
        size = write_rows(path, first.schema, counted())
    except BaseException:
        if isinstance(path, Path):  # of a store, all that was staged is removed by whoever gives it up
            path.unlink(missing_ok=True)
        raise
    return BatchFile(path.name, size, rows)


def _groups(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the batches together, until they make a good row group."""
    held, size = [first], first.nbytes
    for batch in rest:
        if size >= _GROUP:
            yield pa.Table.from_batches(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    yield pa.Table.from_batches(held)


def publish(folder: Path, query_id: str, batch: int, files: Sequence[BatchFile]) -> None:
    """Make the staged files the batch, or let them go where it was published before.

    Raises what `is_new` does, and `BatchUnlike`.
    """
    try:
        make_folder(folder)
        newest = newest_in(folder)
        published = is_new(newest, query_id, batch, place=str(folder)) and _published(
            folder, newest, query_id, batch, files
        )
        if not published:
            there = read_manifest(folder, batch)
            is_new(there, query_id, batch, place=str(folder))
            check_again(there, sum(file.rows for file in files), place=str(folder))
    finally:
        discard(folder, files)
    _sweep(folder, batch)


def _published(
    folder: Path, newest: BatchManifest | None, query_id: str, batch: int, files: Sequence[BatchFile]
) -> bool:
    """Whether the files are the batch now; False where somebody else's are."""
    first, before = (batch, "") if newest is None else (newest.first, newest.digest)
    manifest = BatchManifest(query_id, first, batch, before, tuple(files))
    path, own = manifest_path(folder, batch), files_of(folder, batch)
    try:
        if files:
            make_folder(own)
            for file in files:
                (folder / STAGED / file.name).rename(own / file.name)
            synchronise(own)
        made = put_new(path, manifest.encode(), beside=f"{_TEMPORARY}{uuid.uuid4().hex}")
    except FileNotFoundError:
        if not path.exists():
            raise
        made = False  # whoever published it first has cleared up since
    if not made:
        for file in files:
            (own / file.name).unlink(missing_ok=True)
    return made


def check_again(there: BatchManifest, rows: int, *, place: str) -> None:
    """Raise `BatchUnlike` where a batch that is there is run again, and has not as many rows."""
    if there.rows != rows:
        raise BatchUnlike(batch=there.batch, known=there.rows, found=rows, place=place)


def discard(folder: Path, files: Iterable[BatchFile]) -> None:
    """Remove files that were staged, where they are still there."""
    for file in files:
        with suppress(OSError):
            (folder / STAGED / file.name).unlink(missing_ok=True)


def _sweep(folder: Path, batch: int) -> None:
    """Remove what attempts before have left: no task of this query runs while its driver publishes.

    An attempt that does run beside it, of a driver that was given up, fails for that, and publishes nothing anyway.
    """
    with suppress(OSError):
        shutil.rmtree(folder / STAGED)
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_TEMPORARY):
                (folder / name).unlink(missing_ok=True)
        named = {file.name for file in read_manifest(folder, batch).files}
        for name in os.listdir(files_of(folder, batch)):
            if name not in named:
                (files_of(folder, batch) / name).unlink(missing_ok=True)
