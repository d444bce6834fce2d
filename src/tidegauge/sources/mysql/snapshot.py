"""The first rows: all tables as they were at one position of the log, read by one attempt, or by several.

One transaction reads all tables (`firstrows`), each in the order of its primary key. What committed later comes by
the stream: there is no seam. The rows go to files, as the texts that the server writes. A step works for a part of a
second, and each piece that is on the disk is noted (`progress`).

A transaction dies with its session. So the next attempt has a transaction of its own, at a later position P, which is
the position of the first rows now. The pieces stay. Why the whole is the table at P, and nothing else:

  1. A piece has all rows of its range of keys as they were at some position from the first attempt's up to P. Ranges
     do not overlap, since the key is the same, in the same order (`TableKey.facts`).
  2. A row whose key is in no change between these positions is the same at all of them, so it is in one piece.
  3. The log has all these changes, so the other keys are known (`touched`). Their rows are left out of *all* pieces,
     and read by key in the transaction at P. Keys behind those of all pieces need not be: they are read at P anyway.

A table whose key has no such order, one that was altered or emptied, and one with too many changes, are read anew at
P; and all of them where the log no longer has these changes, or is another one.

Invariant: rows count only when all of them are on the disk. Until then nothing is bound.

>>> from tidegauge.sources.mysql.keyed import KeyColumn
>>> key = TableKey((KeyColumn("id", "int", "int(11)", ""),), "8.0.33")
>>> columns = pa.schema({"note": pa.string(), "id": pa.int32()})
>>> _ReadTable("orders", "shop", "orders", columns, key).key_of((b"a note", b"7"))
(b'7',)
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from tidegauge.disk import synchronise
from tidegauge.errors.mysqlsource import (
    BinlogBroken,
    BinlogPurged,
    BinlogServerUnfit,
    BinlogUnfit,
    FirstRowsUnwritten,
)
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.database.folder import SnapshotPiece, SourceFolder, numbered
from tidegauge.sources.database.keys import kept_keys
from tidegauge.sources.database.steps import Steps
from tidegauge.sources.mysql.catalog import FollowedTable
from tidegauge.sources.mysql.catalogued import known_table
from tidegauge.sources.mysql.followed import BinlogSetup
from tidegauge.sources.mysql.keyed import Key, RowsPart, TableKey, key_texts
from tidegauge.sources.mysql.marks import LogMark
from tidegauge.sources.mysql.progress import ReadingNotes, ReadRows
from tidegauge.sources.mysql.server import FirstRowsTransaction
from tidegauge.sources.mysql.texts import encoded
from tidegauge.sources.mysql.touched import LogWalk, TouchedKeys

__all__ = ["FirstRowsReading"]

_AT_ONCE: Final = 200
"""Keys whose rows are read by one statement."""
_GONE: Final = (UpstreamRecreated, BinlogPurged, BinlogServerUnfit, BinlogUnfit, BinlogBroken)
"""What the log is where it does not tell any more what changed."""
_Rows: TypeAlias = Sequence[tuple[bytes | None, ...]]


@dataclass(frozen=True, slots=True)
class _ReadTable:
    """A table that is read. key: None where it is read as a whole, or not at all."""

    stream: str
    database: str
    table: str
    columns: pa.Schema
    key: TableKey | None

    def key_of(self, row: Sequence[bytes | None]) -> Key:
        """Return the key of a row."""
        names = [] if self.key is None else self.key.names
        return tuple(row[self.columns.names.index(one)] or b"" for one in names)


class FirstRowsReading:
    """A snapshot that is being read, into a folder. life: the server's identity, and the incarnation of the source.
    domain: whose transactions change the tables. streams: of each its database, its table and its columns. opened: is
    called with the position, before any row is read."""

    def __init__(
        self,
        setup: BinlogSetup,
        folder: SourceFolder,
        life: tuple[str, int],
        domain: str,
        streams: Mapping[str, tuple[str, str, pa.Schema]],
        opened: Callable[[str], object] = str,
    ) -> None:
        self.pieces: dict[str, tuple[SnapshotPiece, ...]] = {}
        self.gtids = ""
        """The position of the snapshot, as the server writes it."""
        self.mark: LogMark | None = None
        """The last transaction before it: until the rows are read, the log may become another one."""
        self.tables: dict[str, FollowedTable] = {}
        """The tables of the streams as they were at this position, where the log names no columns."""
        self._setup: Final = setup
        self._folder: Final = folder
        self._life: Final = life
        self._domain: Final = domain
        self._opened: Final = opened
        self.steps: Final = Steps(self._read(streams), setup.server.clock.monotonic)

    def _read(self, streams: Mapping[str, tuple[str, str, pa.Schema]]) -> Generator[object, None, None]:
        server, names = self._setup.server, [(database, table) for database, table, _ in streams.values()]
        with server.first_rows(self._setup.kind, names) as transaction, self._written():
            self.gtids = transaction.gtids
            self._opened(self.gtids)
            self.tables = dict(zip(streams, transaction.tables, strict=False))  # there are none where it does
            tables = {}
            for stream, (database, name, columns) in streams.items():
                key = transaction.key(database, name)
                here = key is not None and set(key.names) <= set(columns.names)
                tables[stream] = _ReadTable(stream, database, name, columns, key if here else None)
            progress = ReadingNotes(self._folder, *self._life)
            touched = yield from self._gone_on(progress, tables)
            progress.tidy()
            read = progress.found().tables
            for number, (stream, table) in enumerate(tables.items()):
                rows = read.get(stream, ReadRows("", ""))
                path = self._folder.snapshot / f"{number}-{uuid.uuid4().hex[:12]}.arrows"  # nobody else's, of before
                yield from self._rest(transaction, table, rows, path, progress if stream in read else None)
                if (keys := touched.get(stream)) is not None and keys.num_rows:
                    without = kept_keys(keys, path.with_suffix(".keys"))
                    rows.pieces[:] = [replace(one, without=without) for one in rows.pieces]
                    given = _with_keys(transaction, table, keys)
                    yield from self._copy(given, table, rows, path.with_suffix(".by-key"), None)
                self.pieces[stream] = numbered(rows.pieces)
            synchronise(self._folder.snapshot)

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Tell what the disk refuses from what the connection does."""
        try:
            yield
        except OSError as error:
            shown, path = self._setup.server.shown, self._folder.path
            raise FirstRowsUnwritten(source=shown, path=path, detail=str(error)) from error

    def _gone_on(
        self, progress: ReadingNotes, tables: Mapping[str, _ReadTable]
    ) -> Generator[object, None, dict[str, pa.Table]]:
        """Note the tables that are read from here on; return the keys that changed in the others since.

        Nothing is noted where the log does not tell which transaction comes before.
        """
        clock, found = self._setup.kind.clock, progress.found()
        here = clock.parse(self.gtids)
        touched: dict[str, pa.Table] = {}
        if not here[self._domain]:
            progress.begin("")
            return touched
        begun, after = clock.parse(found.begun), max((one.sequence for one in found.marks), default=0)
        if found.marks and begun.less_equal(here) and after < here[self._domain]:
            keys = {
                stream: _keys_of(table, rows, clock.parse(rows.since))
                for stream, table in tables.items()
                if (rows := found.tables.get(stream)) is not None
                and (rows.whole or rows.upto is not None)
                and table.key is not None
                and table.key.facts == rows.facts
            }
            try:
                self.mark = yield from self._walked(tables, begun, found.marks, keys)
                touched = {stream: _texts(one.found) for stream, one in keys.items() if one.found is not None}
            except _GONE:
                pass
        if self.mark is None:
            touched = {}
            progress.begin(self.gtids)
            try:
                self.mark = yield from self._walked(tables, here, (), {})
            except _GONE:  # the one before it is gone, or another server's
                return touched
        if self.mark is not None:
            progress.mark(self.mark)
            for stream, table in tables.items():
                if table.key is not None and stream not in touched:
                    progress.table(stream, table.key.facts, self.gtids)
        return touched

    def _walked(
        self,
        tables: Mapping[str, _ReadTable],
        begun: Frontier,
        marks: Sequence[LogMark],
        keys: Mapping[str, TouchedKeys],
    ) -> Generator[object, None, LogMark | None]:
        setup = self._setup
        known = None if setup.kind.named else {stream: known_table(one) for stream, one in self.tables.items()}
        upto = setup.kind.clock.parse(self.gtids)
        names = {(tables[stream].database, tables[stream].table): stream for stream in keys}
        walk = LogWalk(setup, self._folder, self._domain, names, known)
        return (yield from walk.through(begun, upto, marks, keys))

    def _rest(
        self,
        transaction: FirstRowsTransaction,
        table: _ReadTable,
        rows: ReadRows,
        path: Path,
        progress: ReadingNotes | None,
    ) -> Generator[object, None, None]:
        """Have the rows read that are in no piece yet."""
        if rows.whole:
            return
        part = None if table.key is None else RowsPart(table.key, behind=rows.upto)
        with closing(transaction.rows(table.database, table.table, table.columns, part)) as given:
            yield from self._copy(given, table, rows, path, progress)
        if progress is not None:
            progress.read(table.stream, None, None)

    def _copy(
        self,
        given: Iterable[_Rows],
        table: _ReadTable,
        known: ReadRows,
        path: Path,
        progress: ReadingNotes | None,
    ) -> Generator[object, None, None]:
        """Write rows to a file, and note each piece of it that is on the disk, if they are to be noted."""
        rows: list[tuple[bytes | None, ...]] = []
        start = size = 0

        with path.open("wb") as file:

            def written() -> None:
                nonlocal start, size, rows
                data = encoded(rows, table.columns)
                file.write(data)
                piece = SnapshotPiece(str(path), start, len(data), len(rows), 0)
                known.pieces.append(piece)
                if progress is not None:
                    file.flush()
                    os.fsync(file.fileno())
                    progress.read(table.stream, piece, table.key_of(rows[-1]))
                start, size, rows = start + len(data), 0, []

            for found in given:
                rows += found
                size += sum(len(cell or b"") for row in found for cell in row)
                if size >= self._setup.piece:
                    written()
                yield None
            if rows:
                written()
            file.flush()
            os.fsync(file.fileno())


