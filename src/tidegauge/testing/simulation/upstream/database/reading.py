"""The reading of first rows at a simulated server, by the steps and into the files of a real one.

A reading that was cut off goes on: ranges of pages that are in files stay, but for rows that changed since, which are
read by key. A row that changes moves to another page, as in a real table. See `sources.postgres.snapshot`.

Invariant: rows and partitions are those of the place of the snapshot, whatever came or went since.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.disk import make_folder
from tidegauge.sources.database.folder import SnapshotPiece
from tidegauge.sources.database.keys import kept_keys
from tidegauge.sources.postgres.partitions import KnownPartitions
from tidegauge.sources.postgres.progress import RangesPlan, RowsProgress
from tidegauge.sources.postgres.ranges import PageRange
from tidegauge.sources.postgres.snapshot import SnapshotTask
from tidegauge.sources.postgres.wire import TableShape
from tidegauge.testing.simulation.upstream.database.tables import DatabaseTable, Row
from tidegauge.testing.simulation.upstream.database.texts import line_of, text_of

if TYPE_CHECKING:
    from tidegauge.testing.simulation.upstream.database.sender import SimulatedServer

__all__ = ["SimulatedReading"]

_PAUSE: Final = 0.02
_RANGES: Final = (PageRange(0, 8), PageRange(8, None))


class SimulatedReading:
    """First rows that are being read, one table after the other."""

    def __init__(self, server: SimulatedServer, task: SnapshotTask) -> None:
        self.pieces: Final[dict[str, tuple[SnapshotPiece, ...]]] = {}
        self.shapes: Final[dict[str, str]] = {}
        self.partitions: Final[dict[str, KnownPartitions | None]] = {}
        self._server: Final = server
        self._task: Final = task
        self._line: Final = server.log.cuts
        self._work: Final = self._steps()

    @property
    def steps(self) -> SimulatedReading:
        """Itself."""
        return self

    def stop(self) -> None:
        """Nothing: nobody else is at it."""

    def go_on(self, seconds: float) -> bool:
        """Read for so long; return whether all is read."""
        until = self._server.clock.monotonic() + seconds
        for _ in self._work:
            self._server.clock.sleep(_PAUSE)
            if self._server.clock.monotonic() >= until:
                return False
        return True

    def close(self) -> None:
        """Give it up."""
        self._work.close()

    def _steps(self) -> Generator[None, None, None]:
        task = self._task
        progress = RowsProgress(task.folder.snapshot, task.folder.changing)
        if task.at == task.since:
            task.folder.clear_snapshot()
            progress.begin(task.since)
        progress.tidy()
        progress.attempt(task.at)
        known = progress.found().plans
        for stream in task.streams:
            yield from self._table(stream, progress, known.get(stream))

    def _table(self, stream: str, progress: RowsProgress, before: RangesPlan | None) -> Generator[None, None, None]:
        """Read a table. before: how an earlier attempt read it."""
        task, database = self._task, self._server.log.database
        table = replace(database.tables[stream], columns=task.streams[stream][1])
        rows, writers = database.rows_at(stream, task.at), database.writers_at(stream, task.at)
        changed = frozenset[Any]()
        if before is not None and before.read:
            plan, changed = before, database.touched(stream, task.since, task.at)
        else:
            plan = progress.plan(stream, "simulated", _RANGES)
        for pages in plan.missing:
            self._come()
            mine = [row for row in rows if _RANGES[_page(row[table.key], writers)] == pages]
            progress.read(plan, pages, self._written(table, mine))
            self._server.meet("rows are copied")
            yield
        without = self._without(table, changed)
        pieces = [replace(one, without=without) for read in plan.read.values() for one in read]
        if again := [row for row in rows if row[table.key] in changed]:
            self._come()
            pieces += self._written(table, again)
            self._server.meet("rows are copied")
            yield
        self._finish(table, pieces, changed)

    def _come(self) -> None:
        """Come to the reading of some rows."""
        self._server.meet("copy rows")
        self._server.answer(self._line)

    def _finish(self, table: DatabaseTable, pieces: Sequence[SnapshotPiece], changed: Collection[Any]) -> None:
        """Number the rows of a table that is read."""
        stream, first, numbers, found = table.stream, 0, dict[Any, int](), list[SnapshotPiece]()
        for piece in pieces:
            found.append(replace(piece, first=first))
            keys = self._server.log.copied[piece.file, piece.start]
            numbers.update((key, first + n) for n, key in enumerate(keys) if not (piece.without and key in changed))
            first += piece.count
        self._server.log.numbers[stream, self._task.at] = numbers
        self.pieces[stream] = tuple(found)
        keyed = table.columns.names if table.whole else [table.key]
        names = tuple(table.columns.names)
        self.shapes[stream] = TableShape(table.number, *table.place, names, tuple(keyed)).encoded()
        parted = self._server.log.parted.get(stream)
        self.partitions[".".join(table.place)] = None if parted is None else parted.known_at(self._task.at)

    def _without(self, table: DatabaseTable, keys: Collection[Any]) -> str:
        """Write keys to a file, "" for none."""
        if not keys:
            return ""
        texts = [text_of(key, table.columns.field(table.key).type).decode() for key in keys]
        path = Path(self._task.folder.snapshot, f"{uuid.uuid4().hex}.keys")
        return kept_keys(pa.table({table.key: pa.array(texts, pa.string())}), path)

    def _written(self, table: DatabaseTable, rows: Sequence[Row]) -> tuple[SnapshotPiece, ...]:
        """Write rows to a file, in two pieces where there are enough."""
        path = Path(self._task.folder.snapshot, f"{uuid.uuid4().hex}.csv")
        make_folder(path.parent)
        path.write_bytes(b"".join(line_of(row, table) for row in rows))
        found: list[SnapshotPiece] = []
        start = 0
        for some in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            if some:
                size = sum(len(line_of(row, table)) for row in some)
                self._server.log.copied[str(path), start] = [row[table.key] for row in some]
                found.append(SnapshotPiece(str(path), start, size, len(some), 0))
                start += size
        return tuple(found)


def _page(key: Any, writers: Mapping[Any, int]) -> int:
    """Return the range of pages that a row is in: it moves when it changes."""
    return zlib.crc32(f"{key} {writers[key]}".encode()) % len(_RANGES)
