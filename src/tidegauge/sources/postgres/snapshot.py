"""The first rows: all tables at one place of the log, read by several connections, and by several attempts.

    one session      takes the exported snapshot, locks the tables, and cuts them into ranges of pages
    the readers      take the same snapshot, and read one range after the other, each into a file of its own

In the first attempt all of them read under the snapshot that the server exported when it made the slot; so they see
what committed before that place, and nothing else. What committed later comes by the stream: there is no seam.

A snapshot dies with the session that exported it, so an attempt that is cut off cannot go on under it. The next one
takes another snapshot, at a later place P, from a slot that goes with the session; the stream will begin there. The
ranges that are in files stay. Why the whole is the table at P, and nothing else:

  1. A file has all rows that its range of pages had at some place between the slot's and P.
  2. A row whose key is in no change between these places is the same at all of them, and in the same page, since the
     table was not rewritten (`held.facts`). Ranges do not overlap, so it is in one file, and the same as at P.
  3. The slot gives all these changes, for it was told nothing yet. So the other keys are known (`touched`). Their
     rows are left out of *all* files, and read by key under the snapshot at P.

A table without a key, one that was rewritten, and one with too many changes, are read anew under the snapshot at P.

Nothing is bound before all of this is in files and on the disk. From then on the files *are* the rows, however often
they are asked for.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.disk import synchronise
from tidegauge.sources.database.folder import SnapshotPiece, SourceFolder, numbered
from tidegauge.sources.database.keys import kept_keys
from tidegauge.sources.database.steps import Steps
from tidegauge.sources.postgres.catalog import PublishedTable
from tidegauge.sources.postgres.copying import copied
from tidegauge.sources.postgres.held import HeldPart, HeldTable, held
from tidegauge.sources.postgres.pace import RowsPace
from tidegauge.sources.postgres.partitions import KnownPartitions
from tidegauge.sources.postgres.progress import RangesPlan, RowsProgress
from tidegauge.sources.postgres.ranges import PageRange
from tidegauge.sources.postgres.sessions import DatabasePlace, explained, session, take_texts
from tidegauge.sources.postgres.touched import touched

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

__all__ = ["PIECE_BYTES", "SnapshotReading", "SnapshotTask"]

PIECE_BYTES: Final = 4 << 20
"""Bytes of CSV from which on a piece is over: what a task decodes at once."""
_BUFFER: Final = 1 << 18
_WAITS: Final = 0.05
_LINGERS: Final = 2.0
"""Seconds for which a stop waits for a reader."""
_AT_ONCE: Final = 2_000
"""Keys whose rows are read by one statement."""


_TIMEOUTS: Final = ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")
"""What a server, a role or a database may be set to, and would end a long reading. The last one came with 17."""
_PATIENT: Final = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = ANY (%s)"


class _GivenUp(Exception):
    """Somebody else has failed, or the source is closed."""


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """The rows to read. name: of the snapshot. since: where the slot begins. at: the place of the snapshot, which is
    a later one if an earlier attempt was cut off. streams: the table of each stream, and its columns.

    connections: how many read at once, beside the session that holds the tables. rate: rows a second that all of them
    read together at most. streaming: whether another session reads the slot meanwhile.
    """

    place: DatabasePlace
    folder: SourceFolder
    publication: str
    slot: str
    name: str
    since: int
    at: int
    streams: Mapping[str, tuple[PublishedTable, pa.Schema]]
    connections: int
    rate: int | None = None
    streaming: bool = False


@dataclass(frozen=True, slots=True)
class _RowsPart:
    """Some rows that are to be read into a file: a range of a plan, or those that have some keys."""

    stream: str
    table: HeldTable
    part: HeldPart
    pages: PageRange | None
    keys: pa.Table | None = None

    @property
    def query(self) -> sql.Composed:
        pages = [] if self.pages is None else self.part.of_pages(self.pages)
        return self.table.copied(self.part, [*pages, *([] if self.keys is None else [self.table.of_keys(self.keys)])])


class SnapshotReading:
    """A snapshot that is being read. pieces, shapes: of each stream, once the steps are done; and the partitions of
    each table then."""

    def __init__(self, task: SnapshotTask) -> None:
        self.pieces: dict[str, tuple[SnapshotPiece, ...]] = {}
        self.shapes: dict[str, str] = {}
        self.partitions: dict[str, KnownPartitions | None] = {}
        self._task: Final = task
        self._progress: Final = RowsProgress(task.folder.snapshot, task.folder.changing)
        self._plans: dict[str, RangesPlan] = {}
        self._by_key: Final[dict[str, list[SnapshotPiece]]] = {}
        self._stopped: Final = threading.Event()
        self._pace: Final = RowsPace(task.rate)
        self._open: Final[list[psycopg.Connection[Any]]] = []
        self._failures: Final[list[BaseException]] = []
        self.steps: Final = Steps(self._steps())

    def stop(self) -> None:
        """Give it up, also while the server waits for a lock. May be called by another thread."""
        self._stopped.set()
        for connection in list(self._open):
            with suppress(Exception):
                connection.cancel_safe(timeout=_LINGERS)

    def _steps(self) -> Generator[object, None, None]:
        """Have all tables read, and wait for it a little at a time."""
        task = self._task
        if task.at == task.since:
            task.folder.clear_snapshot()
            self._progress.begin(task.since)
        self._progress.tidy()
        self._progress.attempt(task.at)
        readers: list[threading.Thread] = []
        try:
            with session(task.place, patient=True) as connection:
                self._open.append(connection)
                self._enter(connection)
                tables = {one: held(connection, *what, task.place.shown) for one, what in task.streams.items()}
                keys = yield from self._planned(tables)
                todo = deque(self._parts(tables, keys))
                for number in range(min(task.connections, len(todo))):
                    readers.append(
                        threading.Thread(target=self._reader, args=(todo,), name=f"rows {number}", daemon=True)
                    )
                    readers[-1].start()
                while any(one.is_alive() for one in readers):
                    next(one for one in readers if one.is_alive()).join(_WAITS)
                    yield None
        finally:
            self._end(readers)
        if self._failures:
            raise self._failures[0]
        self._finish(tables, keys)

    def _planned(self, tables: Mapping[str, HeldTable]) -> Generator[object, None, dict[str, pa.Table]]:
        """Make the plans; return of each stream that an earlier attempt read some of the keys that changed since."""
        task, known = self._task, self._progress.found().plans
        parts = {part.plan_of(stream): (stream, part) for stream, one in tables.items() for part in one.parts}
        same = {
            name: known[name]
            for name, (stream, part) in parts.items()
            if name in known and known[name].facts == part.facts and tables[stream].key and known[name].read
        }
        begun = {parts[name][0]: tables[parts[name][0]] for name in same}
        keys = yield from touched(
            task.place,
            task.publication,
            task.slot,
            task.folder,
            begun,
            task.since,
            task.at,
            streaming=task.streaming,
        )
        self._plans = {
            name: same[name]
            if name in same and keys.get(stream) is not None
            else self._progress.plan(name, part.facts, part.ranges)
            for name, (stream, part) in parts.items()
        }
        return {stream: found for stream, found in keys.items() if found is not None and found.num_rows}

    def _parts(self, tables: Mapping[str, HeldTable], keys: Mapping[str, pa.Table]) -> Iterable[_RowsPart]:
        """Yield the ranges that are missing, and the rows that have one of the keys, some at a time."""
        for stream, table in tables.items():
            for part in table.parts:
                for pages in self._plans[part.plan_of(stream)].missing:
                    yield _RowsPart(stream, table, part, pages)
                for start in range(0, keys[stream].num_rows if stream in keys else 0, _AT_ONCE):
                    yield _RowsPart(stream, table, part, None, keys[stream].slice(start, _AT_ONCE))

    def _finish(self, tables: Mapping[str, HeldTable], keys: Mapping[str, pa.Table]) -> None:
        """Put the pieces together."""
        folder = self._task.folder.snapshot
        for number, (stream, table) in enumerate(tables.items()):
            path = folder / f"{number}-{uuid.uuid4().hex[:8]}.keys"
            without = kept_keys(keys[stream], path) if stream in keys else ""
            plans = [self._plans[part.plan_of(stream)].read for part in table.parts]
            ranges = [replace(one, without=without) for read in plans for page in sorted(read) for one in read[page]]
            self.partitions[str(table.table)] = table.partitions
            self.pieces[stream] = numbered([*ranges, *self._by_key.get(stream, [])])
            self.shapes[stream] = table.shape
        synchronise(folder)

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

        connection.execute(_PATIENT, (list(_TIMEOUTS),))
        connection.commit()
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(self._task.name)))

    def _reader(self, todo: deque[_RowsPart]) -> None:
        """Read one part after the other, until none is left."""
        try:
            with session(self._task.place, patient=True) as connection:
                self._open.append(connection)
                self._enter(connection)
                while todo and not self._stopped.is_set():
                    try:
                        part = todo.popleft()
                    except IndexError:  # another one has taken the last
                        return
                    pieces = self._copy(connection, part)
                    if part.pages is None:
                        self._by_key.setdefault(part.stream, []).extend(pieces)
                    else:
                        self._progress.read(self._plans[part.part.plan_of(part.stream)], part.pages, pieces)
        except _GivenUp:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where the source waits for the rows
            if not self._stopped.is_set():
                self._failures.append(error)
            self._stopped.set()

    def _copy(self, connection: psycopg.Connection[Any], part: _RowsPart) -> Sequence[SnapshotPiece]:
        """Read rows into a file, which has its name when it is whole and on the disk; return its pieces."""
        path = Path(self._task.folder.snapshot, f"{uuid.uuid4().hex}.csv")
        unfinished = path.with_suffix(".part")
        pieces: list[SnapshotPiece] = []
        start = size = count = asked = 0
        with (
            unfinished.open("wb", buffering=_BUFFER) as file,
            explained(self._task.place),
            closing(copied(connection, part.query.as_bytes(connection))) as found,
        ):
            take_texts(connection, raw=True)
            for rows in found:
                size += file.write(b"".join(rows))
                count += len(rows)
                if size >= PIECE_BYTES:
                    pieces.append(SnapshotPiece(str(path), start, size, count, 0))
                    start, size, count = start + size, 0, 0
                asked += len(rows)
                if asked >= self._pace.step:
                    if self._stopped.wait(self._pace.read(asked)):
                        raise _GivenUp
                    asked = 0
            take_texts(connection, raw=False)
            self._stopped.wait(self._pace.read(asked))
            if count:
                pieces.append(SnapshotPiece(str(path), start, size, count, 0))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        return pieces
