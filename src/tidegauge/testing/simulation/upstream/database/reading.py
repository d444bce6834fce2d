"""The reading of first rows at a simulated server, by the steps and into the files of a real one.

Invariant: rows and partitions are those of the place of the snapshot, whatever came or went since.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegauge.disk import make_folder
from tidegauge.sources.database.folder import SnapshotPiece
from tidegauge.sources.postgres.partitions import KnownPartitions
from tidegauge.sources.postgres.progress import RowsProgress
from tidegauge.sources.postgres.ranges import PageRange
from tidegauge.sources.postgres.snapshot import SnapshotTask
from tidegauge.sources.postgres.wire import TableShape
from tidegauge.testing.simulation.upstream.database.tables import DatabaseTable
from tidegauge.testing.simulation.upstream.database.texts import line_of

if TYPE_CHECKING:
    from tidegauge.testing.simulation.upstream.database.sender import SimulatedServer

__all__ = ["SimulatedReading"]

_PAUSE: Final = 0.02


class SimulatedReading:
    """First rows that are being read: each table whole, as it was at the place of the snapshot."""

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
        for number, stream in enumerate(task.streams):
            self._server.meet("copy rows")
            self._server.answer(self._line)
            table = replace(self._server.log.database.tables[stream], columns=task.streams[stream][1])
            plan, pages = progress.plan(stream, "simulated", [PageRange(0, None)]), PageRange(0, None)
            self.pieces[stream] = self._read(table, Path(task.folder.snapshot, f"{number}-{plan.name}.csv"))
            progress.read(plan, pages, self.pieces[stream])
            keys = table.columns.names if table.whole else [table.key]
            self.shapes[stream] = TableShape(
                table.number, *table.place, tuple(table.columns.names), tuple(keys)
            ).encoded()
            parted = self._server.log.parted.get(stream)
            self.partitions[".".join(table.place)] = None if parted is None else parted.known_at(task.at)
            self._server.meet("rows are copied")
            yield

    def _read(self, table: DatabaseTable, path: Path) -> tuple[SnapshotPiece, ...]:
        """Write the rows of a table to a file, in two pieces where there are enough."""
        lines = [line_of(row, table) for row in self._server.log.database.rows_at(table.stream, self._task.at)]
        make_folder(path.parent)
        path.write_bytes(b"".join(lines))
        found: list[SnapshotPiece] = []
        start = first = 0
        for some in (lines[: len(lines) // 2], lines[len(lines) // 2 :]):
            if some:
                size = sum(map(len, some))
                found.append(SnapshotPiece(str(path), start, size, len(some), first))
                start, first = start + size, first + len(some)
        return tuple(found)
