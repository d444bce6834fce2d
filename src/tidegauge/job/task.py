"""One task of a job: read splits once, in epoch order, and stage their rows for every output that wants them.

Invariants. A split is read once, whatever the number of outputs. What goes wrong is data: a failure names its source
or its output and the least epoch that the task found it in, because splits are taken in the order of their epochs. A
stager that is not closed is aborted. Nothing grows with the size of a split: rows pass through batch by batch.

A split has one epoch (law 2), so `_epoch` is a constant, added after the user's functions. A function may thus return
fewer rows than it was given, or more.

>>> from tidegauge.job.report import Report
>>> report = Report()
>>> list(run([], [], [], report, job="j", task=0)), report.failures
([], [])
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.engine import (
    ReadFailed,
    RecordUnparsable,
    SinkBroke,
    SourceBroke,
    StorageFailed,
    UnknownOperation,
    WrongOperation,
)
from tidegauge.job.functions import apply, begun, channel_of, columns_of, conform, said, without_epoch
from tidegauge.job.past import PastSplit
from tidegauge.job.plan import MapBatches
from tidegauge.job.report import Report
from tidegauge.operations import OP, said_of, unknown
from tidegauge.reclock.columns import EPOCH, stamp
from tidegauge.remap.round import Failure
from tidegauge.sinks.protocol import Sink, Stager
from tidegauge.sources.protocol import BAD_RECORDS, BadRecord, Joining, RangeReader, Split

__all__ = ["Feed", "OutputWriter", "TaskRead", "Write", "by_epoch", "decoded", "run"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


_RAW_SHOWN: Final = 200
_BAD_ROWS: Final = 4096
_BAD_BYTES: Final = 4 << 20


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
    def splits(self) -> Iterable[Split]:
        """The splits in the order of their epochs. They are gone through once."""
        ...


@dataclass(frozen=True, slots=True)
class Write:
    """An output's part of a task:

    rows of `rows` go through `functions` and are staged as `schema` (with `_epoch`).
    """

    name: str
    source: str
    channel: str
    functions: tuple[MapBatches, ...]
    sink: Sink
    rows: pa.Schema
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Feed:
    """Rows that a task hands on instead of staging them, as `schema` (with `_epoch`), on behalf of `outputs`.

    prefilter: returns the rows of a batch that some output may want; without one they all go on.
    """

    source: str
    channel: str
    functions: tuple[MapBatches, ...]
    made: pa.Schema
    schema: pa.Schema
    outputs: tuple[str, ...]
    prefilter: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None


def _never() -> bool:
    return False


def run(
    reads: Sequence[TaskRead],
    writes: Sequence[Write],
    feeds: Sequence[Feed],
    report: Report,
    *,
    job: str,
    task: int,
    halted: Callable[[], bool] = _never,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Read and stage; yield `(feed, batch)` for what goes to feeds. The report is complete when the iterator ends.

    task: distinguishes the tasks of a job, and the attempts at a task. halted: asked after each batch; true ends the
    task and aborts its staged files, as an exception does.
    """
    for read in reads:
        writers = [OutputWriter(write, report, job=job, task=task) for write in writes if write.source == read.name]
        own = {index: feed for index, feed in enumerate(feeds) if feed.source == read.name}
        mine = {index: replace(feed, functions=begun(feed.functions)) for index, feed in own.items()}
        broken: set[int] = set()
        try:
            for channel, epoch, rows in decoded(read, report):
                for writer in writers:
                    if writer.plan.channel == channel:
                        writer.write(rows, epoch)
                for index, feed in mine.items():
                    if feed.channel == channel and index not in broken:
                        whole = yield from _fed(index, feed, rows, epoch, report)
                        if not whole:
                            broken.add(index)
                if halted():
                    return
            if not report.failed(read.name):
                for writer in writers:
                    writer.close()
        finally:
            for writer in writers:
                writer.abort()


def _fed(
    index: int, feed: Feed, rows: pa.RecordBatch, epoch: int, report: Report
) -> Generator[tuple[int, pa.RecordBatch], None, bool]:
    """Yield one batch as its feed has it, with the feed's number. Return whether no function failed."""
    try:
        for batch in apply(feed.functions, rows, feed.made, output=feed.outputs[0], epoch=epoch):
            if batch.num_rows:
                stamped = conform(stamp(batch, epoch), feed.schema)
                kept = stamped if feed.prefilter is None else feed.prefilter(stamped)
                if kept.num_rows:
                    yield index, kept
    except TidegaugeError as error:
        report.failures += [Failure(feed.source, output, epoch, error) for output in feed.outputs]
        return False
    return True


