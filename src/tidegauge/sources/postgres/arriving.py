"""Tables that come later: their first rows are read beside the stream of the others, which does not wait.

    a slot that goes with its session   made for the sake of its snapshot, at a place P of the log
    a thread                            has the rows of that snapshot read into files, as at the beginning
    the stream                          goes on; what it brings of these tables from P on is set aside, in a file
    when all rows are in files          the tables join, at the place Q that the stream has reached by then
    when that is cut off                the ranges that are in files stay, and the next connection reads the rest at a
                                        later P, as at the beginning: see `snapshot`

The rows at P, and the changes from P up to Q, are given together, at the place before Q: there the tables are those
of the database. P and Q are durable (`later`) before anything is given, and the server is told of nothing beyond P
until every output has all before Q. So a stream that begins anew before Q brings the changes from P on again.

Invariant: all that waits here is given as the same rows, at the same place, however often the stream begins anew.

>>> kept = KeptChunks(Path("unused"))
>>> kept.taken("users", since=64)
[]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidegauge.disk import make_folder
from tidegauge.errors.base import TidegaugeError
from tidegauge.sources.database.folder import SnapshotPiece, SourceFolder
from tidegauge.sources.database.later import JoinedTable, LaterTables, RowsUnderWay
from tidegauge.sources.database.records import streamed, together
from tidegauge.sources.postgres.catalog import PublishedTable
from tidegauge.sources.postgres.chunks import KEPT, SNAPSHOT, Chunk, batch_of
from tidegauge.sources.postgres.followed import ReplicationSetup
from tidegauge.sources.postgres.partitions import KnownPartitions
from tidegauge.sources.postgres.progress import RowsProgress
from tidegauge.sources.postgres.replication import passing_slot
from tidegauge.sources.postgres.server import SnapshotRows

__all__ = ["ArrivingTables", "KeptChunks", "given_later"]

_SHAPE: Final = '[0, "", "", []]'
_MAKING: Final = 0.005
"""Seconds to wait for the slot in each step."""
_STEP: Final = 1.0
_IDLE: Final = 1.0
"""Seconds after which the log is made to grow, where it stands still: tables join at a place that is yet to come."""


class KeptChunks:
    """Chunks that wait, in a file."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._parts: Final[dict[str, list[tuple[int, int]]]] = {}

    def keep(self, chunks: Mapping[str, Sequence[Chunk]]) -> None:
        """Write chunks of streams to the file. Raises `OSError`."""
        if not chunks:
            return
        make_folder(self._path.parent)
        with self._path.open("ab") as file:
            for stream, listed in chunks.items():
                for run in together(listed):
                    start = file.tell()
                    file.write(streamed(batch_of(run)))
                    self._parts.setdefault(stream, []).append((start, file.tell() - start))

    def forget(self, stream: str) -> None:
        """Forget the chunks of a stream."""
        self._parts.pop(stream, None)

    def taken(self, stream: str, *, since: int) -> list[Chunk]:
        """Return chunks that have those of a stream, from a place on."""
        return [
            Chunk(0, 0, KEPT, _SHAPE, since, 1, file=str(self._path), start=start, size=size)
            for start, size in self._parts.pop(stream, [])
        ]


