"""The first rows: all tables as they were at the place where the slot's stream begins, read by several connections.

    one session      takes the exported snapshot, locks the tables, and cuts them into ranges of pages
    the readers      take the same snapshot, and read one range after the other, each into a file of its own

All of them read under the snapshot that the server exported when it made the slot; so they see what committed before
that place, and nothing else. What committed later comes by the stream: there is no seam.

A snapshot does not protect a table from being rewritten (`VACUUM FULL`, `CLUSTER`, some kinds of `ALTER TABLE`): its
rows would be in other pages, or not to be seen at all. So the first session holds a lock on each table that forbids
just this, and compares the table's file with the one that it had at the place of the snapshot.

The rows go to files, and count only when all of them are on the disk. Until then nothing is bound, so an attempt that
was cut off leaves nothing behind: the slot is dropped, and another one made. From then on the files *are* the rows,
however often they are asked for.
"""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.disk import make_folder, synchronise
from tidegauge.errors.postgressource import TableRewritten
from tidegauge.sources.database.folder import SnapshotPiece, SourceFolder
from tidegauge.sources.database.steps import Steps
from tidegauge.sources.postgres.catalog import PublishedTable
from tidegauge.sources.postgres.ranges import RANGE_BYTES, PageRange, page_ranges
from tidegauge.sources.postgres.sessions import DatabasePlace, explained, session
from tidegauge.sources.postgres.wire import TableShape

if TYPE_CHECKING:
    import psycopg

__all__ = ["PIECE_BYTES", "SnapshotReading"]

PIECE_BYTES: Final = 4 << 20
"""Bytes of CSV from which on a piece is over: what a task decodes at once."""
_BUFFER: Final = 1 << 18
_LOOKS: Final = 0.05
_LINGERS: Final = 2.0
"""Seconds for which a stop waits for a reader."""
_FACTS: Final = """
    SELECT c.relfilenode::int8, coalesce(pg_relation_filenode(c.oid), 0)::int8,
           pg_relation_size(c.oid) / current_setting('block_size')::int8, current_setting('block_size')::int8,
           coalesce((SELECT a.amname FROM pg_am a WHERE a.oid = c.relam), '')::text
    FROM pg_class c WHERE c.oid = %s
"""


class _GivenUp(Exception):
    """Somebody else has failed, or the source is closed."""


@dataclass(frozen=True, slots=True)
class _ToRead:
    """A range of a table that is to be read into a file."""

    stream: str
    table: PublishedTable
    columns: pa.Schema
    pages: PageRange
    path: Path


