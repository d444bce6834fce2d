"""What a flow has in the place of a push source: a source whose splits are pieces of epochs, received before.

Invariant (law 2): `read` yields exactly the records of the split's ranges. A piece holds all records of its epoch and
stream, and ranges that nobody reads any more (`gaps`) are left out here.

The store knows one set of columns for each source. A source with several streams has a column for each of them, a
struct of the stream's columns, so a stream's columns stay as they were declared first, as a source's do. Those that
streams take on while the flow runs (`TellsColumns`) come behind them, and the store alone knows them.

>>> both = declared({"orders": pa.schema([("id", pa.int64())]), "users": pa.schema([("name", pa.string())])})
>>> both.names, both.field("users").type.names
(['orders', 'users'], ['name'])
>>> rows = pa.record_batch({"id": [1, 2, 3], "_partition": ["p0", "p1", "p0"], "_offset": [5, 0, 6]})
>>> within(rows, (("p0", 0, 6), ("p1", 0, 9)))["id"].to_pylist()
[1, 2]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
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
from tidegauge.sources.abilities import from_time_of
from tidegauge.sources.metadata import PLACE
from tidegauge.sources.protocol import OnBadRecord, Split
from tidegauge.sources.push.protocol import DecodedLater, LaterStreams, PushSource, TellsColumns

__all__ = [
    "PushedSource",
    "PushedSplit",
    "StreamPlaces",
    "StreamRows",
    "columns_within",
    "declared",
    "grows",
    "joined_columns",
    "kept_columns",
    "pushed",
    "streams_of",
    "within",
]

_PLACES: Final = ArrowRows()
_OURS: Final = frozenset({*PLACE.names, "_timestamp"})
_STREAM: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}")


def declared(streams: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of a source, from those of its streams."""
    if list(streams) == [""]:
        return streams[""]
    return pa.schema([pa.field(name, pa.struct(list(columns))) for name, columns in streams.items()])


def columns_within(schema: pa.Schema | None, stream: str) -> pa.Schema | None:
    """Return the columns of a stream within those of its source, None where these are not known."""
    if schema is None or not stream:
        return schema
    return pa.schema(list(schema.field(stream).type)) if stream in schema.names else None


def joined_columns(schema: pa.Schema, further: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of all streams with further ones, which come last in their stream.

    >>> known, further = declared({"a": pa.schema([("id", pa.int8())])}), {"a": pa.schema([("n", pa.int8())])}
    >>> joined_columns(known, further).field("a")
    pyarrow.Field<a: struct<id: int8, n: int8>>
    """
    found = []
    for field in schema:
        own = list(field.type) if pa.types.is_struct(field.type) else []
        names = {one.name for one in own}
        news = [one for one in further.get(field.name, ()) if one.name not in names]
        found.append(field.with_type(pa.struct([*own, *news])) if news else field)
    return pa.schema(found)


def kept_columns(before: pa.Schema, now: pa.Schema) -> pa.Schema:
    """Return the declared columns of all streams, with those that streams took on, which the store knows.

    Columns that a stream is declared with are among those that it has, unless they were declared anew, with others.
    Then nobody knows what the records of before have in these, and they are left out.

    >>> one, two = pa.field("id", pa.int8()), pa.field("n", pa.int8())
    >>> had = declared({"a": pa.schema([one, two])})
    >>> kept_columns(had, declared({"a": pa.schema([one])})).equals(had)
    True
    >>> kept_columns(had, declared({"a": pa.schema([("id", pa.int16())])})).equals(had)
    False
    """
    found = []
    for field in now:
        if field.name in before.names:
            old, new = before.field(field.name), {one.name: one for one in field.type}
            was = {one.name: one for one in old.type}
            same = all(one.equals(new[name]) for name, one in was.items() if name in new)
            if same and _OURS & was.keys() == _OURS & new.keys():
                field = old
        found.append(field)
    return pa.schema(found)


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
        expected = "letters, digits, '_', '-' and '.' for each of several, '' for the only one"
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
    columns: those of the stream then, None for the declared ones.
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
    columns: pa.Schema | None = None

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
    def tells(self) -> bool:
        """Whether its streams take columns on."""
        return isinstance(self.source, TellsColumns) and bool(streams_of(self))

    def refused(self, stream: str, column: str) -> str:
        """Return why a column that records told of is not to be taken on, "" if it may be."""
        return self.source.refused(stream, column) if isinstance(self.source, TellsColumns) else "it tells of none"

    def unreadable(self, columns: pa.Schema) -> str:
        """Return why records cannot be read by columns that streams had before, "" if they can."""
        if not self.tells:
            return f"{type(self.source).__name__} cannot read records by the columns of before"
        kept = kept_columns(columns, self.schema)
        if any(not one.equals(columns.field(one.name)) for one in kept if one.name in columns.names):
            return "its columns are those that it was declared with, and those that records told of since"
        return ""

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
        columns = self.source.streams[split.stream] if split.columns is None else split.columns
        decode, over = _decoder(self.source, split.stream, columns), None
        for batch in split.batches():
            kept = within(batch, split.ranges)
            if not kept.num_rows:
                continue
            try:
                rows = decode(kept, on_bad_record)
            except Definite as error:
                if not error.of_stream:
                    raise
                over = over or error  # bad records behind it are still to be told
                continue
            yield rows
        if over is not None:
            raise over

    def acknowledge(self, frontier: Frontier) -> None:
        """Do nothing: its subscription does."""


def _decoder(
    source: PushSource, stream: str, columns: pa.Schema
) -> Callable[[pa.RecordBatch, OnBadRecord], pa.RecordBatch]:
    """Return what makes rows of the records of a stream, in these columns."""
    if isinstance(source, TellsColumns):
        return lambda batch, bad: source.decode_by(stream, batch, columns, bad)
    if isinstance(source, DecodedLater):
        return partial(source.decode, stream)
    return lambda batch, _: pa.RecordBatch.from_arrays([batch[name] for name in columns.names], schema=columns)


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
