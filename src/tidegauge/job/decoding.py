"""What a task reads of one source: the rows of its splits, each batch of one epoch, and its bad records.

A split has one epoch (law 2), so most batches are passed on unchanged. Those of a table's past and of joined splits
have several epochs mixed; `by_epoch` takes them apart.

Invariants. What goes wrong is data: the first split that cannot be read ends the source, and the failure names the
epoch of that split; where the error is one of a stream alone, it ends that stream's channel.
Bad records are rows of the channel `errors` where they are collected; otherwise the first one is that failure. A row
that leaves out a value goes on with its mark, or is a bad record (`spared`).
Nothing grows with the size of a split.

>>> mixed = pa.record_batch({"n": [1, 2, 3], "_epoch": [5, 4, 5]})
>>> [(epoch, rows["n"].to_pylist()) for epoch, rows in by_epoch(mixed)]
[(4, [2]), (5, [1, 3])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute

from tidegauge.errors.base import Definite, TidegaugeError
from tidegauge.errors.engine import (
    ReadFailed,
    RecordUnparsable,
    SourceBroke,
    StreamRecordUnparsable,
    UnknownOperation,
)
from tidegauge.job.functions import channel_of, columns_of, conform, said
from tidegauge.job.past import PastSplit
from tidegauge.job.report import Report
from tidegauge.leftout import LEFT, taken
from tidegauge.operations import OP, said_of, unknown
from tidegauge.reclock.columns import EPOCH
from tidegauge.remap.round import Failure
from tidegauge.sources.abilities import Joining
from tidegauge.sources.protocol import BAD_RECORDS, BadRecord, RangeReader, Split

__all__ = ["Stop", "TaskRead", "by_epoch", "decoded"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see

_RAW_SHOWN: Final = 200
_BAD_ROWS: Final = 4096
_BAD_BYTES: Final = 4 << 20

Stop: TypeAlias = "Callable[[str, int, Definite], object]"
"""Is told of a channel that ends at an epoch, and why."""


class TaskRead(Protocol):
    """What a task reads of one source. `schema` is the source's; see `SourceRead`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> RangeReader: ...  # noqa: D102
    @property
    def schema(self) -> pa.Schema: ...  # noqa: D102
    @property
    def collect(self) -> bool: ...  # noqa: D102
    @property
    def whole(self) -> bool: ...  # noqa: D102
    @property
    def lacking(self) -> bool: ...  # noqa: D102

    @property
    def splits(self) -> Iterable[Split]:
        """The splits in the order of their epochs. They are gone through once."""
        ...


def decoded(read: TaskRead, report: Report, stop: Stop | None = None) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield the rows of all splits with their channels; where bad records are collected those too, in epoch order.

    A failure ends it: what comes after the first epoch that cannot be read can never be committed. One of a stream
    alone ends that stream, where `stop` is there to be told: then its later splits are read for bad records alone.
    """
    stopped: set[str] = set()
    report.records.setdefault(read.name, 0)
    report.bytes_read.setdefault(read.name, 0)
    for split in _joined(read):
        bad, channel = _BadRecords(read, split), channel_of(split)
        if channel in stopped and not read.collect:
            continue
        mixed = isinstance(split, PastSplit) or _parts(split) is not None
        columns = columns_of(read.schema, channel)
        operating = OP in columns.names
        try:
            for batch in read.source.read(split, bad.add):
                report.records[read.name] += batch.num_rows
                if operating:
                    _check_operations(batch, read.name, split)
                for epoch, rows in by_epoch(batch) if mixed else [(split.epoch, batch)]:
                    yield channel, epoch, _conform(rows, columns, spared=spared(read))
                if bad.many:
                    yield "errors", split.epoch, bad.take()
            bad.check()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a source lets through stops that source, not the engine
            if stop is None or not isinstance(error, Definite) or not error.of_stream:
                report.failures.append(_failure(read, *_blamed(read, split, error)))
                return
            stopped.add(channel)
            stop(channel, split.epoch, error)
        report.records[read.name] += bad.count
        report.bytes_read[read.name] += split.weight
        if bad.rows:
            yield "errors", split.epoch, bad.take()


def spared(read: TaskRead) -> bool:
    """Whether rows that leave out a value go on. They do not where a change may have been passed over.

    Then the row before is not what the database had, and so is the value that would be taken from it.
    """
    return not (read.collect or read.lacking)


def _conform(rows: pa.RecordBatch, columns: pa.Schema, *, spared: bool) -> pa.RecordBatch:
    """Return rows with a source's columns, and perhaps their marks."""
    whole, marks = taken(rows)
    if marks is None:
        return conform(whole, columns)
    if not spared:
        return conform(whole.filter(marks.is_null()), columns)
    return conform(whole, columns).append_column(LEFT, marks)


