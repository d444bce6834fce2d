"""`ListingSource`: the files that a pattern names on a disk or in an object store, by listings of it.

    tg.ListingSource("s3://lake/in/**/*.parquet", format=tg.Parquet("id long"), staging="/lake/listings")

For places with very many files that are each written once. `FileSource` binds each file by itself, and follows
files that grow. Here a binding is a number, whatever the number of files, and the new files of a listing are staged
as a manifest (`staged`) before it is bound. A position counts files.

Invariant: a version of a file is listed once, and read as it was listed, or it is a named loss.

>>> from tidegauge.sources.formats.json import Json
>>> source = ListingSource("/data/in/**/*.jsonl", format=Json("id long"), staging="/lake/listings")
>>> source.unit, source.schema.names, source.describe()["ordered"]
('files', ['id'], False)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, get_args

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.listings import ListedFileChanged, ListedFileGone
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import SEQUENCE, FromTime
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.file.source import resolved
from tidegauge.sources.formats.protocol import Format, as_line, as_whole
from tidegauge.sources.listings.attending import ListingAttendant
from tidegauge.sources.listings.entries import listed_of
from tidegauge.sources.listings.lister import Lister, OnChange
from tidegauge.sources.listings.reading import FileReader, lost_of
from tidegauge.sources.listings.staged import ListedSplit, StagedListings, entries_of
from tidegauge.sources.metadata import with_metadata
from tidegauge.sources.polls.log import PollLog
from tidegauge.sources.polls.poller import Beside, in_a_thread
from tidegauge.sources.polls.source import seconds, staging_at
from tidegauge.sources.protocol import OnBadRecord, Split

__all__ = ["ListingSource"]

_TIMEOUT = 300.0
"""Seconds for a hundred pages of a listing."""


@dataclass(frozen=True)
class ListingSource:
    """The files at a pattern, by listings.

    Args:
        path: a pattern as `FileSource` has it, on a disk or in an object store.
        format: a format of files with declared columns. Files that end with `.gz` are decompressed.
        staging: as `PollingSource` has it, for the manifests. Each source has a
            folder of its own in it.
        every: seconds between the beginnings of two listings.
        ordered: files come in the order of their paths, so each listing begins behind the last one that was read.
            A file that comes late, with a path before that, is not read.
        settle: for how many seconds a file on a disk must not have been changed.
        on_change: what to do when a listing finds another version of a file under its path: `"stop"`, read it
            `"again"`, whole, or `"ignore"` it.
        on_data_loss: what to do when a file is gone, or another one, before it was read: `"stop"`, or `"gap"`.
        max_bytes_per_epoch: how much one epoch takes at most, and at least one file; besides, 10,000 files.
        split_bytes: roughly how much one task reads at once.

    Raises `InvalidArgument`, `InvalidSchema`, `ReservedColumn`, `CredentialsInAddress`, `PollsElsewhere`.
    """

    path: str
    _: KW_ONLY
    format: Format
    staging: str | os.PathLike[str]
    every: float = 60.0
    ordered: bool = False
    settle: float = 2.0
    on_change: OnChange = "stop"
    on_data_loss: Literal["stop", "gap"] = "stop"
    max_bytes_per_epoch: int = 1 << 30
    split_bytes: int = 64 << 20
    owner: tuple[str, str] = field(default=("", ""), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", resolved(self.path))
        if as_line(self.format) is None and as_whole(self.format) is None:
            raise InvalidArgument(parameter="format", value=self.format, expected="a format such as Json(), Csv()")
        if self.format.schema is None:
            expected = "one with declared columns, such as tg.Json('id long, name string')"
            raise InvalidArgument(parameter="format", value=self.format, expected=expected)
        object.__setattr__(self, "staging", staging_at(self.staging))
        object.__setattr__(self, "every", seconds("every", self.every))
        for name in ("max_bytes_per_epoch", "split_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidArgument(parameter=name, value=value, expected="a whole number of bytes, at least 1")
        if not isinstance(self.settle, int | float) or not 0 <= self.settle < 1e9:
            raise InvalidArgument(parameter="settle", value=self.settle, expected="a number of seconds, 0 or more")
        if not isinstance(self.ordered, bool):
            raise InvalidArgument(parameter="ordered", value=self.ordered, expected="True or False")
        if self.on_change not in get_args(OnChange):
            raise InvalidArgument(parameter="on_change", value=self.on_change, expected="'stop', 'again' or 'ignore'")
        if self.on_data_loss not in ("stop", "gap"):
            raise InvalidArgument(parameter="on_data_loss", value=self.on_data_loss, expected="'stop' or 'gap'")
        _ = self.schema

    @property
    def unit(self) -> str:
        """Positions count files."""
        return "files"

    @property
    def from_time(self) -> FromTime:
        """Files are counted, in the order of their listing."""
        return SEQUENCE

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns."""
        found = self.format.schema
        assert found is not None  # noqa: S101 - checked when it was made
        return with_metadata(found, metadata=False, where=f"the source of {self.path}")

    @cached_property
    def _staged(self) -> StagedListings:
        return StagedListings(str(self.staging), self.schema, self.owner, self.split_bytes)

    @property
    def _name(self) -> str:
        return self.owner[1] or "the source"

    def placed(self, flow: str, name: str) -> ListingSource:
        """Return the source as the one of this name in this flow, which has a folder of its own."""
        return replace(self, owner=(flow, name))

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {
            "kind": "listing",
            "path": self.path,
            "format": dict(self.format.describe()),
            "staging": self.staging,
            "every": self.every,
            "ordered": self.ordered,
            "settle": self.settle,
            "on_change": self.on_change,
            "on_data_loss": self.on_data_loss,
            "max_bytes_per_epoch": self.max_bytes_per_epoch,
            "split_bytes": self.split_bytes,
        }

    def attended(self, env: Env, *, beside: Beside = in_a_thread) -> ListingAttendant:
        """Return what lists during a run, `beside` it."""

        def lister(log: PollLog) -> Lister:
            return Lister(
                source=self._name,
                pattern=self.path,
                log=log,
                now=lambda: int(env.now().astimezone(UTC).timestamp() * 1_000_000) * 1000,
                settle=int(self.settle * 1e9),
                limit=self.max_bytes_per_epoch,
                ordered=self.ordered,
                on_change=self.on_change,
            )

        return ListingAttendant(
            source=self.owner[1],
            staged=self._staged,
            lister=lister,
            every=self.every,
            settle=float(self.settle),
            timeout=_TIMEOUT,
            env=env,
            beside=beside,
        )

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Return how far the staged manifests go. It lists nothing: only a run does."""
        note = f"its running flow lists every {self.every:g} seconds"
        return self._staged.observed(bound, self._staged.ahead(bound), now=now, note=note)

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Cut slices into some files each, which are looked at.

        Raises `ListedFileGone`, `ListedFileChanged`, what says that manifests are not there as they were, `OSError`,
        and what asking a store does.
        """
        if self.on_data_loss == "stop":
            for _, _, error in self._lost(slices, bound):
                raise error
        return self._staged.plan(slices, bound)

    def _lost(
        self, slices: Sequence[Slice], bound: Bound
    ) -> Iterator[tuple[Slice, int, ListedFileGone | ListedFileChanged]]:
        """Yield the files of slices that are gone or other ones, with their numbers."""
        for piece in slices:
            for listing, lower, upper in self._staged.listings(piece, bound):
                files = listed_of(entries_of(listing, lower, upper))
                for number, error in lost_of(files, lower, source=self._name, pattern=self.path):
                    yield piece, number, error

    @property
    def loss(self) -> str:
        """The code of rows in `gaps`."""
        return ListedFileGone.code

    def lost(self, slices: Sequence[Slice], bound: Bound) -> Sequence[Slice]:
        """Return the files that are gone or other ones, and that are given up, which `on_data_loss="gap"` says."""
        if self.on_data_loss == "stop":
            return []
        return [replace(piece, lower=number, upper=number + 1) for piece, number, _error in self._lost(slices, bound)]

    def size(self, piece: Slice, bound: Bound) -> int:  # noqa: ARG002 - the seam's shape
        """Return the number of files."""
        return piece.size

    def cut(self, piece: Slice, size: int, bound: Bound) -> int | None:  # noqa: ARG002 - the seam's shape
        """Return the position behind some files of a slice: it can be cut between any two."""
        middle = piece.lower + max(1, size)
        return middle if middle < piece.upper else None

    def read(self, split: ListedSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files.

        Raises `ListedFileOvertaken`, `PollDamaged`, `OSError`, and what asking a store does.
        """
        return FileReader(self._name, self.path, self.format).rows(split, on_bad_record)

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing: files and manifests stay, for outputs that are yet to come."""
