"""Columns that came to followed tables: which there are, since which change, and which are not to be taken on.

A column that a change tells of is judged once (`growth`), and that is durable before the change is given, so before
it is bound. What a flow makes of it shows in the columns that are bound: a column that is not among them once its
first change is bound is left out for ever, since rows have got values in it that nobody read.

Invariant. The mark of a table is of a time at which each column of it was followed, or left out, or in no change that
was given. So a column beyond it, and not kept here, is in no change that is bound. A folder that was put back from an
older copy is outdated: what the server was told since, and the changes that it sends once more, tell of that.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as path:
...     kept, note = KeptColumns(SourceFolder(path), "server 1", 0), FurtherColumn(64, 0, said_type(pa.int32()), "")
...     with kept.anew():
...         kept.tables["shop.orders"] = TableColumns(TableMark(2, 7), {"note": note})
...     again = KeptColumns(SourceFolder(path), "server 1", 0).tables["shop.orders"].columns["note"]
...     again.type, again.follows(63, 5), again.follows(64, 0), KeptColumns(SourceFolder(path), "server 2", 0).tables
(DataType(int32), True, False, {})
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.databases import FolderDamaged
from tidegauge.remap.store.columns import decode_schema, encode_schema
from tidegauge.sources.database.folder import SourceFolder
from tidegauge.sources.postgres.catalog import CatalogLook, PublishedTable
from tidegauge.sources.postgres.checks import RESERVED
from tidegauge.sources.postgres.chunks import EMPTIED, ENDED, Chunk, ManyChunks
from tidegauge.sources.postgres.followed import ReplicationSetup
from tidegauge.sources.postgres.growth import TableMark, unfit
from tidegauge.sources.postgres.types import arrow_of
from tidegauge.sources.postgres.wire import TableShape

__all__ = ["FurtherColumn", "FurtherColumns", "KeptColumns", "TableColumns", "refused", "said_type"]

_FILE: Final = "further.json"
_ONE_AT_A_TIME: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class FurtherColumn:
    """A column. lsn, number: of the first change that has it. kind: see `said_type`. why: why it is not to be taken
    on, "" if it may be."""

    lsn: int
    number: int
    kind: str
    why: str

    @property
    def type(self) -> Any:
        """Its Arrow type."""
        return decode_schema(self.kind).field(0).type

    def follows(self, lsn: int, number: int) -> bool:
        """Whether it came after a change."""
        return (self.lsn, self.number) > (lsn, number)


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The knowledge about a table: its mark, and the columns that changes have told of since."""

    mark: TableMark
    columns: Mapping[str, FurtherColumn] = field(default_factory=dict)


def said_type(kind: Any) -> str:
    """Return an Arrow type as text.

    >>> said_type(pa.int32())
    '[["", "int32", true]]'
    """
    return encode_schema(pa.schema([("", kind)]))


