"""What a flow has in the place of a push source: a source whose splits are pieces of epochs, received before.

Invariant (law 2): `read` yields exactly the records of the split's ranges. A piece holds all records of its epoch and
stream, and ranges that nobody reads any more (`gaps`) are left out here.

The store knows one set of columns for each source. A source with several streams has a column for each of them, a
struct of the stream's columns, so a stream's columns stay as they were declared first, as a source's do.

>>> both = declared({"orders": pa.schema([("id", pa.int64())]), "users": pa.schema([("name", pa.string())])})
>>> both.names, both.field("users").type.names
(['orders', 'users'], ['name'])
>>> rows = pa.record_batch({"id": [1, 2, 3], "_partition": ["p0", "p1", "p0"], "_offset": [5, 0, 6]})
>>> within(rows, (("p0", 0, 6), ("p1", 0, 9)))["id"].to_pylist()
[1, 2]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.base import Definite
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.push import NotReadByRange, PieceUnreadable
from tidegauge.reclock.places import ArrowRows, Ints, Places
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import FromTime
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.protocol import OnBadRecord, Split, from_time_of
from tidegauge.sources.push.protocol import DecodedLater, LaterStreams, PushSource

__all__ = [
    "PushedSource",
    "PushedSplit",
    "StreamPlaces",
    "StreamRows",
    "declared",
    "grows",
    "pushed",
    "streams_of",
    "within",
]

_PLACES: Final = ArrowRows()
_STREAM: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}")


def declared(streams: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of a source, from those of its streams."""
    if list(streams) == [""]:
        return streams[""]
    return pa.schema([pa.field(name, pa.struct(list(columns))) for name, columns in streams.items()])


def streams_of(source: object) -> list[str]:
    """Return the names of the streams of a source that has several, none for other sources."""
    names = list(source.source.streams) if isinstance(source, PushedSource) else [""]
    return [] if names == [""] else names


def grows(source: object) -> bool:
    """Whether the streams of a source may become more, and fewer, from run to run."""
    return bool(streams_of(source)) and isinstance(getattr(source, "source", None), LaterStreams)


def pushed(source: PushSource, staging: str | None) -> PushedSource:
    """Return a push source as one of a flow. Raises `InvalidArgument` for streams that cannot be told apart."""
    names = list(source.streams)
    if not names or (names != [""] and any(_STREAM.fullmatch(name) is None for name in names)):
        expected = "letters, digits, '_', '-' and '.' for each of several,  for the only one"
        raise InvalidArgument(parameter="streams", value=names, expected=expected)
    if reserved := {"rows", "errors"} & set(names):
        raise InvalidArgument(parameter="streams", value=names, expected=f"other names than {sorted(reserved)}")
    if staging is not None and (not isinstance(staging, str) or not staging):
        raise InvalidArgument(parameter="staging", value=staging, expected="a folder")
    return PushedSource(source, staging)


@dataclass(frozen=True, slots=True)
class StreamRows:
    """Records of one stream, with their places."""

    stream: str
    batch: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.batch.num_rows)


@dataclass(frozen=True, slots=True)
class StreamPlaces:
    """The layout of `StreamRows`: all streams of a source are placed by the same bindings."""

    def places(self, batch: StreamRows, source: str, /) -> Places:
        """Return the places."""
        return _PLACES.places(batch.batch, source)

    def slice(self, batch: StreamRows, start: int, stop: int, /) -> StreamRows:
        """Return a view."""
        return StreamRows(batch.stream, _PLACES.slice(batch.batch, start, stop))

    def take(self, batch: StreamRows, rows: Ints, /) -> StreamRows:
        """Return a copy."""
        return StreamRows(batch.stream, _PLACES.take(batch.batch, rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class PushedSplit:
    """A piece of one stream in one epoch: Arrow's stream format, in `data`, or in the file at `path`.

    partition, lower, upper: the first of `ranges`, for people. ranges: the parts of the epoch that are to be read.
    """

    epoch: int
    partition: str
    lower: int
    upper: int
    weight: int
    stream: str
    ranges: tuple[tuple[str, int, int], ...]
    data: pa.Buffer | None
    path: str | None

    @property
    def channel(self) -> str:
        """Whose outputs get it."""
        return self.stream or "rows"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records with their places. Raises `PieceUnreadable`."""
        if self.path is None:
            yield from pa.ipc.open_stream(self.data)
            return
        try:
            with pa.OSFile(self.path) as file, pa.ipc.open_stream(file) as piece:
                yield from piece
        except (OSError, pa.ArrowInvalid) as error:
            raise PieceUnreadable(path=self.path, detail=str(error)) from error


@dataclass(frozen=True)
class PushedSource:
    """A push source in a flow. staging: a folder for the records that wait, None for a temporary one."""

    source: PushSource
    staging: str | None = None

    @property
    def unit(self) -> str:
        """What one position counts."""
        return self.source.unit

    @property
    def schema(self) -> pa.Schema:
        """The columns of all streams, see `declared`."""
        return declared(self.source.streams)

    @property
    def from_time(self) -> FromTime:
        """The clock of the push source."""
        return from_time_of(self.source)  # type: ignore[arg-type]

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return self.source.describe()

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Return the bound frontier: the running driver alone has a connection, and knows more."""
        note = "how far upstream is, its running flow knows"
        return Observation(at=now, upper=bound.frontier, end=bound.frontier, note=note)

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:  # noqa: ARG002 - the seam's shape
        """Refuse: the pieces of a run are planned by `Pieces`, and nobody else has any."""
        raise NotReadByRange(source=slices[0].source)

    def read(self, split: PushedSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece in the columns of its stream."""
        columns = self.source.streams[split.stream]
        over: Definite | None = None
        for batch in split.batches():
            kept = within(batch, split.ranges)
            if not kept.num_rows:
                continue
            if isinstance(self.source, DecodedLater):
                try:
                    rows = self.source.decode(split.stream, kept, on_bad_record)
                except Definite as error:
                    if not error.of_stream:
                        raise
                    over = over or error  # bad records behind it are still to be told
                    continue
                yield rows
            else:
                yield pa.RecordBatch.from_arrays([kept[name] for name in columns.names], schema=columns)
        if over is not None:
            raise over

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing: its subscription does."""


def within(batch: pa.RecordBatch, ranges: Sequence[tuple[str, int, int]]) -> pa.RecordBatch:
    """Return the records of a batch that are in one of the ranges, in their sequence."""
    if not batch.num_rows:
        return batch
    places = _PLACES.places(batch, "")
    kept = np.zeros(batch.num_rows, np.bool_)
    for code, partition in enumerate(places.partitions):
        for _, lower, upper in (one for one in ranges if one[0] == partition):
            inside = (places.positions >= lower) & (places.positions < upper)
            kept |= inside if places.codes is None else inside & (places.codes == code)
    return batch if kept.all() else batch.filter(pa.array(kept))
