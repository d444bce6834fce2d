"""Staging: one task writes its rows of one output into Parquet files that no reader of the table sees yet.

Invariant: memory is bounded by one row group, whatever the number of rows; every file that `close` returns is
durable; no two stagers ever write one file, not even two attempts of one task.

>>> import tempfile
>>> from tidegauge.sinks.location import LocalFiles
>>> with tempfile.TemporaryDirectory() as folder:
...     stager = ParquetStager(LocalFiles(folder), "", pa.schema([("_epoch", pa.int64())]), job="0" * 32, task=7)
...     stager.write(pa.record_batch({"_epoch": pa.array([3, 3, 4])}))
...     [file] = stager.close()
>>> file.rows, file.first_epoch, file.last_epoch, file.path
(3, 3, 4, 'part-00000000000000000000000000000000-00007-000.parquet')
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, cast

import pyarrow as pa

from tidegauge.dictionaries import worth_a_dictionary
from tidegauge.lazy import library
from tidegauge.sinks.attempt import AttemptFiles, FileContent, Waiting, fitting, stem_of
from tidegauge.sinks.columns import EPOCH, rows_schema
from tidegauge.sinks.location import StagingFiles, writing
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.statistics import FileStatistics, footed

__all__ = [
    "FILE_BYTES",
    "GROUP_BYTES",
    "GROUP_ROWS",
    "OpenParquet",
    "ParquetStager",
]

GROUP_ROWS: Final = 128 * 1024
GROUP_BYTES: Final = 32 << 20
"""A row group is written when this many rows, or this many bytes in memory, have come together."""
FILE_BYTES: Final = 256 << 20
"""A file that has grown past this, as stored, is finished and the next one begun."""

pc: Final = library("pyarrow.compute")
pq: Final = library("pyarrow.parquet")


class ParquetStager:
    """A `Stager` into the folder `prefix` of the table's `place`. `schema` is the rows', `_epoch` included.

    statistics: whether the files' statistics are wanted; a Parquet file has its own in its footer. declared: the same
    columns as the files are to declare them, with the numbers that some readers find them by. file_bytes: how large a
    file is to be, as stored, None for `FILE_BYTES`.
    """

    def __init__(
        self,
        place: StagingFiles,
        prefix: str,
        schema: pa.Schema,
        *,
        job: str,
        task: int,
        statistics: bool = False,
        declared: pa.Schema | None = None,
        file_bytes: int | None = None,
    ) -> None:
        self._place: Final = place
        self._declared: Final = declared
        self._statistics: Final = statistics
        self._columns: Final = rows_schema(schema)
        self._waiting: Final = Waiting(self._columns)
        self._file_bytes: Final = file_bytes
        self._group_bytes: Final = GROUP_BYTES if file_bytes is None else min(GROUP_BYTES, file_bytes)
        self._files: Final[AttemptFiles[OpenParquet]] = AttemptFiles(
            place, prefix, stem=stem_of(job, task), suffix=".parquet"
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises `BatchDoesNotFit` for other columns, `MisplacedRows` for a row without an epoch."""
        if self._files.closed:
            raise ValueError("the stager is closed")
        rows = fitting(batch, self._columns)
        start = 0
        while start < rows.num_rows:
            piece = rows.slice(start, GROUP_ROWS - self._waiting.rows)
            start += piece.num_rows
            self._waiting.add(piece)
            if self._waiting.rows >= GROUP_ROWS or self._waiting.bytes >= self._group_bytes:
                self._flush()

    def close(self) -> list[StagedFile]:
        """Finish, make the files durable, and return them; none when no row was written."""
        if self._waiting.rows:
            self._flush()
        return self._files.close()

    def abort(self) -> None:
        """Remove the written files."""
        self._waiting.take()
        self._files.abort()

    def _flush(self) -> None:
        """Write the waiting rows as one row group."""
        group = self._waiting.take()
        with writing(self._place.root):
            file = self._files.open or self._files.begin(
                lambda out: OpenParquet(out, group, statistics=self._statistics, declared=self._declared)
            )
            file.add(group)
        if file.size >= (FILE_BYTES if self._file_bytes is None else self._file_bytes):
            self._files.finish()


class OpenParquet:
    """One Parquet file being written, with what a commit must know of it."""

    def __init__(self, out: Any, first: pa.Table, *, statistics: bool, declared: pa.Schema | None = None) -> None:
        self._out = out
        # Staging is a small part of a task; files of half the size are worth a quarter of its speed.
        self._writer: Any = pq.ParquetWriter(
            self._out,
            first.schema if declared is None else declared,
            compression="zstd",
            compression_level=1,
            use_dictionary=worth_a_dictionary(first),
            write_statistics=cast("Any", footed(first.schema)),
        )
        self._statistics = FileStatistics(first.schema) if statistics else None
        self._rows = 0
        self._first = self._last = first.column(EPOCH)[0].as_py()

    @property
    def size(self) -> int:
        """How many bytes it has so far."""
        return int(self._out.tell())

    def add(self, group: pa.Table) -> None:
        """Write rows as a row group."""
        self._writer.write_table(group, row_group_size=GROUP_ROWS)
        ends = pc.min_max(group.column(EPOCH)).as_py()
        self._first = min(self._first, ends["min"])
        self._last = max(self._last, ends["max"])
        self._rows += group.num_rows
        if self._statistics is not None:
            self._statistics.add(group)

    def finish(self) -> FileContent:
        """Write the rest, close it, and say what it holds."""
        self._writer.close()
        self._out.close()
        text = "" if self._statistics is None else self._statistics.text()
        return FileContent(self._rows, self._first, self._last, text)

    def drop(self) -> None:
        """Let go of it."""
        with suppress(OSError):
            self._writer.close()
        with suppress(OSError):
            self._out.close()