@dataclass(slots=True)
class KeptColumns:
    """The record of the tables of one server and one incarnation of the source, by their names."""

    folder: SourceFolder
    identity: str
    incarnation: int
    tables: dict[str, TableColumns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._read()

    def _read(self) -> None:
        said = _noted(self.folder)
        same = (said.get("identity"), said.get("incarnation")) == (self.identity, self.incarnation)
        self.tables = _tables(self.folder, said) if same else {}

    @contextmanager
    def anew(self) -> Iterator[None]:
        """Change the present record, durably: a connection that is given up may still be at its last call."""
        with _ONE_AT_A_TIME:
            self._read()
            before = dict(self.tables)
            yield
            if self.tables != before:
                said = {name: asdict(one) for name, one in self.tables.items()}
                whole = {"identity": self.identity, "incarnation": self.incarnation, "tables": said}
                self.folder.note(_FILE, whole, durable=True)


def refused(folder: SourceFolder, table: str, column: str) -> str:
    """Return why a column that changes told of is not to be taken on, "" if it may be. Raises `FolderDamaged`."""
    known = _tables(folder, _noted(folder)).get(table)
    found = None if known is None else known.columns.get(column)
    return "" if found is None else found.why


class FurtherColumns:
    """Those of one connection. bound: the place up to which the source is bound."""

    def __init__(self, reader: ReplicationSetup, identity: str, incarnation: int, bound: int) -> None:
        self._reader: Final = reader
        self._kept: Final = KeptColumns(reader.folder, identity, incarnation)
        self._bound: Final = bound
        self._streams: Final = {stream: ".".join(place) for stream, place in reader.tables.items()}
        self._plain: Final[set[tuple[str, str]]] = set()
        """The shapes of streams that have just the columns that are followed, and others that were judged."""

    def begin(self, tables: Iterable[PublishedTable], *, anew: bool = False, outdated: bool = False) -> None:
        """Mark the tables that have no mark yet.

        anew: the others, too, since nothing of them is bound. outdated: the others, too, since changes may be bound
        that had further columns; those that are kept stay.
        """
        with self._kept.anew():
            for table in tables:
                known = self._kept.tables.get(str(table))
                if table.growth is not None and (known is None or anew or outdated):
                    came = known.columns if known is not None and not anew else {}
                    self._kept.tables[str(table)] = TableColumns(table.growth.mark, came)

    def given(self, columns: Mapping[str, Collection[str]]) -> None:
        """Keep that changes of streams had columns, which were given before and are skipped now.

        Those that are not beyond the mark need no word. Raises what a look at the catalog does.
        """
        news = {
            stream: {one for one in names if one not in self._known(stream).columns} - set(self._followed(stream))
            for stream, names in columns.items()
        }
        if not any(news.values()):
            return
        there = {str(one): one.growth.columns for one in self._reader.see().tables if one.growth is not None}
        with self._kept.anew():
            for stream, names in news.items():
                known, now = self._known(stream), there.get(self._streams[stream], {})
                beyond = [one for one in names if one in now and now[one].number > known.mark.last]
                found = {one: FurtherColumn(0, 0, said_type(pa.string()), _GIVEN) for one in beyond}
                if found:
                    self._kept.tables[self._streams[stream]] = replace(known, columns={**known.columns, **found})

    def seen(self, tables: Iterable[PublishedTable]) -> None:
        """Take in a look at tables: a mark is of the last one at which there was no further column."""
        known = self._kept.tables
        marks = {
            str(one): one.growth.mark
            for one in tables
            if one.growth is not None and str(one) in known and one.growth.last <= known[str(one)].mark.last
        }
        if all(known[name].mark == replace(mark, last=known[name].mark.last) for name, mark in marks.items()):
            return
        with self._kept.anew():
            for name, mark in marks.items():
                if (table := self._kept.tables.get(name)) is not None and mark.last <= table.mark.last:
                    self._kept.tables[name] = replace(table, mark=replace(mark, last=table.mark.last))

    def gone_through(self, stream: str, chunks: Sequence[Chunk | ManyChunks]) -> list[Chunk | ManyChunks]:
        """Return chunks that are to be given, once all their columns are known, and kept durably.

        Those from before a column came say so. Raises what a look at the catalog does.
        """
        found: list[Chunk | ManyChunks] = []
        for chunk in chunks:
            if chunk.kind in {EMPTIED, ENDED} or (stream, chunk.shape) in self._plain:
                found.append(chunk)
            elif isinstance(chunk, Chunk):
                found.append(self._one(stream, chunk))
            else:
                found += self.gone_through(stream, chunk.apart())  # until the shape is judged
        return found

    def marked(self, batches: Sequence[tuple[str, pa.RecordBatch]]) -> list[tuple[str, pa.RecordBatch]]:
        """Return the first rows of streams, and what waited for these, as those that columns came after."""
        return [(stream, self._marked(stream, batch)) for stream, batch in batches]

    @property
    def told(self) -> dict[str, pa.Schema]:
        """The columns of each stream that are not among its own, and may be: none of their changes is bound."""
        found: dict[str, pa.Schema] = {}
        for stream in self._streams:
            followed = self._followed(stream)
            came = self._known(stream).columns.items()
            if news := [(n, one.type) for n, one in came if n not in followed and one.lsn >= self._bound]:
                found[stream] = pa.schema(news)
        return found

    def _known(self, stream: str) -> TableColumns:
        return self._kept.tables.get(self._streams[stream], TableColumns(TableMark(_ALL, 0)))

    def _followed(self, stream: str) -> Sequence[str]:
        return tuple(self._reader.columns[self._streams[stream]].names)

    def _marked(self, stream: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        came = self._known(stream).columns
        if not (later := [name for name in self._followed(stream) if name in came]):
            return batch
        at = batch.schema.get_field_index("_shape")
        shapes = [TableShape.decoded(one) for one in batch.column(at).to_pylist()]
        lacks = [tuple(name for name in later if name not in one.columns) for one in shapes]
        said = [replace(one, lacks=names).encoded() for one, names in zip(shapes, lacks, strict=True)]
        return batch.set_column(at, batch.schema.field(at), pa.array(said, pa.string()).dictionary_encode())

    def _one(self, stream: str, chunk: Chunk) -> Chunk:
        shape, followed = TableShape.decoded(chunk.shape), self._followed(stream)
        lacks = [name for name in followed if name not in shape.columns]
        came = self._known(stream).columns
        if not all(name in came and came[name].follows(chunk.lsn, chunk.first) for name in lacks):
            return chunk  # the stream ends there
        if news := [name for name in shape.columns if name not in followed and name not in came]:
            self._judge(stream, shape, chunk, news, self._reader.see())
        if not lacks:
            self._plain.add((stream, chunk.shape))
            return chunk
        return replace(chunk, shape=replace(shape, lacks=tuple(lacks)).encoded())

    def _judge(self, stream: str, shape: TableShape, chunk: Chunk, news: Sequence[str], look: CatalogLook) -> None:
        """Keep which columns, that were in no change before, may be taken on."""
        name = self._streams[stream]
        table = next((one for one in look.tables if str(one) == name and one.oid == shape.oid), None)
        now = None if table is None else table.growth
        types = dict(zip(shape.columns, shape.types, strict=False))
        there = {} if table is None else {one.name: one for one in table.columns}
        with self._kept.anew():
            known = self._known(stream)
            found: dict[str, FurtherColumn] = {}
            for column in news:
                one = there.get(column)
                kind = None if one is None else arrow_of(one.type, one.modifier, one.kind)
                why = unfit(known.mark, now, column, types.get(column, ()))
                if not why and kind is None:
                    why = f"it is {'' if one is None else one.shown}, which has no stable form as text"
                if not why and column.lower() in RESERVED:
                    why = "it is called like one that is added to rows"
                said = said_type(pa.string() if kind is None else kind)
                found[column] = FurtherColumn(chunk.lsn, chunk.first, said, why)
            numbers = [now.columns[one].number for one in news if now is not None and one in now.columns]
            mark = replace(known.mark, last=max([known.mark.last, *numbers]))
            self._kept.tables[name] = TableColumns(mark, {**known.columns, **found})


_GIVEN: Final = "changes that have it were read without it"
_ALL: Final = 1 << 31
"""A number beyond that of any column: nothing is known of the table, so none of them is new."""


def _noted(folder: SourceFolder) -> dict[str, Any]:
    try:
        said = folder.noted(_FILE)
        return {} if said is None else dict(said)
    except (ValueError, TypeError) as error:
        raise _damaged(folder, error) from error


def _tables(folder: SourceFolder, said: Mapping[str, Any]) -> dict[str, TableColumns]:
    try:
        return {
            name: TableColumns(
                TableMark.read(one["mark"]), {column: FurtherColumn(**two) for column, two in one["columns"].items()}
            )
            for name, one in said.get("tables", {}).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(folder, error) from error


def _damaged(folder: SourceFolder, error: Exception) -> FolderDamaged:
    return FolderDamaged(path=str(Path(folder.path, _FILE)), detail=f"{type(error).__name__}: {error}")