def decoded(read: TaskRead, report: Report) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Yield the rows of all splits with their channels; where bad records are collected those too, in epoch order.

    A failure ends it: what comes after the first epoch that cannot be read can never be committed.
    """
    report.records.setdefault(read.name, 0)
    report.bytes_read.setdefault(read.name, 0)
    for split in _joined(read):
        bad, channel = _BadRecords(read, split), channel_of(split)
        mixed = isinstance(split, PastSplit) or _parts(split) is not None
        columns = columns_of(read.schema, channel)
        operating = OP in columns.names
        try:
            for batch in read.source.read(split, bad.add):
                report.records[read.name] += batch.num_rows
                if operating:
                    _check_operations(batch, read.name, split)
                for epoch, rows in by_epoch(batch) if mixed else [(split.epoch, batch)]:
                    yield channel, epoch, conform(rows, columns)
                if bad.many:
                    yield "errors", split.epoch, bad.take()
            bad.check()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a source lets through stops that source, not the engine
            report.failures.append(_failure(read, *_blamed(read, split, error)))
        else:
            report.records[read.name] += bad.count
            report.bytes_read[read.name] += split.weight
            if bad.rows:
                yield "errors", split.epoch, bad.take()
            continue
        return


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
        if record.withdraws and not self.read.collect:
            return
        self.count += 1
        if self.read.collect:
            self.rows.append(record)
            self.size += len(record.raw) + len(record.key or b"")
            return
        raw = record.raw[:_RAW_SHOWN]
        kind = UnknownOperation if record.code == UnknownOperation.code else RecordUnparsable
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
    """Yield the rows of each epoch, without the column `_epoch`. One epoch, the usual case, costs no copy.

    >>> mixed = pa.record_batch({"n": [1, 2, 3], "_epoch": [5, 4, 5]})
    >>> [(epoch, rows["n"].to_pylist()) for epoch, rows in by_epoch(mixed)]
    [(4, [2]), (5, [1, 3])]
    """
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


@dataclass(slots=True)
class OutputWriter:
    """Stages one output's rows in one task. The first failure goes to the report and ends it; the others go on."""

    plan: Write
    report: Report
    job: str = field(kw_only=True)
    task: int = field(kw_only=True)
    _columns: pa.Schema = field(init=False)
    _functions: tuple[MapBatches, ...] = field(init=False)
    _stager: Stager | None = field(default=None, init=False)
    _first_epoch: int = field(default=0, init=False)
    _over: bool = field(default=False, init=False)
    _operating: bool = field(init=False)

    def __post_init__(self) -> None:
        self._columns = without_epoch(self.plan.schema)
        self._functions = begun(self.plan.functions)
        self._operating = OP in self._columns.names

    def write(self, rows: pa.RecordBatch, epoch: int) -> None:
        """Add rows (without `_epoch`) of one epoch."""
        if self._over or rows.num_rows == 0:
            return
        plan = self.plan
        given = plan.rows if plan.functions else self._columns
        try:
            for batch in apply(self._functions, conform(rows, given), self._columns, output=plan.name, epoch=epoch):
                if self._operating and (wrong := unknown(batch[OP])) is not None:
                    found = said_of(batch[OP].filter(wrong)[0].as_py())
                    raise WrongOperation(output=plan.name, epoch=epoch, found=found)
                if batch.num_rows:
                    self._stage(stamp(batch, epoch), epoch)
        except TidegaugeError as error:
            self._fail(epoch, error)

    def write_mixed(self, batch: pa.RecordBatch) -> None:
        """Add rows that say in `_epoch` which epoch they are of."""
        for epoch, rows in by_epoch(batch):
            self.write(rows, epoch)

    def close(self) -> None:
        """Make the staged files durable and put them into the report."""
        if self._over or self._stager is None:
            return
        stager = self._stager
        files = self._guarded(stager.close, self._first_epoch)
        if files is not None:
            self._over = True
            self.report.staged.setdefault(self.plan.name, []).extend(files)

    def abort(self) -> None:
        """Remove the written files, unless closed."""
        if not self._over:
            self._over = True
            if self._stager is not None:
                with contextlib.suppress(Exception):  # litter is harmless, and the first error is the one to tell
                    self._stager.abort()

    def _stage(self, batch: pa.RecordBatch, epoch: int) -> None:
        if self._over:
            return
        if self._stager is None:
            stage = self.plan.sink.stage
            self._first_epoch = epoch
            self._stager = self._guarded(lambda: stage(self.plan.schema, job=self.job, task=self.task), epoch)
        stager = self._stager
        if stager is not None:
            self._first_epoch = min(self._first_epoch, epoch)
            self._guarded(lambda: stager.write(batch), epoch)

    def _guarded(self, effect: Callable[[], Any], epoch: int) -> Any:
        """Return what a storage effect returns; when it raises, fail the output and return None."""
        try:
            return effect()
        except MemoryError:
            raise
        except TidegaugeError as error:
            self._fail(epoch, error)
        except Exception as error:  # noqa: BLE001 - whatever a sink lets through stops that output, not the engine
            self._fail(epoch, self._failed(error))
        return None

    def _failed(self, error: Exception) -> StorageFailed | SinkBroke:
        """Return what an exception of the sink means: trouble of the storage, or of the sink itself."""
        if not isinstance(error, OSError):
            return SinkBroke(output=self.plan.name, detail=said(error))
        path = error.filename or self.plan.sink.identity
        return StorageFailed(output=self.plan.name, path=str(path), detail=said(error))

    def _fail(self, epoch: int, error: TidegaugeError) -> None:
        self.report.failures.append(Failure(self.plan.source, self.plan.name, epoch, error))
        self.abort()
