"""Runs: what a task stages of a table by key, as Parquet files of changes that are sorted by their keys.

    <table>/_staged/<job>/part-....parquet

Nothing ever names a run: a commit merges its changes into the table's files, and then it is removed. So runs lie
where readers and VACUUM do not look, and what drivers leave that died is swept (`sinks.attempt`).

Invariant: memory is bounded by what one run holds, whatever the number of rows; a run's row groups have disjoint key
ranges, in order, but for a key that two of them share.

>>> import tempfile
>>> from tidegauge.sinks.location import LocalFiles
>>> schema = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     stager = RunStager(LocalFiles(folder), Keyed(("user",)), schema, table=folder, job="0" * 32, task=7)
...     stager.write(pa.record_batch({"user": ["eve", "ada"], "_epoch": [3, 4]}))
...     [run] = stager.close()
...     pq.read_table(f"{folder}/{run.path}").column("user").to_pylist()
['ada', 'eve']
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from tidegauge.lazy import library
from tidegauge.leftout import LEFT, taken
from tidegauge.sinks.attempt import STAGED, AttemptFiles, FileContent, Waiting, fitting, stem_of
from tidegauge.sinks.columns import EPOCH, rows_schema
from tidegauge.sinks.keyed.folding import folded
from tidegauge.sinks.keyed.layout import AT, GONE, Keyed
from tidegauge.sinks.layout.layout import AS_IT_COMES, FileLayout
from tidegauge.sinks.layout.noting import MOST, NotedPartitions
from tidegauge.sinks.location import StagingFiles, writing
from tidegauge.sinks.protocol import StagedFile

__all__ = ["RUN_BYTES", "RUN_ROWS", "RunFile", "RunStager"]

RUN_ROWS: Final = 512 * 1024
RUN_BYTES: Final = 64 << 20
"""A run is written when this many rows, or this many bytes in memory, have come together."""
GROUP_ROWS: Final = 8 * 1024
"""A merge reads whole row groups of each run for its part of the keys."""

pc: Final = library("pyarrow.compute")
pq: Final = library("pyarrow.parquet")


class RunStager:
    """A `Stager` of changes. `schema` is the rows', `_epoch` included.

    least: no row of the table has an epoch before it. lying: what the table is parted by.
    """

    def __init__(
        self,
        place: StagingFiles,
        layout: Keyed,
        schema: pa.Schema,
        *,
        table: str,
        job: str,
        task: int,
        least: int = 0,
        lying: FileLayout = AS_IT_COMES,
    ) -> None:
        self._place: Final = place
        self._layout: Final = layout
        self._table: Final = table
        self._least: Final = least
        self._lying: Final = lying
        self._noted: Final = NotedPartitions(lying, table, most=MOST)
        self._columns: Final = rows_schema(schema)
        self._ordering: Final = layout.ordering(self._columns)
        self._waiting: Final = Waiting(layout.staged(self._columns))
        self._files: Final[AttemptFiles[RunFile]] = AttemptFiles(
            place, f"{STAGED}/{job}", stem=stem_of(job, task), suffix=".parquet"
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, perhaps with a column of marks (`tidegauge.leftout`).

        Raises `BatchDoesNotFit`, `MisplacedRows`, `KeyMissing`, `PartitionValueUnfit`, `TooManyPartitions`.
        """
        if self._files.closed:
            raise ValueError("the stager is closed")
        whole, marks = taken(batch)
        rows = fitting(whole, self._columns)
        if marks is not None:
            rows = rows.append_column(LEFT, marks)
        start = 0
        while start < rows.num_rows:
            piece = rows.slice(start, max(1, RUN_ROWS - self._waiting.rows))
            start += piece.num_rows
            changes = self._layout.changes(piece, table=self._table, least=self._least)
            self._note(changes)
            self._waiting.add(changes)
            if self._waiting.rows >= RUN_ROWS or self._waiting.bytes >= RUN_BYTES:
                self._flush()

    def close(self) -> list[StagedFile]:
        """Finish, make the runs durable, and return them; none when no change was written."""
        if self._waiting.rows:
            self._flush()
        return self._files.close()

    def abort(self) -> None:
        """Remove the written runs."""
        self._waiting.take()
        self._files.abort()

    def _note(self, changes: pa.RecordBatch) -> None:
        """Look at the partitions that rows are put into. A row that goes away lies in one already, or in none."""
        if self._lying.partition:
            there = changes.filter(pc.invert(changes.column(GONE)))
            self._noted.note(self._lying.parted(there.drop_columns([AT, GONE, LEFT])), epochs=there.column(AT))

    def _flush(self) -> None:
        """Write the waiting changes as one run."""
        changes = folded(self._waiting.take(), self._ordering)
        with writing(self._place.root):
            self._files.begin(lambda out: RunFile(out, changes, self._layout.key))
        self._files.finish()


class RunFile:
    """One run being written."""

    def __init__(self, out: Any, changes: pa.Table, key: Sequence[str]) -> None:
        self._out = out
        self._changes = changes
        how: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": False}
        told = [*key, *({LEFT} & {*changes.schema.names})]
        self._writer: Any = pq.ParquetWriter(out, changes.schema, write_statistics=told, **how)

    def finish(self) -> FileContent:
        """Write the run, and say what it holds."""
        changes = self._changes
        self._writer.write_table(changes, row_group_size=GROUP_ROWS)
        self._writer.close()
        self._out.close()
        ends = pc.min_max(changes.column(EPOCH)).as_py()
        return FileContent(changes.num_rows, ends["min"], ends["max"])

    def drop(self) -> None:
        """Let go of it."""
        with suppress(OSError):
            self._writer.close()
        with suppress(OSError):
            self._out.close()
