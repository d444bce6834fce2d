"""The first rows: all tables as they were at one position of the log.

One transaction reads all tables (`firstrows`). What committed later comes by the stream: there is no seam.

The rows go to files, as the texts that the server writes. A step works for a part of a second.

Invariant: they count only when all of them are on the disk. Until then nothing is bound, so an attempt that was cut
off leaves nothing behind.

>>> columns = pa.schema([("id", pa.binary()), ("who", pa.binary())])
>>> rows_of(_encoded([(b"1", b"ada"), (b"2", None)], columns)).to_pylist()
[{'id': b'1', 'who': b'ada'}, {'id': b'2', 'who': None}]
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidegauge.disk import make_folder, synchronise
from tidegauge.errors.mysqlsource import FirstRowsUnwritten
from tidegauge.sources.database.folder import SnapshotPiece, SourceFolder
from tidegauge.sources.database.records import streamed
from tidegauge.sources.database.steps import Steps
from tidegauge.sources.mysql.catalog import FollowedTable
from tidegauge.sources.mysql.server import BinlogServer
from tidegauge.sources.mysql.servers import ServerKind

__all__ = ["FirstRowsReading", "rows_of"]

_PIECE: Final = 4 << 20
"""Bytes from which on a piece is over: what a task decodes at once."""


def rows_of(data: bytes) -> pa.RecordBatch:
    """Return the texts of rows that are in a piece."""
    with pa.ipc.open_stream(data) as piece:
        return piece.read_all().combine_chunks().to_batches()[0]


class FirstRowsReading:
    """A snapshot that is being read. streams: of each stream its database, its table and its columns. opened: is
    called with the position, before any row is read."""

    def __init__(
        self,
        server: BinlogServer,
        kind: ServerKind,
        folder: SourceFolder,
        streams: Mapping[str, tuple[str, str, pa.Schema]],
        opened: Callable[[str], object],
    ) -> None:
        self.pieces: dict[str, tuple[SnapshotPiece, ...]] = {}
        self.gtids = ""
        """The position of the snapshot, as the server writes it."""
        self.tables: dict[str, FollowedTable] = {}
        """The tables of the streams as they were at this position, where the log names no columns."""
        self._server: Final = server
        self._kind: Final = kind
        self._folder: Final = folder
        self._opened: Final = opened
        self.steps: Final = Steps(self._read(streams), server.clock.monotonic)

    def _read(self, streams: Mapping[str, tuple[str, str, pa.Schema]]) -> Generator[object, None, None]:
        self._folder.clear_snapshot()
        names = [(database, table) for database, table, _ in streams.values()]
        with self._server.first_rows(self._kind, names) as transaction, self._written():
            make_folder(self._folder.snapshot)
            self.gtids = transaction.gtids
            self._opened(self.gtids)
            self.tables = dict(zip(streams, transaction.tables, strict=False))  # there are none where it does
            for number, (stream, (database, table, columns)) in enumerate(streams.items()):
                path = self._folder.snapshot / f"{number}-{uuid.uuid4().hex[:12]}.arrows"  # nobody else's, of before
                with closing(transaction.rows(database, table, columns)) as given:
                    self.pieces[stream] = yield from self._copy(given, columns, path)
            synchronise(self._folder.snapshot)

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Tell what the disk refuses from what the connection does."""
        try:
            yield
        except OSError as error:
            shown, path = self._server.shown, self._folder.path
            raise FirstRowsUnwritten(source=shown, path=path, detail=str(error)) from error

    def _copy(
        self, given: Iterable[Sequence[tuple[bytes | None, ...]]], columns: pa.Schema, path: Path
    ) -> Generator[object, None, tuple[SnapshotPiece, ...]]:
        schema = pa.schema([(name, pa.binary()) for name in columns.names])
        pieces: list[SnapshotPiece] = []
        rows: list[tuple[bytes | None, ...]] = []
        start = size = first = 0

        with path.open("wb") as file:

            def written() -> None:
                nonlocal start, size, first, rows
                data = _encoded(rows, schema)
                file.write(data)
                pieces.append(SnapshotPiece(str(path), start, len(data), len(rows), first))
                start, first, size, rows = start + len(data), first + len(rows), 0, []

            for found in given:
                rows += found
                size += sum(len(cell or b"") for row in found for cell in row)
                if size >= _PIECE:
                    written()
                yield None
            if rows:
                written()
            file.flush()
            os.fsync(file.fileno())
        return tuple(pieces)


def _encoded(rows: list[tuple[bytes | None, ...]], schema: pa.Schema) -> bytes:
    arrays = [pa.array(column, pa.binary()) for column in zip(*rows, strict=True)]
    return streamed(pa.RecordBatch.from_arrays(arrays, schema=schema))
