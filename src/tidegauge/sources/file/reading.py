"""Reading a split: exactly its rows, or an error.

Invariant: the rows come from an open file that had the right inode number, fingerprint and size before the first row
was given out and still has them after the last; so rows that were read to the end, and only these, may be committed.

A task may run on another machine, or long after the plan was made, so a split carries what the file is known by.

A past of small epochs is many splits of a few lines each, which cost far more to open, to check and to hand to Arrow
than to decode. So splits of one file of lines that follow each other are read as one, a `FileRun`: opened once,
checked before its first row and after its last, and decoded in one go. Each row says which epoch it is of. The rows
are those of its parts, as a record ends where a part does. Where one does not, as at the end of a log that was
deleted in the midst of a line, decoding begins anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.base import Definite
from tidegauge.errors.engine import UnknownOperation
from tidegauge.errors.sources import (
    AmbiguousHeader,
    ColumnTypeMismatch,
    CorruptFile,
    HeaderMismatch,
    OldCalendar,
    ShortRead,
    SuspiciousCompression,
    TruncatedFile,
    UnreadableFile,
    UnreadableRecord,
    WrongEncoding,
)
from tidegauge.lazy import library
from tidegauge.operations import OP, carries, said_of, unknown
from tidegauge.reclock.columns import EPOCH
from tidegauge.sources.file.disk import DISK, Disk
from tidegauge.sources.file.identity import FileFacts, check, open_known
from tidegauge.sources.formats.gzip import gunzip
from tidegauge.sources.formats.protocol import Decoded, Format, LineFormat, OnBad, as_line, as_whole
from tidegauge.sources.metadata import stamped, without_metadata
from tidegauge.sources.protocol import BadRecord, OnBadRecord

__all__ = ["FileRun", "FileSplit", "batches", "joined", "lines_of", "naming", "opened", "operating"]

_CHUNK: Final = 1 << 20

pc: Final = library("pyarrow.compute")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSplit:
    """The bytes `[lower, upper)` of one file, or for a whole format its groups of rows `groups`.

    `size` is how many bytes of the file are bound with the slice that this is a piece of.
    """

    epoch: int
    partition: str
    lower: int
    upper: int
    weight: int
    size: int
    file: FileFacts
    schema: pa.Schema
    groups: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class FileRun:
    """Splits of a file of lines that follow each other without a gap, in the order of their epochs."""

    parts: tuple[FileSplit, ...]

    @property
    def epoch(self) -> int:
        """The first epoch."""
        return self.parts[0].epoch

    @property
    def partition(self) -> str:
        """The file's key."""
        return self.parts[0].partition

    @property
    def lower(self) -> int:
        """Where it begins."""
        return self.parts[0].lower

    @property
    def upper(self) -> int:
        """Where it ends."""
        return self.parts[-1].upper

    @property
    def weight(self) -> int:
        """What its parts weigh."""
        return sum(part.weight for part in self.parts)

    @property
    def size(self) -> int:
        """How many bytes of the file are bound with its parts."""
        return max(part.size for part in self.parts)

    @property
    def file(self) -> FileFacts:
        """What the file is known by."""
        return self.parts[0].file

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.parts[0].schema

    def dated(self, rows: pa.RecordBatch, positions: pa.Array) -> pa.RecordBatch:
        """Return rows with the column `_epoch`. positions: where each begins."""
        at = np.searchsorted([part.lower for part in self.parts], positions.to_numpy(), side="right") - 1
        epochs = pa.array(np.array([part.epoch for part in self.parts])[at], EPOCH.type)
        return pa.RecordBatch.from_arrays([*rows.columns, epochs], schema=rows.schema.append(EPOCH))


def joined(splits: Iterable[FileSplit], *, size: int) -> Iterator[FileSplit | FileRun]:
    """Yield splits, those that follow each other as one, of about `size` bytes at most."""
    run: list[FileSplit] = []
    weight = 0
    for split in splits:
        if run and (weight + split.weight > size or not _follows(split, run[-1])):
            yield _one(run)
            run, weight = [], 0
        run.append(split)
        weight += split.weight
    if run:
        yield _one(run)


def _one(run: Sequence[FileSplit]) -> FileSplit | FileRun:
    return FileRun(tuple(run)) if len(run) > 1 else run[0]


