"""Reading the files of a split: each as it was listed, whole, or an error that names it.

Invariant: the rows of a file are those of the version that was listed. On a disk its size and the time of its last
change are looked at before its first row and after its last one; of an object each byte is asked for by its ETag. A
file that cannot be decoded gives no row, and one bad record, with its number and the problem.

A file that is compressed, or of a whole format, may be damaged anywhere. So it is decoded to its end before its first
row is given out: once, where its rows take no more than `HELD` bytes, else twice. Lines that are not compressed are
wrong from the beginning, or one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

import pyarrow as pa

from tidegauge.errors.listings import ListedFileChanged, ListedFileGone, ListedFileOvertaken
from tidegauge.errors.objects import ObjectOverwritten
from tidegauge.errors.sources import FileGone, FolderAway, UnreadableFile, UnreadableRecord
from tidegauge.objects.listing import Listed
from tidegauge.operations import carries
from tidegauge.remap.fromtime.polled import POLLS
from tidegauge.sources.file.disk import DISK
from tidegauge.sources.file.listing import printable, root
from tidegauge.sources.file.objects.opening import object_facts, open_object
from tidegauge.sources.file.reading import naming, operating
from tidegauge.sources.formats.gzip import gunzip
from tidegauge.sources.formats.protocol import Decoded, Format, OnBad, as_line, as_whole
from tidegauge.sources.listings.entries import listed_of, said
from tidegauge.sources.listings.present import present
from tidegauge.sources.listings.staged import ListedSplit, entries_of
from tidegauge.sources.protocol import BadRecord, OnBadRecord

__all__ = ["FileReader", "lost_of"]

HELD: Final = 1 << 20
"""Bytes of rows, and of bad records."""


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads listed files. pattern: which names them."""

    source: str
    pattern: str
    format: Format

    def rows(self, split: ListedSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split, file by file. Raises `ListedFileOvertaken`."""
        files = listed_of(entries_of(split.listing, split.lower, split.upper))
        for number, file in enumerate(files, split.lower):
            given = False
            try:
                for batch in self._file(file, number, split.schema, on_bad_record):
                    given = True
                    yield batch
            except UnreadableFile as error:
                if given:
                    raise
                raw, problem = file.path.encode(), error.summary
                on_bad_record(BadRecord(split.partition, number, raw, error.code, problem))
            except (ListedFileGone, ListedFileChanged) as error:
                raise ListedFileOvertaken(path=printable(file.path), detail=error.summary) from error

    def _file(
        self, file: Listed, number: int, schema: pa.Schema, on_bad_record: OnBadRecord
    ) -> Iterator[pa.RecordBatch]:
        if as_whole(self.format) is None and not file.path.endswith(".gz"):
            yield from self._decoded(file, number, schema, on_bad_record)
            return
        held: list[pa.RecordBatch] = []
        bad: list[BadRecord] = []
        size = 0

        def on_bad(record: BadRecord) -> None:
            nonlocal size
            size += len(record.raw) + len(record.message)
            if size <= HELD:
                bad.append(record)

        for batch in self._decoded(file, number, schema, on_bad):
            size += batch.nbytes
            if size <= HELD:
                held.append(batch)
        if size > HELD:
            yield from self._decoded(file, number, schema, on_bad_record)
            return
        for record in bad:
            on_bad_record(record)
        yield from held

    def _decoded(
        self, file: Listed, number: int, schema: pa.Schema, on_bad_record: OnBadRecord
    ) -> Iterator[pa.RecordBatch]:
        name = printable(file.path)

        def numbered(record: BadRecord) -> None:
            said = f"{name}, at {record.position}: {record.message}"
            on_bad_record(replace(record, position=number, message=said))

        def on_bad(position: int, raw: bytes, problem: str) -> None:
            numbered(BadRecord(POLLS, position, raw, UnreadableRecord.code, problem))

        with self._opened(file, number) as stream, naming(name):
            found = self._records(file, stream, schema, on_bad)
            for decoded in operating(found, POLLS, numbered) if carries(schema) else found:
                yield decoded.rows

    def _records(self, file: Listed, stream: BinaryIO, schema: pa.Schema, on_bad: OnBad) -> Iterator[Decoded]:
        whole, line = as_whole(self.format), as_line(self.format)
        if whole is not None:
            last = len(whole.groups(stream))
            yield from whole.decode_groups(stream, first=0, last=last, schema=schema)
        if line is not None:
            text = gunzip(stream) if file.path.endswith(".gz") else stream
            header = line.header(text)
            text.seek(0)
            yield from line.decode(text, lower=0, upper=None, header=header, schema=schema, on_bad=on_bad)

    @contextmanager
    def _opened(self, file: Listed, number: int) -> Iterator[BinaryIO]:
        """Open a file as it was listed, and see in the end that it still is."""
        if file.etag:
            try:
                with open_object(object_facts(file, whole=True)) as stream:
                    yield stream
            except FileGone:
                raise self._gone(file, number) from None
            except ObjectOverwritten as error:
                raise changed(file, f"one with the ETag {error.evidence['found']}") from None
            return
        try:
            stream = DISK.open(file.path)
        except (FileNotFoundError, NotADirectoryError):
            _check_folder(self.pattern, [file])
            raise self._gone(file, number) from None
        with stream:
            _check(file, stream)
            try:
                yield stream
            except (UnreadableFile, EOFError):
                _check(file, stream)
                raise
            _check(file, stream)

    def _gone(self, file: Listed, number: int) -> ListedFileGone:
        return ListedFileGone(path=printable(file.path), number=number, after=number + 1, source=self.source)


def changed(file: Listed, found: str) -> ListedFileChanged:
    """Return the error of a file that is not the listed one."""
    return ListedFileChanged(path=printable(file.path), known=said(file), found=found)


def _check_folder(pattern: str, files: Sequence[Listed]) -> None:
    """Raise `FolderAway` where the whole folder of a pattern is away. files: some that were listed there."""
    folder = root(pattern)
    try:
        os.stat(folder)  # noqa: PTH116 - a path of text
    except (FileNotFoundError, NotADirectoryError):
        raise FolderAway(folder=folder, what="not there", count=len(files), path=printable(files[0].path)) from None


def _check(file: Listed, stream: BinaryIO) -> None:
    status = os.fstat(stream.fileno())
    if (status.st_size, status.st_mtime_ns) != (file.size, file.modified):
        raise changed(file, said(Listed(file.path, status.st_size, status.st_mtime_ns, "")))


def lost_of(
    files: Sequence[Listed], first: int, *, source: str, pattern: str
) -> Iterator[tuple[int, ListedFileGone | ListedFileChanged]]:
    """Yield the numbers of those of some files that are gone or other ones, and why. first: the number of the first.

    Raises `FolderAway`, `OSError`, and what asking a store does.
    """
    if not files:
        return
    if not files[0].etag:
        _check_folder(pattern, files)
    for number, (file, now) in enumerate(zip(files, present(files), strict=True), first):
        if now is None:
            yield number, ListedFileGone(path=printable(file.path), number=number, after=number + 1, source=source)
        elif (now.etag != file.etag) if file.etag else (now != file):
            yield number, changed(file, said(now))
