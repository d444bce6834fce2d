"""The first rows: all tables as they were at one position of the log.

One transaction reads all tables, and the server says at which place of the log it sees them
(`START TRANSACTION WITH CONSISTENT SNAPSHOT`). What committed later comes by the stream: there is no seam.
MySQL does not say it of a transaction: there nothing commits while it begins, and the catalog is read as long.

The rows go to files, as the texts that the server writes, and count only when all of them are on the disk. Until then
nothing is bound, so an attempt that was cut off leaves nothing behind. A step works for a part of a second.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.disk import make_folder, synchronise
from tidegauge.errors.mysqlsource import BinlogServerUnfit
from tidegauge.sources.database.folder import SnapshotPiece, SourceFolder
from tidegauge.sources.database.steps import Steps
from tidegauge.sources.mysql.catalog import FollowedTable, look, quoted
from tidegauge.sources.mysql.servers import ServerKind
from tidegauge.sources.mysql.sessions import ServerPlace, explained, session

__all__ = ["FirstRowsReading", "rows_of"]

_PIECE: Final = 4 << 20
"""Bytes from which on a piece is over: what a task decodes at once."""
_ROWS: Final = 512
_LOCK: Final = 10
"""Seconds for which commits are held up at the most, and for which it is waited until they are."""
_REPEATABLE: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
_BEGIN: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"


def rows_of(data: bytes) -> pa.RecordBatch:
    """Return the texts of rows that are in a piece."""
    with pa.ipc.open_stream(data) as piece:
        return piece.read_all().combine_chunks().to_batches()[0]


class FirstRowsReading:
    """A snapshot that is being read. streams: of each stream its database, its table and its columns."""

    def __init__(
        self,
        place: ServerPlace,
        kind: ServerKind,
        folder: SourceFolder,
        streams: Mapping[str, tuple[str, str, pa.Schema]],
    ) -> None:
        self.pieces: dict[str, tuple[SnapshotPiece, ...]] = {}
        self.gtids = ""
        """The position of the snapshot, as the server writes it."""
        self.tables: dict[str, FollowedTable] = {}
        """The tables of the streams as they were at this position, of a MySQL."""
        self._place: Final = place
        self._kind: Final = kind
        self._folder: Final = folder
        self.steps: Final = Steps(self._read(streams))

    def _read(self, streams: Mapping[str, tuple[str, str, pa.Schema]]) -> Generator[object, None, None]:
        self._folder.clear_snapshot()
        make_folder(self._folder.snapshot)
        with session(self._place) as connection:
            begun = self._begun if self._kind.named else self._begun_in_stillness
            self.gtids = begun(connection, streams)
            for number, (stream, (database, table, columns)) in enumerate(streams.items()):
                path = self._folder.snapshot / f"{number}.arrows"
                query = _query(database, table, columns, self._kind.name)
                self.pieces[stream] = yield from self._copy(connection, query, columns, path)
        synchronise(self._folder.snapshot)

    def _begun(self, connection: Any, _streams: object) -> str:
        """Begin the transaction, and return its position."""
        with connection.cursor() as cursor:
            cursor.execute(_REPEATABLE)
            cursor.execute(_BEGIN)
            cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
            where = {name.decode().lower(): value.decode() for name, value in cursor.fetchall()}
            file, at = where.get("binlog_snapshot_file", ""), where.get("binlog_snapshot_position", "0")
            cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, int(at)))
            found = cursor.fetchone()[0]
        if not found:
            detail = f"it does not say which transactions are in its log at {file}:{at}"
            raise BinlogServerUnfit(source=self._place.shown, detail=detail, remedy="change any row")
        return str(found.decode())

    def _begun_in_stillness(self, connection: Any, streams: Mapping[str, tuple[str, str, pa.Schema]]) -> str:
        """Begin the transaction while nothing commits, look at the tables, and return its position."""
        with session(self._place) as locking, locking.cursor() as cursor, connection.cursor() as reading:
            # Should this driver be frozen, the server ends the session, and the lock with it.
            cursor.execute(f"SET lock_wait_timeout = {_LOCK}, wait_timeout = {_LOCK}")
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            reading.execute(_REPEATABLE)
            reading.execute(_BEGIN)
            # An answer says that this session, and with it the lock, is still there.
            found = look(locking, [(database, table) for database, table, _ in streams.values()])
        self.tables = dict(zip(streams, found.tables, strict=True))
        return self._kind.clock.render(self._kind.end(self._place.shown, found.settings))

    def _copy(
        self, connection: Any, query: str, columns: pa.Schema, path: Path
    ) -> Generator[object, None, tuple[SnapshotPiece, ...]]:
        from pymysql.cursors import SSCursor

        schema = pa.schema([(name, pa.binary()) for name in columns.names])
        pieces: list[SnapshotPiece] = []
        rows: list[tuple[bytes | None, ...]] = []
        start = size = first = 0
        with path.open("wb") as file, explained(self._place), SSCursor(connection) as cursor:
            cursor.execute(query)
            going = True
            while going:
                found = cursor.fetchmany(_ROWS)
                going = bool(found)
                rows += found
                size += sum(len(cell or b"") for row in found for cell in row)
                if rows and (size >= _PIECE or not going):
                    data = _encoded(rows, schema)
                    file.write(data)
                    pieces.append(SnapshotPiece(str(path), start, len(data), len(rows), first))
                    start, first, size, rows = start + len(data), first + len(rows), 0, []
                yield None
            file.flush()
            os.fsync(file.fileno())
        return tuple(pieces)


def _encoded(rows: list[tuple[bytes | None, ...]], schema: pa.Schema) -> bytes:
    arrays = [pa.array(column, pa.binary()) for column in zip(*rows, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue())


def _query(database: str, table: str, columns: pa.Schema, kind: str) -> str:
    """Return the query for the texts of a table's rows: a float as the double that it is, since it is cut
    otherwise, and a bit as a number.

    >>> _query("shop", "o`s", pa.schema([("id", pa.int64()), ("f", pa.float32())]), "MariaDB")
    'SELECT CAST(`id` AS SIGNED), CAST(`f` AS DOUBLE) FROM `shop`.`o``s`'
    """
    double = "CAST({} AS DOUBLE)" if kind == "MariaDB" else "{} + 0e0"
    listed = []
    for field in columns:
        name = quoted(field.name)
        signed = "CAST({} AS SIGNED)" if pa.types.is_int64(field.type) else "{}"
        listed.append((double if pa.types.is_float32(field.type) else signed).format(name))
    return f"SELECT {', '.join(listed)} FROM {quoted(database)}.{quoted(table)}"  # noqa: S608 - all are quoted