def _follows(split: FileSplit, other: FileSplit) -> bool:
    return (
        split.lower == other.upper
        and split.partition == other.partition
        and split.file == other.file
        and split.groups is other.groups is None
        and not split.file.whole
        and split.schema.equals(other.schema)
    )


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Give what a format says of a whole file the name of the file."""
    try:
        yield
    except (
        AmbiguousHeader,
        ColumnTypeMismatch,
        CorruptFile,
        HeaderMismatch,
        OldCalendar,
        SuspiciousCompression,
        TruncatedFile,
        WrongEncoding,
    ) as error:
        raise _named(error, path) from error


def _named(error: Definite, path: str) -> UnreadableFile:
    return UnreadableFile(
        path=path, detail=error.summary, problem=error.code, reason=error.likely_cause, advice=error.next_step
    )


def batches(
    split: FileSplit | FileRun, *, format: Format, metadata: bool, on_bad_record: OnBadRecord, disk: Disk = DISK
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split in batches of its schema, with `_epoch` behind it where the split is a run."""

    def on_bad(position: int, raw: bytes, problem: str) -> None:
        on_bad_record(BadRecord(split.partition, position, raw, UnreadableRecord.code, problem))

    with opened(split, disk) as (path, stream), naming(path):
        columns = without_metadata(split.schema, metadata=metadata)
        try:
            for part in _stretches(stream, split) if isinstance(split, FileRun) else [split]:
                found = _decoded(stream, part, format, columns, on_bad)
                for decoded in operating(found, part.partition, on_bad_record) if carries(columns) else found:
                    rows = stamped(
                        decoded.rows,
                        decoded.positions,
                        partition=split.partition,
                        schema=split.schema,
                        metadata=metadata,
                    )
                    yield split.dated(rows, decoded.positions) if isinstance(split, FileRun) else rows
        except EOFError as error:
            size = stream.seek(0, os.SEEK_END)
            raise ShortRead(path=path, lower=split.lower, upper=split.upper, size=size) from error


@contextmanager
def opened(split: FileSplit | FileRun, disk: Disk) -> Iterator[tuple[str, BinaryIO]]:
    """Open the file of a split, and check it again after the last byte. An object gives its own bytes, or none."""
    if split.file.etag:
        from tidegauge.sources.file.objects.opening import open_object

        with open_object(split.file, lower=split.lower, upper=split.upper) as stream:
            yield split.file.path, stream
        return
    path, stream = open_known(split.file, lower=split.lower, upper=split.size, disk=disk)
    with stream:
        yield path, stream
        check(stream, split.file, path=path, upper=split.size, disk=disk)


def _stretches(stream: BinaryIO, run: FileRun) -> Iterator[FileSplit]:
    """Yield the parts of a run as few splits that begin where a line does."""
    first, last = run.parts[0], run.parts[0]
    for part in run.parts[1:]:
        stream.seek(part.lower - 1)
        if stream.read(1) != b"\n":
            yield replace(first, upper=last.upper, size=last.size)
            first = part
        last = part
    yield replace(first, upper=last.upper, size=last.size)


def _skip(text: BinaryIO, position: int) -> None:
    """Read a stream that cannot seek up to a position. Raises `EOFError`."""
    while position > 0:
        chunk = text.read(min(_CHUNK, position))
        if not chunk:
            raise EOFError(f"{position} bytes more were to come")
        position -= len(chunk)


def operating(found: Iterator[Decoded], partition: str, on_bad_record: OnBadRecord) -> Iterator[Decoded]:
    """Yield the rows that have an operation; the others are bad records."""
    for decoded in found:
        wrong = unknown(decoded.rows[OP])
        if wrong is None:
            yield decoded
            continue
        for row in np.flatnonzero(wrong).tolist():
            problem = said_of(decoded.rows[OP][row].as_py())
            raw = decoded.raw(row)
            position = decoded.positions[row].as_py()
            on_bad_record(BadRecord(partition, position, raw, UnknownOperation.code, problem))
        good = pc.invert(wrong)
        yield Decoded(decoded.rows.filter(good), decoded.positions.filter(good))


def _decoded(
    stream: BinaryIO, split: FileSplit, format: Format, columns: pa.Schema, on_bad: OnBad
) -> Iterator[Decoded]:
    whole, line = as_whole(format), as_line(format)
    if whole is not None and split.groups is not None:
        first, last = split.groups
        yield from whole.decode_groups(stream, first=first, last=last, schema=columns)
        return
    if line is None:
        raise TypeError(f"a {type(format).__name__} cannot read the bytes {split.lower} to {split.upper}")
    with lines_of(stream, split, line) as found:
        yield from line.decode(
            found.text, lower=found.lower, upper=found.upper, header=found.header, schema=columns, on_bad=on_bad
        )


@dataclass(frozen=True, slots=True)
class OpenLines:
    """The lines of a split: a stream that stands at `lower`, the end if it is not that of the stream, the header."""

    text: BinaryIO
    lower: int
    upper: int | None
    header: bytes


@contextmanager
def lines_of(stream: BinaryIO, split: FileSplit, line: LineFormat) -> Iterator[OpenLines]:
    """Give the lines of a split in a file that is open, compressed or not. Raises `EOFError`."""
    if not split.file.whole and not split.file.packed:
        header = line.header(stream)
        stream.seek(split.lower)
        yield OpenLines(stream, split.lower, split.upper, header)
        return
    stream.seek(0)
    with gunzip(stream) as text:
        header = line.header(text)
        text.seek(0)
        if split.file.packed:  # a log that has been compressed since it was first seen
            _skip(text, split.lower)
            yield OpenLines(text, split.lower, split.upper, header)
        else:
            yield OpenLines(text, 0, None, header)
