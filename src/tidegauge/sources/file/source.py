"""Files that a path or a pattern names, as a source: `FileSource`.

What enters, and when. A growing file of lines enters by complete records, from where it was. A compressed file
(`.gz`) or one of a whole format (Parquet) enters once, whole, when it has not been modified for `settle` seconds. A
file is known by what it is (`identity`), so a log that is rotated by rename is read to its end under its new name, in
the same folder, also when the pattern does not name it any more.

What that asks of people who write files. Append, or write elsewhere and move into place. A log may be rotated, copied
and truncated, or compressed (`returning`); lines written between the copy and the cut can be lost. A file that is
deleted, or moved to another folder, is gone for all but the driver that holds it open (`memory`). Bytes that were
changed in place without changing the size and the modification time, or behind the first 4096 bytes of a file of
lines, are not noticed. The file system must have stable inode numbers.

>>> import tempfile, pathlib, datetime
>>> from tidegauge.sources import Json
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = pathlib.Path(folder, "a.jsonl").write_text('{"id": 1}\\n{"id": 2}\\n{"id"')
...     source = FileSource(f"{folder}/*.jsonl", format=Json("id long"))
...     observed = source.probe(Bound(), now=datetime.datetime.now(datetime.UTC))
>>> list(observed.upper.values()), list(observed.end.values()), observed.schema.names
([20], [25], ['id'])
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.objects import ObjectsMovedToDisk
from tidegauge.errors.sources import FileGone, FileOvertaken, ShortRead
from tidegauge.objects.address import glob_address, is_address
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.file.found import Rules, Survey
from tidegauge.sources.file.further import further, tells
from tidegauge.sources.file.listing import listed, root
from tidegauge.sources.file.memory import OpenFiles, Rest
from tidegauge.sources.file.planning import LOST, BoundFiles, SlicedFiles, cut, gone, planned, record_at
from tidegauge.sources.file.probing import survey
from tidegauge.sources.file.reading import FileRun, FileSplit, batches, joined
from tidegauge.sources.file.watching import Watch
from tidegauge.sources.formats.protocol import Format, as_line, as_whole
from tidegauge.sources.metadata import METADATA_CHANGED, has_metadata, with_metadata
from tidegauge.sources.protocol import OnBadRecord, Split

__all__ = ["FileSource", "resolved"]

_EPOCH_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class FileSource:
    """The files at a path or a pattern.

    Args:
        path: a path, or a pattern with `*`, `?`, `[...]` and `**`. A relative path is resolved now, against the
            current folder. Or the same in an object store: `s3://`, `gs://`, `abfss://`. Names that begin with `.` or
            `_` are ignored unless the pattern spells this out: writers use them for files that are not complete.
        format: how to read the files, such as `tg.Json()`.
        metadata: add `_partition` (the file's key) and `_offset`: the byte at which the record begins (uncompressed,
            for compressed files), or the row, for Parquet. False, to keep rows narrow.
        max_bytes_per_epoch: how much one epoch takes at most. 1 GiB, so that a backlog becomes many epochs, each
            small enough for one job; counting records would mean reading the files first.
        settle: for how many seconds a file that is read whole must not have been modified. 2, so that a short pause
            of its writer does not look like its end. An object of a store is whole at once.
        split_bytes: roughly how much one task reads at once. 64 MiB, so that several tasks share a large file.
        on_data_loss: what to do when bytes that the flow had seen disappear before it reads them. `"stop"`, because
            going on with a hole is your decision; `"gap"` goes on and leaves a row in `gaps`.

    Raises `InvalidArgument`, `ReservedColumn` and `CredentialsInAddress`.
    """

    path: str
    _: KW_ONLY
    format: Format
    metadata: bool = False
    max_bytes_per_epoch: int = 1 << 30
    settle: float = 2.0
    split_bytes: int = 64 << 20
    on_data_loss: Literal["stop", "gap"] = "stop"
    held: OpenFiles = field(default_factory=OpenFiles, init=False, repr=False, compare=False)
    rest: Rest = field(default_factory=Rest, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", resolved(self.path))
        if as_line(self.format) is None and as_whole(self.format) is None:
            raise InvalidArgument(parameter="format", value=self.format, expected="a format such as Json(), Csv()")
        for name in ("max_bytes_per_epoch", "split_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidArgument(parameter=name, value=value, expected="a whole number of bytes, at least 1")
        if not isinstance(self.settle, int | float) or not 0 <= self.settle < 1e9:
            raise InvalidArgument(parameter="settle", value=self.settle, expected="a number of seconds, 0 or more")
        if self.on_data_loss not in ("stop", "gap"):
            raise InvalidArgument(parameter="on_data_loss", value=self.on_data_loss, expected="'stop' or 'gap'")
        _ = self.schema

    @property
    def unit(self) -> str:
        """Positions count bytes."""
        return "bytes"

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The declared columns, metadata columns included, or None when they are to be inferred."""
        return self._complete(self.format.schema)

    def _complete(self, columns: pa.Schema | None) -> pa.Schema | None:
        if columns is None:
            return None
        return with_metadata(columns, metadata=self.metadata, where=f"the source of {self.path}")

    def unreadable(self, columns: pa.Schema) -> str:
        """Return why records cannot be read by columns that were declared before, "" if they can."""
        return "" if has_metadata(columns) == self.metadata else METADATA_CHANGED

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {
            "kind": "file",
            "path": self.path,
            "format": dict(self.format.describe()),
            "metadata": self.metadata,
            "max_bytes_per_epoch": self.max_bytes_per_epoch,
            "settle": self.settle,
            "split_bytes": self.split_bytes,
            "on_data_loss": self.on_data_loss,
        }

    @property
    def looks_at(self) -> tuple[Hashable, ...]:
        """The folder with which the pattern begins, on its disk or in its bucket."""
        if self._stored:
            from tidegauge.sources.file.objects.listing import folder_of

            return (*folder_of(self.path).split("/"),)
        return self.held.disk, *filter(None, root(self.path).split("/"))

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Ask the file system, or the store, how far the files are, or what others have found out that were asked in
        the same look.

        Raises `FileRewritten`, `EndTakenBack`, `FileGone`, `FolderAway`, `UnknownColumns`, `OSError`; of a store
        `ObjectOverwritten`, `ObjectMovedUnclear`, `BucketMissing`, `CredentialsRefused`, `ObjectStoreAway`.
        """
        if self._stored:
            from tidegauge.sources.file.objects.listing import objects_of
            from tidegauge.sources.file.objects.probing import survey_objects

            objects = objects_of(self.path, bound.findings)
            return self._observed(survey_objects(self.path, objects, self._rules(bound, now), bound), bound, now)
        if bound.last is None:
            _refuse_objects(self.path, bound)
        listing = listed(self.path, watch=Watch(self.held.disk, bound.findings))
        if (again := self.rest.again(listing.files, bound, now=now)) is not None:
            return again
        found = survey(self.path, listing, self._rules(bound, now), bound, self.held)
        observed = self._observed(found, bound, now)
        if found.at_rest and bound.schema is not None:
            self.rest.keep(listing.files, bound, observed)
        return observed

    @property
    def _stored(self) -> bool:
        """Whether the files are objects of a store."""
        return is_address(self.path)

    def _rules(self, bound: Bound, now: datetime) -> Rules:
        return Rules(
            format=self.format,
            line=as_line(self.format),
            settle=int(self.settle * 1e9),
            limit=self.max_bytes_per_epoch,
            now=(now - _EPOCH_START) // timedelta(microseconds=1) * 1000,
            need_columns=self.schema is None and bound.schema is None,
            stop=self.on_data_loss == "stop",
        )

    def _observed(self, found: Survey, bound: Bound, now: datetime) -> Observation:
        moved = not found.at_rest
        return Observation(
            at=now,
            upper=Frontier(found.positions) if moved else bound.frontier,
            end=Frontier(found.ends) if moved else bound.frontier,
            lower=Frontier(found.gone),
            more=found.more,
            details=found.details,
            schema=(self.schema or self._complete(found.columns)) if bound.schema is None else None,
            note=found.note(),
            taken_back=found.taken_back,
        )

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Cut slices at record boundaries, wherever their files are now.

        Raises `FileGone`, `FileRewritten`, `FolderAway`, `ShortRead`, `UnreadableFile`, `OSError`; of a store as
        `probe` does.
        """
        schema = bound.schema or self.schema
        if schema is None:
            raise InvalidArgument(
                parameter="bound", value=bound, expected="a bound schema, as the format declares none"
            )
        return planned(slices, self._bound(bound), schema=schema, format=self.format, size=self.split_bytes)

    def _bound(self, bound: Bound) -> SlicedFiles:
        if not self._stored:
            return BoundFiles(bound, self.path, self.held)
        from tidegauge.sources.file.objects.bound import BoundObjects

        return BoundObjects(bound, self.path)

    @property
    def loss(self) -> str:
        """The code of rows in `gaps`."""
        return FileGone.code

    def lost(self, slices: Sequence[Slice], bound: Bound) -> Sequence[Slice]:
        """Return the slices whose bytes are gone and that are given up, which `on_data_loss="gap"` says."""
        return [] if self.on_data_loss == "stop" else gone(slices, self._bound(bound))

    def record_at(self, piece: Slice, position: int, bound: Bound) -> tuple[int, int] | None:
        """Return the ends of the record that a byte of a bound slice is inside of; a whole file is one."""
        return record_at(piece, position, self._bound(bound), self.format)

    def size(self, piece: Slice, bound: Bound) -> int:  # noqa: ARG002 - the seam's shape
        """Return the number of bytes."""
        return piece.size

    def cut(self, piece: Slice, size: int, bound: Bound) -> int | None:
        """Return the end of a record of a bound slice, about `size` bytes from its beginning.

        None for files that are read whole, such as Parquet and compressed ones. Raises `OSError`.
        """
        return cut(piece, size, self._bound(bound), self.format)

    def joined(self, splits: Iterable[FileSplit]) -> Iterator[FileSplit | FileRun]:
        """Put splits together that follow each other in a file of lines."""
        return joined(splits, size=self.split_bytes)

    def read(self, split: FileSplit | FileRun, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split, checked against the file's fingerprint before the first and after the last.

        Of an object each byte is asked for by its ETag. Raises `FileOvertaken`, `UnreadableFile`, `OSError`; of a
        store `CredentialsRefused` and the like.
        """
        try:
            yield from batches(
                split,
                format=self.format,
                metadata=self.metadata,
                on_bad_record=on_bad_record,
                disk=self.held.disk,
            )
        except (*LOST, ShortRead) as error:
            raise FileOvertaken(path=split.file.path, detail=error.summary) from error

    @property
    def tells(self) -> bool:
        """Whether the columns are inferred, and the format tells of further ones."""
        return tells(self.format)

    def further(self, split: FileSplit, columns: pa.Schema) -> pa.Schema:
        """Return columns, and those that the records of a split have besides. Raises as `read` does."""
        try:
            return further(split, columns, format=self.format, metadata=self.metadata, disk=self.held.disk)
        except (*LOST, ShortRead) as error:
            raise FileOvertaken(path=split.file.path, detail=error.summary) from error

    def acknowledge(self, frontier: Frontier) -> None:
        """Let go of the files that were held open until they are in every output."""
        self.held.release(frontier)


def _refuse_objects(path: str, bound: Bound) -> None:
    """Raise where objects of a store are bound, and the path is on a disk."""
    known = next((str(detail["path"]) for detail in bound.details.values() if "etag" in detail), None)
    if known is not None:
        raise ObjectsMovedToDisk(known=known, path=path)


def resolved(path: str) -> str:
    """Return a path or a pattern, absolute. Raises `InvalidArgument`, `CredentialsInAddress`."""
    expected = "a path or a pattern, in UTF-8"
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise InvalidArgument(parameter="path", value=path, expected=expected)
    text = os.fspath(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(parameter="path", value=ascii(text), expected=expected) from None
    if not text.strip() or "\0" in text:
        raise InvalidArgument(parameter="path", value=text, expected=expected)
    if is_address(text):
        return glob_address(text)
    return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - Path.resolve would follow links
