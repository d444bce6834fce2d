"""What runs in Spark's Python workers: the hop that reads, the hop that writes, and the one between DataFrame steps.

The hop that reads gets the numbers of tasks, and reads the splits of these; or it gets raw records, of a source that
Spark reads by itself (`Framed`). A job with DataFrame steps is one stage, in which rows go through two Python workers
of one task:

    reading hop ──(report | feed struct, ...)──► projection in the JVM ──(report | output struct, ...)──► writing hop

Each row of the first kind has a report or one feed, the others being null. Outputs of Arrow functions alone are
staged by the reading hop, which is the only one where there are no others. Workers need this package installed.

Invariant: what a worker sends to the driver is reports, as JSON text.

Two delays of a worker are longer than a small epoch's work. A hop does something about them, and does not touch the
configuration of the session, so flows on a session of the user's are as fast as on ours.

*Acknowledgement.* Spark writes the description of a task and then its first rows to the worker's socket. TCP keeps
back the second write until the first is acknowledged (J. Nagle, RFC 896), and the kernel holds an acknowledgement for
40 ms in the hope of an answer to send it with (RFC 1122, 4.2.3.2). So a task waits 40 ms for its first row. With
`TCP_QUICKACK` (Linux) received data is acknowledged at once. It does not last, hence at the start of each hop.

*Garbage.* The daemon collects all generations after each task. With every loaded module in them that takes 25 ms of a
processor; frozen objects are not looked at.

>>> with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
...     acknowledge()
...     client.getblocking()
True
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.engine.spark.assigned import Assignment, pack, unpack
from tidegauge.engine.spark.errors import carry
from tidegauge.errors.base import TidegaugeError
from tidegauge.job.decoding import TaskRead, by_epoch
from tidegauge.job.functions import INTERNAL, apply, begun, conform
from tidegauge.job.plan import MapBatches, SourceRead
from tidegauge.job.report import Report
from tidegauge.job.scanned import scanned
from tidegauge.job.task import Feed, OutputWriter, Write, run
from tidegauge.reclock.columns import stamp
from tidegauge.remap.binding import Bound
from tidegauge.sinks.working import Work, outcome
from tidegauge.sources.protocol import RangeReader, Split

__all__ = [
    "FEED",
    "OUT",
    "REPORT",
    "TASK",
    "Hop",
    "acknowledge",
    "mapping",
    "pack_scan",
    "pack_work",
    "reading",
    "receiving",
    "scanning",
    "settle",
    "working",
    "writing",
]

Hop = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

REPORT: Final = INTERNAL + "report"
TASK: Final = INTERNAL + "task"
FEED: Final = INTERNAL + "feed"
OUT: Final = INTERNAL + "out"

_OPEN: Final = Path("/proc/self/fd")


def pack_scan(reads: list[SourceRead], bound: Bound) -> bytes:
    """Return one task of a scan for the closure that all tasks get."""
    return pack((reads, bound))


def scanning(tasks: Sequence[bytes], columns: pa.Schema) -> Hop:
    """Return the hop of a scan: for each number that it is given, the rows of that task, with these columns."""

    def hop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _entered()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                reads, bound = unpack(tasks[number])
                for read in reads:
                    yield from scanned(read, bound, columns)

    return hop


def pack_work(task: Work) -> bytes:
    """Return one task of a table's work, like `pack_scan`."""
    return pack(task)


def working(tasks: Sequence[bytes]) -> Hop:
    """Return the hop of a table's work: for each number that it is given, that number and what came of the task."""

    def hop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _entered()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = outcome(unpack(tasks[number]))
                yield pa.RecordBatch.from_pydict({TASK: [number], REPORT: [found]})
        _left()

    return hop


def reading(work: Assignment, writes: Sequence[Write], feeds: Sequence[Feed]) -> Hop:
    """Return the hop that reads: for each number that it is given, the splits of that task."""

    def hop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _entered()
        mine = work.now()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read(mine.reads(number), writes, feeds, mine.job)

    return hop


def receiving(packed: bytes, writes: Sequence[Write], feeds: Sequence[Feed], *, job: str) -> Hop:
    """Return the hop that reads what Spark has read: raw records of the one read that is packed."""

    def hop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _entered()
        [read] = unpack(packed)
        yield from _read([_Received(read, batches)], writes, feeds, job)

    return hop


def writing(writes: Sequence[tuple[str, Write]], work: Assignment) -> Hop:
    """Return the hop that writes: each output from its own struct column."""

    def hop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _entered()
        return _write(batches, writes, work.now().job)

    return hop


