"""Staging rows of a layout: a task gathers rows, sorts them, and writes each partition's into files of its own.

    gather    rows come together, up to a bound of bytes, whatever their partitions
    split     they are sorted by partition, and within it as the layout says
    write     each partition's rows go to a file in its folder; a file that is large enough is finished

Invariants. Memory is bounded by the gathered rows, whatever the number of rows and of partitions. At most `OPEN`
files are open at once: those of the partitions that were written last, which go on there with the next rows, as they
do for days and hours. Where rows are sorted, a file has those that were gathered together, so all of its rows are in
order.
How many partitions a task writes in an epoch is bounded (`layout.noting`).

>>> import tempfile
>>> from tidegauge.sinks.layout.transforms import bucket
>>> from tidegauge.sinks.location import LocalFiles
>>> layout, schema = FileLayout.of("DeltaSink", "country", "n", None), [("n", pa.int64()), ("country", pa.string())]
>>> with tempfile.TemporaryDirectory() as folder:
...     stager = LaidOutStager(
...         LocalFiles(folder), "", layout, pa.schema([*schema, ("_epoch", pa.int64())]), job="0" * 32, task=7
...     )
...     stager.write(pa.record_batch({"n": [2, 9, 1], "country": ["DE", "FR", "DE"], "_epoch": [0, 0, 0]}))
...     for file in stager.close():
...         print(file.path.partition("/")[0], file.rows, file.partition)
country=DE 2 (('country', 'DE'),)
country=FR 1 (('country', 'FR'),)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from tidegauge.sinks import staging
from tidegauge.sinks.attempt import AttemptFiles, Waiting, fitting, stem_of
from tidegauge.sinks.columns import EPOCH, rows_schema
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.noting import MOST, NotedPartitions
from tidegauge.sinks.layout.splitting import split
from tidegauge.sinks.layout.values import PartitionValues, folders
from tidegauge.sinks.location import StagingFiles, writing
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.staging import OpenParquet

__all__ = ["GATHERED_BYTES", "GATHERED_ROWS", "OPEN", "LaidOutStager"]

GATHERED_BYTES: Final = 64 << 20
GATHERED_ROWS: Final = 1 << 20
"""Rows are sorted and written when this many bytes of them, in memory, or this many rows have come together."""
OPEN: Final = 16
"""How many files a task has open at most."""


class LaidOutStager:
    """A `Stager` into the partitions' folders, below `prefix`, of the table's `place`.

    schema: the rows', `_epoch` included; those of a table, with its partition columns, are taken too. statistics and
    declared: as for `ParquetStager`. most: how many partitions to write in an epoch; None for as many as there are.
    """

    def __init__(
        self,
        place: StagingFiles,
        prefix: str,
        layout: FileLayout,
        schema: pa.Schema,
        *,
        job: str,
        task: int,
        statistics: bool = False,
        declared: pa.Schema | None = None,
        most: int | None = MOST,
    ) -> None:
        self._place: Final = place
        self._prefix: Final = prefix
        self._layout: Final = layout
        self._columns: Final = rows_schema(schema)
        self._table: Final = layout.gathered(self._columns)
        self._stored: Final = layout.stored(self._table).names
        self._declared: Final = declared
        self._stem: Final = stem_of(job, task)
        self._statistics: Final = statistics
        self._noted: Final = NotedPartitions(layout, place.root, most=most)
        self._file_bytes: Final = staging.FILE_BYTES if layout.file_bytes is None else layout.file_bytes
        self._group_bytes: Final = min(staging.GROUP_BYTES, self._file_bytes)
        self._waiting: Final = Waiting(self._table)
        self._files: Final[dict[PartitionValues, AttemptFiles[OpenParquet]]] = {}
        self._last: Final[dict[PartitionValues, None]] = {}
        """The partitions with an open file, the one that was written last at the end."""
        self._closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises `BatchDoesNotFit`, `MisplacedRows`, `PartitionValueUnfit`, `TooManyPartitions`."""
        if self._closed:
            raise ValueError("the stager is closed")
        rows = self._layout.parted(fitting(batch, self._columns))
        start = 0
        while start < rows.num_rows:
            piece = rows.slice(start, staging.GROUP_ROWS)
            start += piece.num_rows
            self._noted.note(piece, epochs=piece.column(EPOCH))
            self._waiting.add(piece)
            if self._waiting.rows >= GATHERED_ROWS or self._waiting.bytes >= GATHERED_BYTES:
                self._flush()

    def close(self) -> list[StagedFile]:
        """Finish, make the files durable, and return them; none when no row was written."""
        if self._waiting.rows:
            self._flush()
        self._closed = True
        return [file for files in self._files.values() for file in files.close()]

    def abort(self) -> None:
        """Remove the written files."""
        self._waiting.take()
        self._closed = True
        for values, files in self._files.items():
            files.abort()
            # Below the table itself, and in a folder of all partitions, another task may be about to write.
            if values and self._prefix and not self._layout.hidden:
                self._place.prune(self._folder(values))

    def _flush(self) -> None:
        """Write the gathered rows."""
        for values, rows in split(self._waiting.take(), self._layout.names, self._layout.sort):
            self._put(values, rows.select(self._stored))

    def _put(self, values: PartitionValues, rows: pa.Table) -> None:
        """Write the rows of one partition, as row groups."""
        files = self._files.get(values)
        if files is None:
            # Several partitions in one folder would have to look for names that are free.
            stem = f"{self._stem}-{len(self._files):05d}" if self._layout.hidden and values else self._stem
            made: AttemptFiles[OpenParquet] = AttemptFiles(
                self._place, self._folder(values), stem=stem, suffix=".parquet", partition=values
            )
            files = self._files[values] = made
        step = max(1, min(staging.GROUP_ROWS, rows.num_rows * self._group_bytes // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, step):
            group = rows.slice(start, step)
            with writing(self._place.root):
                file = files.open or files.begin(self._opening(group))
                file.add(group)
            if file.size >= self._file_bytes:
                files.finish()
        if self._layout.sort:
            files.finish()
        self._last.pop(values, None)
        if files.open is not None:
            self._last[values] = None
        while len(self._last) > OPEN:
            oldest = next(iter(self._last))
            del self._last[oldest]
            self._files[oldest].finish()

    def _opening(self, first: pa.Table) -> Callable[[Any], OpenParquet]:
        return lambda out: OpenParquet(out, first, statistics=self._statistics, declared=self._declared)

    def _folder(self, values: PartitionValues) -> str:
        if self._layout.hidden:
            return self._prefix
        return "/".join(part for part in (self._prefix, folders(values)) if part)