class ArrivingTables:
    """The tables that are on their way. streams: the table of each stream. Its methods do not wait."""

    def __init__(
        self, reader: ReplicationSetup, later: LaterTables, streams: Mapping[str, PublishedTable], floor: int
    ) -> None:
        self.floor = floor
        """The place from which on the server is to keep its log."""
        self.failure: BaseException | None = None
        self.streams: Final = streams
        self._reader: Final = reader
        self._later: Final = later
        self._point = 0
        self._files = ""
        self._reading: SnapshotRows | None = None
        self._whole = self._stopped = False
        self._idle_since = reader.server.clock.monotonic()
        later.tidy()
        self._maker: Final = reader.server.sender(passing_slot(reader.slot))
        self._maker.make(kind="TEMPORARY")

    def go_on(self, reached: int) -> bool:
        """Go on a little; return whether the tables may join once the stream is beyond `reached`.

        Raises what keeps their rows from being read.
        """
        if self.failure is not None:
            raise self.failure
        if not self._point and (made := self._maker.made(_MAKING)) is not None:
            self._point, name = made
            self.floor = self._point
            self._begin(name)
        now = self._reader.server.clock.monotonic()
        if self._whole and now - self._idle_since > _IDLE:
            self._idle_since = now
            self._reader.server.nudge()
        return self._whole and reached >= self._point

    def joined(self, place: int) -> list[JoinedTable]:
        """Return the tables as they join at a place."""
        reading, at = self._reading, self._reader.server.clock.micros()
        assert reading is not None  # noqa: S101 - they are whole
        return [
            JoinedTable(
                str(table), stream, table.oid, self._point, place, at, reading.shapes[stream],
                tuple(reading.pieces[stream]), self._files,
            )
            for stream, table in self.streams.items()
        ]  # fmt: skip

    @property
    def awaits(self) -> TidegaugeError | None:
        """What keeps their rows from being read, as far as that is known."""
        return self._maker.awaits()

    @property
    def partitions(self) -> Mapping[str, KnownPartitions | None]:
        """The partitions of the tables as they were read."""
        return {} if self._reading is None else self._reading.partitions

    def close(self) -> None:
        """Give it up. Does not wait; a thread that waits for a lock is told so."""
        self._stopped = True
        if self._reading is not None and not self._whole:
            self._reader.server.beside("later rows end", self._reading.stop)
        with suppress(Exception):
            self._maker.close()

    def _begin(self, name: str) -> None:
        reader = self._reader
        rows = self._going_on or self._later.begin(self._point)
        self._files, folder = rows.files, self._folder(rows)
        task = reader.first_rows(self.streams, name, folder=folder, since=rows.since, at=self._point, streaming=True)
        self._reading = reading = reader.server.reading(task)
        reader.server.beside("later rows", lambda: self._read(reading))

    def _folder(self, rows: RowsUnderWay) -> SourceFolder:
        return replace(self._later.folder, path=str(self._later.files / rows.files))

    @property
    def _going_on(self) -> RowsUnderWay | None:
        """The reading that was cut off, None where it does not go on. A log that ends before it is another one."""
        if (rows := self._later.reading) is None:
            return None
        known = RowsProgress(self._folder(rows).snapshot).found()
        return rows if known.since == rows.since and known.at < self._point else None

    def _read(self, reading: SnapshotRows) -> None:
        """Have the rows read, in a thread: taking a lock on a table may take long."""
        try:
            while not self._stopped:
                if reading.steps.go_on(_STEP):
                    self._whole = True
                    self._maker.close()
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised where the source goes on
            self.failure = error
        finally:
            with suppress(Exception):
                reading.steps.close()


def given_later(table: JoinedTable, changes: Iterable[Chunk]) -> list[pa.RecordBatch]:
    """Return what a table gives when it joins: its first rows, and the changes that were set aside."""
    first = [
        Chunk(0, 0, KEPT, _SHAPE, 0, 1, data=streamed(batch_of([_first_rows(table, piece)])))
        for piece in table.pieces
    ]
    return [
        batch_of([Chunk(table.place - 1, table.at, one.kind, one.shape, one.first, 1, data=one.data, file=one.file,
                        start=one.start, size=one.size)])
        for one in (*first, *changes)
    ]  # fmt: skip


def _first_rows(table: JoinedTable, piece: SnapshotPiece) -> Chunk:
    return Chunk(
        table.since - 1, table.at, SNAPSHOT, table.shape, piece.first, piece.count, data=piece.without.encode(),
        file=piece.file, start=piece.start, size=piece.size,
    )  # fmt: skip