def _joined(read: TaskRead) -> Iterable[Split]:
    """Return the splits of a read as its source has them joined.

    Bad records that are collected need their own; and where the order of rows counts, it is that of the splits.
    """
    if isinstance(read.source, Joining) and not read.collect and not read.whole:
        return read.source.joined(read.splits)
    return read.splits


def _parts(split: Split) -> Sequence[Split] | None:
    """Return the splits that a joined one is made of, None for any other."""
    return getattr(split, "parts", None)


def _blamed(read: TaskRead, split: Split, error: Exception) -> tuple[Split, Exception]:
    """Return the split that an error is about, and the error.

    Of a joined one that is the first of its parts that cannot be read alone; where all can be, the first one. Nothing
    of the task is kept by then.
    """
    parts = _parts(split)
    if parts is None:
        return split, error
    for part in parts:
        bad = _BadRecords(read, part)
        try:
            for _batch in read.source.read(part, bad.add):
                pass
            bad.check()
        except MemoryError:
            raise
        except Exception as found:  # noqa: BLE001 - as above
            return part, found
    return parts[0], error


def _failure(read: TaskRead, split: Split, error: Exception) -> Failure:
    """Return the failure of a source that an error of a split is."""
    if isinstance(error, TidegaugeError):
        return Failure(read.name, None, split.epoch, error)
    kind = ReadFailed if isinstance(error, OSError) else SourceBroke
    return Failure(read.name, None, split.epoch, kind(source=read.name, place=_place(split), detail=said(error)))


def _check_operations(batch: pa.RecordBatch, source: str, split: Split) -> None:
    """Raise `UnknownOperation` for a row without an operation: some source gives rows without checking them."""
    wrong = unknown(batch[OP])
    if wrong is not None:
        row = batch.filter(wrong).slice(0, 1).to_pylist()[0]
        raise UnknownOperation(
            source=source,
            place=_place(split),
            position=f"{split.lower} to {split.upper}",
            raw=repr(row)[:_RAW_SHOWN],
            detail=said_of(row[OP]),
        )


def _place(split: Split) -> str:
    """Return where a split is, for people: its partition, and its file where it has one."""
    path = getattr(split, "path", None) or getattr(getattr(split, "file", None), "path", None)
    return split.partition if path is None else f"{path} (partition {split.partition})"


class _BadRecords:
    """The bad records of one split: kept as rows for `stream.errors`, or the first one an error."""

    def __init__(self, read: TaskRead, split: Split) -> None:
        self.read = read
        self.split = split
        self.rows: list[BadRecord] = []
        self.size = 0
        self.count = 0
        self.first: RecordUnparsable | None = None

    @property
    def many(self) -> bool:
        return len(self.rows) >= _BAD_ROWS or self.size >= _BAD_BYTES

    def add(self, record: BadRecord) -> None:
        if (record.withdraws and not self.read.collect) or (record.left_out and spared(self.read)):
            return
        self.count += 1
        if self.read.collect:
            self.rows.append(record)
            self.size += len(record.raw) + len(record.key or b"")
            return
        raw = record.raw[:_RAW_SHOWN]
        of_stream = getattr(self.split, "stream", "")
        kind = StreamRecordUnparsable if of_stream else RecordUnparsable
        kind = UnknownOperation if record.code == UnknownOperation.code else kind
        self.first = self.first or kind(
            source=self.read.name,
            place=_place(self.split) if record.partition == self.split.partition else record.partition,
            position=record.position,
            raw=repr(raw.decode("utf-8", "backslashreplace")) + ("..." if len(record.raw) > len(raw) else ""),
            detail=record.message.rstrip("."),
        )
        raise self.first

    def check(self) -> None:
        """Raise the first bad record also where the source went on after it."""
        if self.first is not None:
            raise self.first

    def take(self) -> pa.RecordBatch:
        taken, self.rows, self.size = self.rows, [], 0
        columns = [
            [self.read.name] * len(taken),
            [r.partition for r in taken],
            [r.position for r in taken],
            [r.raw for r in taken],
            [r.code for r in taken],
            [r.message for r in taken],
            [r.key for r in taken],
            [r.timestamp for r in taken],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, BAD_RECORDS, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=BAD_RECORDS)


def by_epoch(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each epoch, without the column `_epoch`. One epoch, the usual case, costs no copy."""
    if batch.num_rows == 0:
        return
    bounds = pc.min_max(batch[EPOCH.name])
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least != most:
        batch = batch.take(pc.sort_indices(batch[EPOCH.name]))
    epochs = batch[EPOCH.name]
    rows = batch.drop_columns([EPOCH.name])
    if least == most:
        yield least, rows
        return
    start = 0
    runs = pc.run_end_encode(epochs)
    for epoch, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield epoch, rows.slice(start, end - start)
        start = end
