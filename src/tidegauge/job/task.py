"""One task of a job: read splits once, in epoch order, and stage their rows for every output that wants them.

Invariants. A split is read once (`decoding.py`), whatever the number of outputs. What goes wrong is data: a failure
names its source or its output and the least epoch that the task found it in, because splits are taken in the order of
their epochs. A stager that is not closed is aborted. Nothing grows with the size of a split: rows pass through batch
by batch.

`_epoch` is a constant of a batch, added after the user's functions. A function may thus return fewer rows than it was
given, or more.

>>> from tidegauge.job.report import Report
>>> report = Report()
>>> list(run([], [], [], report, job="j", task=0)), report.failures
([], [])
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidegauge.errors.base import Definite, TidegaugeError
from tidegauge.errors.engine import SinkBroke, StorageFailed, WrongOperation
from tidegauge.job.decoding import Stop, TaskRead, by_epoch, decoded
from tidegauge.job.functions import apply, begun, conform, said, without_epoch
from tidegauge.job.leftout import STEPS, Carried, refused
from tidegauge.job.plan import MapBatches
from tidegauge.job.report import Report
from tidegauge.leftout import LEFT, Mark, taken
from tidegauge.operations import OP, said_of, unknown
from tidegauge.reclock.columns import stamp
from tidegauge.remap.round import Failure
from tidegauge.sinks.protocol import Sink, Stager

__all__ = ["Feed", "OutputWriter", "Write", "run"]


@dataclass(frozen=True, slots=True)
class Write:
    """An output's part of a task:

    rows of `rows` go through `functions` and are staged as `schema` (with `_epoch`). carried: how it takes rows that
    leave values out.
    """

    name: str
    source: str
    channel: str
    functions: tuple[MapBatches, ...]
    sink: Sink
    rows: pa.Schema
    schema: pa.Schema
    carried: Carried


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
        stop = _stopping(writers, mine, broken, report)
        try:
            for channel, epoch, rows in decoded(read, report, stop):
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


def _stopping(writers: Sequence[OutputWriter], feeds: Mapping[int, Feed], broken: set[int], report: Report) -> Stop:
    """Return what fails the outputs of a channel at an epoch. broken: the feeds that have failed."""

    def stop(channel: str, epoch: int, error: Definite) -> None:
        for writer in writers:
            if writer.plan.channel == channel:
                writer.stop(epoch, error)
        for index, feed in feeds.items():
            if feed.channel == channel and index not in broken:
                broken.add(index)
                report.failures += [Failure(feed.source, output, epoch, error) for output in feed.outputs]

    return stop


def _fed(
    index: int, feed: Feed, rows: pa.RecordBatch, epoch: int, report: Report
) -> Generator[tuple[int, pa.RecordBatch], None, bool]:
    """Yield one batch as its feed has it, with the feed's number. Return whether nothing failed."""
    rows, marks = taken(rows)
    if marks is not None:
        mark = Mark.decode(marks.drop_null()[0].as_py())
        report.failures += [
            Failure(feed.source, one, epoch, refused(one, mark, epoch, STEPS)) for one in feed.outputs
        ]
        return False
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
        rows, marks = taken(rows)
        at = 0
        try:
            if marks is not None:
                marks = plan.carried.marks(marks, epoch)
            for batch in apply(self._functions, conform(rows, given), self._columns, output=plan.name, epoch=epoch):
                if self._operating and (wrong := unknown(batch[OP])) is not None:
                    found = said_of(batch[OP].filter(wrong)[0].as_py())
                    raise WrongOperation(output=plan.name, epoch=epoch, found=found)
                if batch.num_rows:
                    stamped = stamp(batch, epoch)
                    some = None if marks is None else marks.slice(at, batch.num_rows)  # of as many rows as were given
                    at += batch.num_rows
                    whole = some is None or some.null_count == len(some)
                    self._stage(stamped if whole else stamped.append_column(LEFT, some), epoch)
        except TidegaugeError as error:
            self._fail(epoch, error)

    def write_mixed(self, batch: pa.RecordBatch) -> None:
        """Add rows that say in `_epoch` which epoch they are of."""
        for epoch, rows in by_epoch(batch):
            self.write(rows, epoch)

    def stop(self, epoch: int, error: TidegaugeError) -> None:
        """Fail the output at an epoch, unless it has failed."""
        if not self._over:
            self._fail(epoch, error)

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