class SnapshotReading:
    """A snapshot that is being read. name: the exported one. streams: the table of each stream, and its columns.

    connections: how many read at once, beside the session that holds the tables.
    """

    def __init__(
        self,
        place: DatabasePlace,
        folder: SourceFolder,
        name: str,
        streams: Mapping[str, tuple[PublishedTable, pa.Schema]],
        connections: int,
    ) -> None:
        self.pieces: dict[str, tuple[SnapshotPiece, ...]] = {}
        self.shapes: dict[str, str] = {}
        self._place: Final = place
        self._folder: Final = folder
        self._name: Final = name
        self._connections: Final = connections
        self._read: Final[dict[tuple[str, int], Sequence[SnapshotPiece]]] = {}
        """The pieces of each range that was read, by its stream and its first page."""
        self._stopped: Final = threading.Event()
        self._open: Final[list[psycopg.Connection[Any]]] = []
        self._failures: Final[list[BaseException]] = []
        self.steps: Final = Steps(self._steps(streams))

    def _steps(self, streams: Mapping[str, tuple[PublishedTable, pa.Schema]]) -> Generator[object, None, None]:
        """Have all tables read, and wait for it a little at a time."""
        self._folder.clear_snapshot()
        make_folder(self._folder.snapshot)
        readers: list[threading.Thread] = []
        try:
            with session(self._place, patient=True) as connection:
                self._enter(connection)
                todo = deque(self._held(connection, streams))
                for number in range(min(self._connections, len(todo))):
                    readers.append(
                        threading.Thread(target=self._reader, args=(todo,), name=f"rows {number}", daemon=True)
                    )
                    readers[-1].start()
                while any(one.is_alive() for one in readers):
                    next(one for one in readers if one.is_alive()).join(_LOOKS)
                    yield None
        finally:
            self._end(readers)
        if self._failures:
            raise self._failures[0]
        synchronise(self._folder.snapshot)
        for stream, (table, columns) in streams.items():
            self.shapes[stream] = TableShape(table.oid, table.schema, table.name, tuple(columns.names)).encoded()
            ranges = sorted((page, found) for (of, page), found in self._read.items() if of == stream)
            self.pieces[stream] = _numbered(itertools.chain.from_iterable(found for _, found in ranges))

    def _end(self, readers: Sequence[threading.Thread]) -> None:
        """See that no reader goes on."""
        self._stopped.set()
        for reader in readers:
            if reader.is_alive():
                for connection in list(self._open):
                    with suppress(Exception):
                        connection.cancel_safe(timeout=_LINGERS)
                reader.join(_LINGERS)

    def _enter(self, connection: psycopg.Connection[Any]) -> None:
        """Begin a transaction that sees what the snapshot does."""
        from psycopg import IsolationLevel, sql

        for setting in ("statement_timeout", "idle_in_transaction_session_timeout"):
            connection.execute(sql.SQL("SET {} = 0").format(sql.Identifier(setting)))
        connection.commit()
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self._name)))

    def _held(
        self, connection: psycopg.Connection[Any], streams: Mapping[str, tuple[PublishedTable, pa.Schema]]
    ) -> list[_ToRead]:
        """Lock all tables until the transaction is over; return the ranges to read.

        Raises `TableRewritten`.
        """
        from psycopg import sql

        found: list[_ToRead] = []
        for number, (stream, (table, columns)) in enumerate(streams.items()):
            name = sql.Identifier(table.schema, table.name)
            connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(name))
            row = connection.execute(_FACTS, (table.oid,)).fetchone()
            then, now, pages, size, method = (0, 0, 0, 1, "") if row is None else row
            if not then or then != now:
                raise TableRewritten(table=str(table), source=self._place.shown)
            ranges = page_ranges(pages if method == "heap" else 0, max(RANGE_BYTES // size, 1))
            run = uuid.uuid4().hex[:8]
            for one in ranges:
                path = self._folder.snapshot / f"{number}-{one.lower}-{run}.csv"
                found.append(_ToRead(stream, table, columns, one, path))
        return found

    def _reader(self, todo: deque[_ToRead]) -> None:
        """Read one range after the other, until none is left."""
        try:
            with session(self._place, patient=True) as connection:
                self._open.append(connection)
                self._enter(connection)
                while todo and not self._stopped.is_set():
                    with suppress(IndexError):  # another one has taken the last
                        one = todo.popleft()
                        self._read[one.stream, one.pages.lower] = self._copy(connection, one)
        except _GivenUp:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where the source waits for the rows
            if not self._stopped.is_set():
                self._failures.append(error)
            self._stopped.set()

    def _copy(self, connection: psycopg.Connection[Any], read: _ToRead) -> Sequence[SnapshotPiece]:
        """Read a range into its file, which has its name when it is whole and on the disk; return its pieces."""
        from psycopg import sql

        conditions = [sql.SQL(one) for one in read.pages.conditions]
        query = sql.SQL("COPY (SELECT {} FROM ONLY {}{}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(
            sql.SQL(", ").join(map(sql.Identifier, read.columns.names)),
            sql.Identifier(read.table.schema, read.table.name),
            sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(conditions)) if conditions else sql.SQL(""),
        )
        pieces: list[SnapshotPiece] = []
        start = size = count = 0
        part = read.path.with_suffix(".part")
        with part.open("wb", buffering=_BUFFER) as file, explained(self._place), connection.cursor() as cursor:
            with cursor.copy(query) as copy:
                while line := copy.read():  # the server sends a row at a time
                    size += file.write(line)
                    count += 1
                    if size >= PIECE_BYTES:
                        pieces.append(SnapshotPiece(str(read.path), start, size, count, 0))
                        start, size, count = start + size, 0, 0
                    if count % 512 == 0 and self._stopped.is_set():
                        raise _GivenUp
            if count:
                pieces.append(SnapshotPiece(str(read.path), start, size, count, 0))
            file.flush()
            os.fsync(file.fileno())
        part.rename(read.path)
        return pieces


def _numbered(pieces: Any) -> tuple[SnapshotPiece, ...]:
    """Return pieces with the numbers of their first rows."""
    found: list[SnapshotPiece] = []
    for piece in pieces:
        first = found[-1].first + found[-1].count if found else 0
        found.append(replace(piece, first=first))
    return tuple(found)
