"""The first rows: all tables as they were at the place where the slot's stream begins.

One transaction reads all tables, under the snapshot that the server exported when it made the slot; so it sees what
committed before that place, and nothing else. What committed later comes by the stream: there is no seam.

The rows go to files, and count only when all of them are on the disk. Until then nothing is bound, so an attempt that
was cut off leaves nothing behind: the slot is dropped, and another one made. From then on the files *are* the rows,
however often they are asked for.

A step works for a part of a second, so that a stop does not wait.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.disk import make_folder, synchronise
from tidegauge.sources.database.folder import SnapshotPiece, SourceFolder
from tidegauge.sources.database.steps import Steps
from tidegauge.sources.postgres.catalog import PublishedTable
from tidegauge.sources.postgres.sessions import DatabasePlace, explained, session
from tidegauge.sources.postgres.wire import TableShape

if TYPE_CHECKING:
    import psycopg

__all__ = ["PIECE_BYTES", "SnapshotReading"]

PIECE_BYTES: Final = 4 << 20
"""Bytes of CSV from which on a piece is over: what a task decodes at once."""
_BUFFER: Final = 1 << 18


class SnapshotReading:
    """A snapshot that is being read. name: the exported one. streams: the table of each stream, and its columns."""

    def __init__(
        self,
        place: DatabasePlace,
        folder: SourceFolder,
        name: str,
        streams: Mapping[str, tuple[PublishedTable, pa.Schema]],
    ) -> None:
        self.pieces: dict[str, tuple[SnapshotPiece, ...]] = {}
        self.shapes: dict[str, str] = {}
        self._place: Final = place
        self._folder: Final = folder
        self.steps: Final = Steps(self._read(name, streams))

    def _read(
        self, name: str, streams: Mapping[str, tuple[PublishedTable, pa.Schema]]
    ) -> Generator[object, None, None]:
        """Read all tables, with a pause after every few hundred rows."""
        from psycopg import IsolationLevel, sql

        self._folder.clear_snapshot()
        make_folder(self._folder.snapshot)
        with session(self._place, patient=True) as connection:
            connection.execute("SET statement_timeout = 0")
            connection.commit()
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
            for number, (stream, (table, columns)) in enumerate(streams.items()):
                path = self._folder.snapshot / f"{number}.csv"
                found = yield from self._copy(connection, table, columns, path)
                self.pieces[stream] = found
                self.shapes[stream] = TableShape(table.oid, table.schema, table.name, tuple(columns.names)).encoded()
        synchronise(self._folder.snapshot)

    def _copy(
        self, connection: psycopg.Connection[Any], table: PublishedTable, columns: pa.Schema, path: Path
    ) -> Generator[object, None, tuple[SnapshotPiece, ...]]:
        from psycopg import sql

        query = sql.SQL("COPY (SELECT {} FROM ONLY {}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(
            sql.SQL(", ").join(map(sql.Identifier, columns.names)), sql.Identifier(table.schema, table.name)
        )
        pieces: list[SnapshotPiece] = []
        start = size = count = first = 0
        with path.open("wb", buffering=_BUFFER) as file, explained(self._place), connection.cursor() as cursor:
            with cursor.copy(query) as copy:
                while line := copy.read():  # the server sends a row at a time
                    size += file.write(line)
                    count += 1
                    if size >= PIECE_BYTES:
                        pieces.append(SnapshotPiece(str(path), start, size, count, first))
                        start, first, size, count = start + size, first + count, 0, 0
                    if count % 512 == 0:
                        yield None
            if count:
                pieces.append(SnapshotPiece(str(path), start, size, count, first))
            file.flush()
            os.fsync(file.fileno())
        return tuple(pieces)
