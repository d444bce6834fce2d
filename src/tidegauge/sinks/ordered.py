"""Rows staged for a place that takes epochs in order: what a task leaves in a folder for the driver, who hands it on.

    <folder>/_staged/<job>/part-<job>-<task>-<number>.arrow

Invariant: within a file the epochs do not decrease, and no record batch has rows of two. So the driver can merge any
number of files in the order of epochs, holding one batch of each.

Tasks read the ranges of a job in no particular order. Rows that have come together in memory are sorted before they
are written (stably); if an epoch comes that is before the last one written, the file ends and the next one begins.

>>> import tempfile
>>> from tidegauge.sinks.location import LocalFiles
>>> columns = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     stager = OrderedStager(LocalFiles(folder), columns, job="0" * 32, task=7)
...     stager.write(pa.record_batch({"user": ["ada", "bob"], "_epoch": [4, 3]}))
...     [file] = stager.close()
...     [(epoch, batch["user"].to_pylist()) for epoch, batch in merged(folder, [file])]
[(3, ['bob']), (4, ['ada'])]
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute

from tidegauge.sinks.attempt import STAGED, AttemptFiles, FileContent, Waiting, fitting, stem_of
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.location import StagingFiles, path_inside, writing
from tidegauge.sinks.protocol import StagedFile

__all__ = ["GROUP_ROWS", "OrderedStager", "merged", "pieces"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see

GROUP_ROWS: Final = 128 * 1024
GROUP_BYTES: Final = 32 << 20
"""This many rows, or this many bytes, come together in memory before they are sorted and written."""
BATCH_ROWS: Final = 8 * 1024
BATCH_BYTES: Final = 4 << 20
"""How large a record batch is at most, but for a single row: the driver holds one of every file."""


class OrderedStager:
    """A `Stager` into the jobs' folders of a place. `schema` is that of the staged rows, with `_epoch`."""

    def __init__(self, place: StagingFiles, schema: pa.Schema, *, job: str, task: int) -> None:
        self._place: Final = place
        self._columns: Final = schema
        self._waiting: Final = Waiting(self._columns)
        self._files: Final[AttemptFiles[_ArrowFile]] = AttemptFiles(
            place, f"{STAGED}/{job}", stem=stem_of(job, task), suffix=".arrow"
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises `BatchDoesNotFit`, `MisplacedRows`."""
        if self._files.closed:
            raise ValueError("the stager is closed")
        for piece in pieces(fitting(batch, self._columns), GROUP_ROWS, GROUP_BYTES):
            self.add(piece)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows that have this form."""
        self._waiting.add(rows)
        if self._waiting.rows >= GROUP_ROWS or self._waiting.bytes >= GROUP_BYTES:
            self._flush()

    @property
    def closed(self) -> bool:
        """Whether nothing more can be added."""
        return self._files.closed

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
        """Write the waiting rows, sorted by epoch, as batches of one epoch each."""
        table = self._waiting.take()
        epochs = table.column(EPOCH).combine_chunks()
        if pc.any(pc.less(epochs.slice(1), epochs.slice(0, len(epochs) - 1))).as_py():
            table = table.take(pc.array_sort_indices(epochs))
        [whole] = table.combine_chunks().to_batches()
        with writing(self._place.root):
            if self._files.open is not None and whole.column(EPOCH)[0].as_py() < self._files.open.last:
                self._files.finish()
            file = self._files.open or self._files.begin(lambda out: _ArrowFile(out, self._columns))
            for batch in _by_epoch(whole):
                for piece in pieces(batch, BATCH_ROWS, BATCH_BYTES):
                    file.add(piece)


class _ArrowFile:
    """One file being written, with what a commit must know of it."""

    def __init__(self, out: Any, schema: pa.Schema) -> None:
        self._out = out
        self._writer: Any = pa.ipc.new_file(self._out, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        self._rows = 0
        self._first: int | None = None
        self.last = -1

    def add(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self.last = batch.column(EPOCH)[0].as_py()
        self._first = self.last if self._first is None else self._first
        self._rows += batch.num_rows

    def finish(self) -> FileContent:
        self._writer.close()
        self._out.close()
        return FileContent(self._rows, self.last if self._first is None else self._first, self.last)

    def drop(self) -> None:
        with suppress(OSError):
            self._writer.close()
        with suppress(OSError):
            self._out.close()


def merged(
    folder: str, files: Sequence[StagedFile], columns: Sequence[str] | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Return the rows of files in the order of epochs, each batch of one; of one epoch, file after file.

    A file is opened when its first epoch comes. columns: which ones to read, by default all.
    """
    heap = [(file.first_epoch, index) for index, file in enumerate(files)]
    heapq.heapify(heap)
    readers: dict[int, Iterator[pa.RecordBatch]] = {}
    ahead: dict[int, pa.RecordBatch] = {}
    while heap:
        epoch, index = heapq.heappop(heap)
        if index not in readers:
            readers[index] = _batches(path_inside(folder, files[index].path), columns)
            ahead[index] = next(readers[index])
        yield epoch, ahead.pop(index)
        following = next(readers[index], None)
        if following is None:
            del readers[index]
        else:
            ahead[index] = following
            heapq.heappush(heap, (following.column(EPOCH)[0].as_py(), index))


def _batches(path: os.PathLike[str], columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as raw:
        with pa.ipc.open_file(raw) as reader:
            names = reader.schema.names
            count = reader.num_record_batches
        included = None if columns is None else [names.index(column) for column in columns]
        with pa.ipc.open_file(raw, options=pa.ipc.IpcReadOptions(included_fields=included)) as reader:
            for number in range(count):
                yield reader.get_batch(number)


def _by_epoch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Return the runs of rows of one epoch of a batch whose epochs do not decrease."""
    encoded = pc.run_end_encode(batch.column(EPOCH))
    start = 0
    for end in encoded.run_ends.to_pylist():
        yield batch.slice(start, end - start)
        start = end


def pieces(batch: pa.RecordBatch, rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Return a batch in pieces of at most this number of rows, and on average at most this number of bytes."""
    step = max(1, min(rows, batch.num_rows * size // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