def _keys_of(table: _ReadTable, rows: ReadRows, since: Frontier) -> TouchedKeys:
    """Return the keys, none yet, that matter for rows which were read."""
    assert table.key is not None  # noqa: S101 - they were read in its order
    schema = pa.schema([table.columns.field(one) for one in table.key.names])
    counted = rows.upto is not None and pa.types.is_integer(schema.field(0).type)
    upto = int(rows.upto[0]) if rows.upto is not None and counted else None
    return TouchedKeys(f"{table.database}.{table.table}", schema, since, upto)


def _texts(keys: pa.Table) -> pa.Table:
    return key_texts({name: keys[name] for name in keys.column_names})


def _with_keys(transaction: FirstRowsTransaction, table: _ReadTable, keys: pa.Table) -> Iterator[_Rows]:
    """Yield the rows that have one of some keys, each once: a server may take two of these to be equal."""
    assert table.key is not None  # noqa: S101 - it has keys
    seen = set[Key]()
    for start in range(0, keys.num_rows, _AT_ONCE):
        columns = [column.to_pylist() for column in keys.slice(start, _AT_ONCE).columns]
        part = RowsPart(table.key, among=list(zip(*columns, strict=True)))
        with closing(transaction.rows(table.database, table.table, table.columns, part)) as given:
            for rows in given:
                yield [row for row in rows if table.key_of(row) not in seen]
                seen.update(table.key_of(row) for row in rows)
