"""Files that are read once, whole, in their present state: found, pinned, and cut into splits.

A `FileSource` waits for what its writers have not finished. Here nobody waits: a last line ends with its file, and a
file that is not complete cannot be read.

Invariant: the rows that are read are those of the content that was found. An object is asked for by its ETag. A file
on a disk is known by a digest of all its bytes, and until it is read nothing of it has changed, not even its times.

>>> import tempfile
>>> from tidegauge.sources.formats.json import Json
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder, "a.jsonl")
...     _ = path.write_text('{"id": 1}\\n{"id": 2}')
...     found = found_files(str(path), Json("id long"))
...     splits = splits_of(found, Json("id long"), pa.schema([("id", pa.int64())]))
...     rows = [rows["id"].to_pylist() for split in splits for rows in rows_of_split(split, Json(), print)]
>>> len(found), found[0].size, [(split.lower, split.upper) for split in splits], rows
(1, 19, [(0, 19)], [[1, 2]])
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.loads import FileChangedMeanwhile, NothingToLoad
from tidegauge.errors.objects import ObjectOverwritten
from tidegauge.errors.sources import FileGone, ShortRead
from tidegauge.objects.address import is_address
from tidegauge.objects.client import at_once
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources.file.disk import DISK
from tidegauge.sources.file.identity import HEAD, FileFacts, Seen, fingerprint, open_known
from tidegauge.sources.file.listing import listed, literally, printable
from tidegauge.sources.file.planning import LOST, planned
from tidegauge.sources.file.reading import FileSplit, batches, opened
from tidegauge.sources.formats.protocol import Format, as_line, is_whole
from tidegauge.sources.protocol import OnBadRecord, Split

__all__ = ["FoundFile", "check_unchanged", "found_files", "has_columns", "rows_of_split", "splits_of"]

SPLIT_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was found.

    identity: of its content, an ETag or a digest. stamp: what the disk said of it, which any change changes; empty
    for an object.
    """

    address: str
    identity: str
    size: int
    facts: FileFacts
    stamp: tuple[int, ...] = ()


def found_files(pattern: str, format: Format) -> list[FoundFile]:
    """Return the files that an absolute pattern or an address of a store names, in their order.

    Raises `NothingToLoad`, `FileChangedMeanwhile`, `OSError`, and what asking the store does.
    """
    if is_address(pattern):
        from tidegauge.sources.file.objects.listing import objects_of
        from tidegauge.sources.file.objects.opening import object_facts

        listing = objects_of(pattern, None)
        if not listing.objects:
            raise NothingToLoad(detail=listing.note.removeprefix("waiting: "))
        facts = [object_facts(one, whole=is_whole(format, one.path)) for one in listing.objects]
        return [FoundFile(one.path, f"etag {one.etag}", one.size, one) for one in facts]
    here = listed(pattern)
    if here.passed_over:
        raise NothingToLoad(detail="; ".join(here.passed_over[:3]))
    if not here.files:
        hint = literally(pattern) if glob.escape(pattern) != pattern else ""
        detail = f"no file matches {printable(pattern)!r}{hint}"
        raise NothingToLoad(detail=detail)
    return list(at_once(_OnDisk(format), [path for path, _status in here.files]))


@dataclass(frozen=True, slots=True)
class _OnDisk:
    """Finds a file of a disk."""

    format: Format

    def __call__(self, path: str) -> FoundFile:
        whole = is_whole(self.format, path)
        try:
            with DISK.open(path) as stream:
                stamp = _stamp(os.fstat(stream.fileno()))
                seen = Seen.of(path, stream.fileno())
                digest = file_digest(cast("Any", stream), "blake2b").hexdigest()[:32]
                head = min(HEAD, seen.size)
                facts = FileFacts(
                    path=path,
                    first=path,
                    dev=seen.dev,
                    ino=seen.ino,
                    born=seen.born,
                    modified=seen.modified,
                    head=head,
                    digest=fingerprint(stream.fileno(), head, whole=whole),
                    whole=int(whole),
                    size=seen.size,
                    final=1,
                )
                if _stamp(os.fstat(stream.fileno())) != stamp:
                    raise FileChangedMeanwhile(path=path, detail="while it was looked at")
        except FileNotFoundError:
            raise FileChangedMeanwhile(path=path, detail="it is gone") from None
        return FoundFile(path, f"content {digest}", seen.size, facts, stamp)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def check_unchanged(files: Iterable[FoundFile]) -> None:
    """Raise `FileChangedMeanwhile` for a file on a disk that is not as it was found; called once all are read."""
    for file in files:
        if file.stamp:
            try:
                now = _stamp(Path(file.facts.path).stat())
            except FileNotFoundError:
                raise FileChangedMeanwhile(path=file.address, detail="it is gone") from None
            if now != file.stamp:
                raise FileChangedMeanwhile(path=file.address, detail="while it was read")


def splits_of(files: Sequence[FoundFile], format: Format, schema: pa.Schema) -> list[FileSplit]:
    """Cut files into splits; `partition` of each is the number of its file. An empty file of lines has none.

    Raises `UnreadableFile`, `FileChangedMeanwhile`, `OSError`, and what asking the store does.
    """
    lines = as_line(format) is not None
    details = {str(number): file.facts.detail() for number, file in enumerate(files) if file.size or not lines}
    slices = [Slice("load", 0, key, 0, files[int(key)].size) for key in details]
    by_number = _Pinned(Bound(details=details), many=any(file.facts.etag for file in files))
    try:
        found: list[Split] = planned(slices, by_number, schema=schema, format=format, size=SPLIT_BYTES)
    except LOST as error:  # an object is asked for when its first byte is
        raise _changed(error) from error
    return [split for split in found if isinstance(split, FileSplit)]


@dataclass(frozen=True, slots=True)
class _Pinned:
    """The files of a load, for `planned`. many: whether several wait for a store at once."""

    bound: Bound
    many: bool

    def open(self, piece: Slice) -> tuple[FileFacts, BinaryIO]:
        facts = FileFacts.of(self.bound.details[piece.partition])
        if facts.etag:
            from tidegauge.sources.file.objects.opening import open_object

            return facts, open_object(facts, lower=piece.lower, upper=piece.upper)
        try:
            path, stream = open_known(facts, lower=piece.lower, upper=piece.upper)
        except LOST as error:
            raise _changed(error) from error
        return replace(facts, path=path), stream

    def each(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        return at_once(function, items) if self.many else map(function, items)


def rows_of_split(split: FileSplit, format: Format, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split. Runs in a task. Raises `UnreadableFile`, `FileChangedMeanwhile`, `OSError`."""
    try:
        yield from batches(split, format=format, metadata=False, on_bad_record=on_bad_record)
    except (*LOST, ShortRead) as error:
        raise _changed(error) from error


def _changed(error: TidegaugeError) -> FileChangedMeanwhile:
    """Return what an error of a pinned file means here."""
    path = str(error.evidence["path"])
    if isinstance(error, FileGone):
        return FileChangedMeanwhile(path=path, detail="it is gone")
    detail = "another object has its key" if isinstance(error, ObjectOverwritten) else error.summary
    return FileChangedMeanwhile(path=path, detail=detail)


def has_columns(split: FileSplit) -> bool:
    """Whether the Parquet file of a split has any of the columns."""
    with opened(split, DISK) as (_path, stream):
        return not set(pq.ParquetFile(stream).schema_arrow.names).isdisjoint(split.schema.names)