def mapping(step: MapBatches, given: pa.Schema, made: pa.Schema, result: pa.Schema, *, output: str) -> Hop:
    """Return the hop for an Arrow function that stands between DataFrame steps."""

    def hop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _entered()
        functions = begun([step])
        for batch in batches:
            for epoch, rows in by_epoch(pa.RecordBatch.from_struct_array(batch.column(0))):
                try:
                    for one in apply(functions, conform(rows, given), made, output=output, epoch=epoch):
                        yield conform(stamp(one, epoch), result)
                except TidegaugeError as error:
                    raise carry(error) from error

    return hop


def _entered() -> None:
    """Acknowledge at the start of a hop, unless it runs in a process of the user's."""
    if _in_worker():
        acknowledge()


def _left() -> None:
    """Settle at its end, likewise."""
    if _in_worker():
        settle()


def _in_worker() -> bool:
    """Whether this process is a Python worker of Spark's. Sail inside a driver runs hops in that process."""
    from pyspark import TaskContext

    return TaskContext.get() is not None


def _attempt() -> int:
    """Return a number that no other task, and no other attempt at this one, has in this Spark application."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.taskAttemptId()) if context is not None else 0


@dataclass(frozen=True, slots=True)
class _Received:
    """A read whose raw records come from Spark."""

    read: SourceRead
    batches: Iterator[pa.RecordBatch]

    @property
    def name(self) -> str:
        return self.read.name

    @property
    def source(self) -> RangeReader:
        return self.read.source

    @property
    def schema(self) -> pa.Schema:
        return self.read.schema

    @property
    def collect(self) -> bool:
        return self.read.collect

    @property
    def whole(self) -> bool:
        return self.read.whole

    @property
    def lacking(self) -> bool:
        return self.read.lacking

    @property
    def splits(self) -> Iterator[Split]:
        """What comes, as pieces of the read's splits."""
        source: Any = self.read.source
        pieces: Iterator[Split] = source.received(self.batches, self.read.splits)
        return pieces


def _read(
    reads: Sequence[TaskRead], writes: Sequence[Write], feeds: Sequence[Feed], job: str
) -> Iterator[pa.RecordBatch]:
    report = Report()
    types = [pa.struct(list(feed.schema)) for feed in feeds]
    for index, rows in run(reads, writes, feeds, report, job=job, task=_attempt()):
        columns = [pa.nulls(rows.num_rows, kind) for kind in types]
        columns[index] = pa.StructArray.from_arrays(rows.columns, fields=list(types[index]))
        yield _numbered(pa.nulls(rows.num_rows, pa.string()), columns)
    _left()
    yield _numbered(pa.array([report.encode()]), [pa.nulls(1, kind) for kind in types])


def _numbered(reports: Any, feeds: list[Any]) -> pa.RecordBatch:
    names = [REPORT, *(f"{FEED}{index}" for index in range(len(feeds)))]
    return pa.RecordBatch.from_arrays([reports, *feeds], names=names)


def _write(
    batches: Iterator[pa.RecordBatch], writes: Sequence[tuple[str, Write]], job: str
) -> Iterator[pa.RecordBatch]:
    report = Report()
    task = _attempt()
    writers = [(column, OutputWriter(write, report, job=job, task=task)) for column, write in writes]
    try:
        for batch in batches:
            for text in batch.column(REPORT).drop_null().to_pylist():
                _drop_failed(Report.decode(text), [writer for _, writer in writers])
                yield pa.RecordBatch.from_arrays([pa.array([text])], names=[REPORT])
            for column, writer in writers:
                rows = batch.column(column)
                rows = rows.drop_null() if rows.null_count else rows
                if len(rows):
                    writer.write_mixed(pa.RecordBatch.from_struct_array(rows))
        for _, writer in writers:
            writer.close()
    finally:
        for _, writer in writers:
            writer.abort()
    _left()
    yield pa.RecordBatch.from_arrays([pa.array([report.encode()])], names=[REPORT])


def _drop_failed(read: Report, writers: list[OutputWriter]) -> None:
    """Abort what cannot be complete, because the reading hop before it failed."""
    ended = {failure.output for failure in read.failures}
    for writer in writers:
        if writer.plan.name in ended or read.failed(writer.plan.source):
            writer.abort()


def acknowledge() -> None:
    """Acknowledge now what TCP peers of this process have sent. Does nothing where that cannot be had."""
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or socket.getdefaulttimeout() is not None or not _OPEN.is_dir():
        return  # a default timeout would be given to every socket that is looked at
    for entry in list(_OPEN.iterdir()):
        with contextlib.suppress(OSError):  # closed meanwhile, or no TCP socket
            if stat.S_ISSOCK(os.fstat(int(entry.name)).st_mode):
                with socket.socket(fileno=os.dup(int(entry.name))) as found:
                    found.setsockopt(socket.IPPROTO_TCP, option, 1)


@functools.cache
def settle() -> None:
    """Take what this process has loaded so far out of the garbage collector's sight, once."""
    gc.collect()
    gc.freeze()
