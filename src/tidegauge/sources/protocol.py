"""A source: what a flow reads, range by range. Four methods; one of them runs in tasks.

On each look the driver asks how far upstream is (`probe`) and makes the answer durable: from then on each range
belongs to an epoch. For each job it has bound ranges cut into pieces (`plan`), and tasks read these (`read`). Once
every output holds a range, upstream may forget it (`acknowledge`).

Laws, which `tidegauge.testing.kit.check_source` tries on ours and on yours:

1. A source is a value: configuration only. It can be pickled, and a copy does all that the original does.
2. Positions only grow. `upper` is never before the bound frontier, and what can be read in a range never changes.
3. `plan` covers its slices exactly, each once. `read` yields exactly the records of `[lower, upper)`, or raises. It
   never reads on to whatever is newest, and a short read is an error, never an empty result.
4. However slices and splits are cut, the rows of each partition are those of one read, in the same order.
5. A record that cannot be decoded is handed over with its place and its bytes, and reading goes on behind it.
6. Memory is bounded by a batch, whatever the size of a split.
7. Another upstream under the same name is a `Definite` error, and nothing of it is read.

How the methods are called:

    method         when                                       where
    describe       when a run opens its flow                  the thread that runs the flow
    probe          at each look, and by `status`              a thread of the driver beside the worker
    lost, plan     once a job, and again for each retry       a thread of the driver beside the worker
    read           once a split, and again for each retry     a task: a thread, or a process elsewhere
    confirm        after a job has read, where there is one   a thread of the driver beside the worker
    acknowledge    after epochs were published                a thread of the driver beside the worker

Nobody interrupts a call. One that hangs holds up its source, and its process ends only with it, or with a second
Ctrl-C. So give every request to upstream a time limit, and raise `Transient` or `OSError` when it is over.

Errors. A `Transient` error, or any `OSError`, stalls the source: it is tried again after 0.2 seconds, then after
growing delays of up to 30, while other sources go on. A `Definite` error is for good: the source has failed, durably,
and a restart does not try it again until somebody resumes it.

Loss and gaps. A *loss* is a range that was bound, or that upstream had shown, and that upstream no longer has. By
default it is a `Definite` error. Where the user chose so (`on_data_loss="gap"`), the source goes on without it, and
the range becomes a *gap*: a row of the view `gaps`, written before any output gets past it. From then on the epoch's
content is its slices without its gaps.

Incarnations. An upstream that was deleted and created again is another one, though it has the same name. `identity`
tells them apart. If the user resumes the source with a new *incarnation*, it is bound from its beginning, with an
empty frontier and no details; published rows of the old one stay.

>>> from tidegauge.sources import GeneratorSource
>>> source = GeneratorSource(columns="id long", rows=10)
>>> def ids(*cuts):
...     slices = [Slice("numbers", 0, "shard-0", *cut) for cut in cuts]
...     splits = source.plan(slices, Bound())
...     return [n for split in splits for batch in source.read(split, print) for n in batch["id"]]
>>> ids((0, 4), (4, 9)) == ids((0, 9))
True
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.env import Env, Spawn
from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import PARTITIONS, FromTime, FromTimes
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.badrecords import BAD_RECORDS, BadRecord, OnBadRecord

__all__ = [
    "BAD_RECORDS",
    "Acknowledged",
    "Attendant",
    "Attended",
    "BadRecord",
    "Clocked",
    "Confirming",
    "Cuttable",
    "Divided",
    "Evolvable",
    "Framed",
    "GoingOn",
    "Joining",
    "OnBadRecord",
    "Overlapping",
    "Placed",
    "RangeReader",
    "Source",
    "Split",
    "from_time_of",
]


class Split(Protocol):
    """A piece of a slice for one task: picklable, with no live connection. `weight` estimates its cost in bytes."""

    @property
    def epoch(self) -> int: ...  # noqa: D102
    @property
    def partition(self) -> str: ...  # noqa: D102
    @property
    def lower(self) -> int: ...  # noqa: D102
    @property
    def upper(self) -> int: ...  # noqa: D102
    @property
    def weight(self) -> int: ...  # noqa: D102


class RangeReader(Protocol):
    """What a task needs of a source."""

    def read(self, split: Any, bad: OnBadRecord, /) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split; see `Source.read`."""
        ...


@runtime_checkable
class Source(Protocol):
    """A source that can be read by range. It is a picklable value: configuration, and what may be lost any time."""

    @property
    def unit(self) -> str:
        """What one position counts, for people: "bytes", "records", "rows". All but "bytes" count as records do.

        Asked often, so a constant.
        """
        ...

    @property
    def schema(self) -> pa.Schema | None:
        """The declared columns, metadata columns included, or None when they are to be inferred once.

        Asked often, also before upstream is there: it follows from the configuration alone. Columns that were bound
        stay; declaring others under the same name is refused.
        """
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON without secrets, for the store and for people.

        Called once when a run opens its flow. It must not block, nor ask upstream, and is equal for equal sources.
        """
        ...

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Ask upstream how far it is, given all that is durably bound of it.

        `Observation.upper` is never before `bound.frontier`, and at most one epoch's worth beyond it. It lies between
        two records: an epoch can be cut nowhere else. `bound.last` is the answer before this one, bound or not, so
        that a source notices what upstream has taken back; it is None at a run's first look and for `status`. Columns
        are to be inferred while `bound.schema` and `schema` are both None; nothing is bound before they are known.

        A run calls it once a look, in one thread at a time, and takes the answer for the present look even if it
        comes late. `status` may call it meanwhile, in another thread or process. It may block: other sources are not
        held up. A look goes on without it after 30 seconds, unless the source is required. It changes nothing
        upstream.

        Raises `Definite` when bound data is gone, or has changed, or belongs to another upstream; then it is never
        called again in this run. An `OSError` or any other `TidegaugeError` stalls the source. Another exception is a
        bug: it ends the run.
        """
        ...

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Cut slices into splits for tasks, at record boundaries.

        slices: bound ranges, in the order of their epochs; they may be cut anywhere between two records, and there
        may be none. `bound.schema` is known by now. `bound.last` is what `probe` said within the last second, or
        None: you need not ask upstream again for what it vouches for.

        Called once a job, with all its slices of this source; again when the job is retried; and once for each epoch
        after a `Definite` error, to find out which of them fail. Jobs of different outputs may call it at once, also
        beside a `probe`. It may block: the outputs of its job wait.

        Raises `Definite` when bound data is gone, or when upstream is no longer the one of `bound.identity`. The
        epochs before the first that fails are still read. An `OSError` or `Transient` has the job tried again, at
        most six times in a row unless the error is `patient`; then the run ends. Another exception ends the run.
        """
        ...

    def read(self, split: Any, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the records of exactly this split, in order, as batches of the bound schema.

        Called in a task with a copy of the source, once a split and attempt. Two attempts at one split may run at
        once, on different machines, and many splits do. The splits of a task come in the order of their epochs. A
        generator that nobody needs any more is closed in the middle; release what it holds in `finally`. It may block
        for as long as upstream is slow, and is asked for the next batch only when the last one is staged. So a batch
        should have some ten thousand rows, or a few megabytes.

        `on_bad_record` may raise; let that pass. Raises `Definite` when the range cannot be read any more, and
        `Transient` when it has to be planned again first. Of errors with a code, all but `Transient` ones are taken
        for definite. Any other exception, an `OSError` too, fails this attempt and has the job tried again, as after
        an error of `plan`.
        """
        ...

    def acknowledge(self, frontier: Frontier) -> None:
        """Tell upstream that all before `frontier` is durable in every output, so that it may be forgotten.

        Called after epochs were published, with the newest frontier only, right after the driver has made sure that
        its lease is still its own. It may be told the same again, and less than an earlier driver has told: after a
        restart, or since an output was added. Both change nothing.

        It runs beside the worker, one call at a time: if it is slow, nobody waits, and the next call has the frontier
        of by then. A run waits for it in the end, for 15 seconds at most. After an `OSError` or `Transient` it is
        called again later; no harm is done. Any other error ends the run. It may never be called at all, as when the
        driver dies; nor is it, in a later run, for a source that has failed or ended. Do nothing if upstream keeps
        its data anyway.
        """
        ...


@runtime_checkable
class Evolvable(Protocol):
    """A source whose declared columns may be changed, as its outputs allow: it reads earlier records as it did then.

    `plan` gets the columns of its slices as `bound.schema`, and `read` gives rows with those.
    """

    def unreadable(self, columns: pa.Schema) -> str:
        """Return why records cannot be read by these columns, which were declared before; "" if they can."""
        ...


@runtime_checkable
class Clocked(Protocol):
    """A source that says what kind of clock it goes by. Others go by `PARTITIONS`.

    Its clock checks all that is bound, and its kind is kept: another one under the same name is refused.
    """

    @property
    def from_time(self) -> FromTime:
        """The clock, a constant. It stays of one kind as long as the source has its name."""
        ...


@runtime_checkable
class Overlapping(Protocol):
    """A source that looks at a place where others may look, too. Those that are asked together share what they find.

    Two meet where the place of one begins with that of the other. Of those that meet, each gets `bound.findings`,
    and asks by `once` for what the others can use: a folder of many files is listed once for all of them. A source
    that is asked alone, as by `status`, gets None. Nobody need use it, and no answer may depend on it.
    """

    @property
    def looks_at(self) -> tuple[Hashable, ...]:
        """The place, from the whole to the part: a disk, then the folders of a path. A constant."""
        ...


@runtime_checkable
class Placed(Protocol):
    """A source that wants to know whose it is."""

    def placed(self, flow: str, name: str) -> Source:
        """Return the source as the one of this name in this flow. Called once, by `Dataflow.source`."""
        ...


@runtime_checkable
class GoingOn(Protocol):
    """A source that, where its user chose so, goes on without records that upstream has lost."""

    @property
    def loss(self) -> str:
        """The code of the error that such a loss is without that choice, for `gaps`. A constant."""
        ...

    def lost(self, slices: Sequence[Slice], bound: Bound) -> Sequence[Slice]:
        """Return the parts of bound slices that upstream no longer has and that are given up; none without a choice.

        Called right before `plan`, with the same slices, in the same thread; `plan` gets the rest of them. The parts
        become rows of `gaps` before any output gets past their epochs. Raises what `Source.plan` raises.
        """
        ...


@runtime_checkable
class Confirming(Protocol):
    """A source that can tell at any time whether upstream is the one that is bound, however much that one has grown.

    An upstream that is recreated between a look at it and the reading has the same name, and soon as many
    records. So a source whose `read` cannot tell them apart is asked after the reading, before anything is committed.
    """

    def confirm(self, bound: Bound) -> None:
        """Raise `Definite` unless upstream is the one that is bound, and has been since.

        Called once a job after its last `read`, beside the worker, and right before `acknowledge`. It may block.
        After a `Definite` error nothing that the job has read of the source is committed, and the source has failed.
        After an `OSError` or `Transient` the job is tried again.
        """
        ...


@runtime_checkable
class Acknowledged(Protocol):
    """A source whose upstream shows what it was told."""

    def unacknowledged(self, frontier: Frontier) -> str:
        """Return, for people, what upstream lacks of the acknowledgement of a frontier and why; "" for nothing.

        Called by `status` after a `probe` that went well. Raises what `Source.probe` raises.
        """
        ...


class Attendant(Protocol):
    """Looks at a source during a run, in its place."""

    def probe(self, bound: Bound, /, *, now: datetime) -> Observation:
        """See `Source.probe`, which others than the run call meanwhile."""
        ...

    def close(self) -> None:
        """Begin nothing more. Must not block. Called once, in the end of the run."""
        ...


@runtime_checkable
class Attended(Protocol):
    """A source whose upstream is asked by its running flow alone, which keeps something for that: polls, say.

    Its own `probe` only looks at what such a run has made durable, so `status` asks nobody.
    """

    def attended(self, env: Env, *, beside: Spawn) -> Attendant:
        """Return what looks at it during a run. Called once a run, before the flow is opened.

        beside: runs what asks upstream, so that a look does not wait for it.
        """
        ...


@runtime_checkable
class Divided(Protocol):
    """A source that has positions inside records, not only between them."""

    def record_at(self, piece: Slice, position: int, bound: Bound) -> tuple[int, int] | None:
        """Return the ends of the record that a position of a bound slice is inside of.

        None when it is between two records, and when nobody can tell any more. Called by `skip`, which refuses to cut
        a record. Raises `OSError`.
        """
        ...


@runtime_checkable
class Joining(Protocol):
    """A source that reads splits which follow each other faster in one go than one by one: small ones, say."""

    def joined(self, splits: Iterable[Any]) -> Iterator[Split]:
        """Put splits of a task together, in their order; those that stay alone are given back as they came.

        Splits together are one with `parts`: the splits that it is made of. Its rows are those of the parts, and have
        their epoch in a column `_epoch`, behind the others. Where `read` raises for it, its parts are read by
        themselves, to find out which of them the error is about.
        """
        ...


@runtime_checkable
class Cuttable(Protocol):
    """A source whose bound slices can be cut, so that a job of late outputs reads a part of one.

    By law 4 it makes no difference to any row where they are. Slices of other sources are read whole.
    """

    def size(self, piece: Slice, bound: Bound) -> int:
        """Return how many positions of a slice may hold a record: fewer than it has where upstream begins later.

        Called beside the worker, right before `cut` and `plan`, for many slices: it must not ask upstream.
        """
        ...

    def cut(self, piece: Slice, size: int, bound: Bound) -> int | None:
        """Return a position between two records of a slice, so that about `size` positions of it come before.

        As many if that can be, else fewer, else the next one that there is. None where the slice cannot be cut, or is
        not there any more, which `plan` then says. May block. Raises `OSError` and `Transient`, as `plan` does.
        """
        ...


@runtime_checkable
class Framed(Protocol):
    """A source whose raw records Spark can read by itself, with the same pinned ranges; it is `read` that decodes.

    Only the Spark engine asks for it. `frame` and `missing` are called in the driver, beside the worker.
    """

    @property
    def framed(self) -> bool:
        """Whether Spark is to read it."""
        ...

    def frame(self, session: Any, splits: Sequence[Any]) -> Any:
        """Return a DataFrame of the raw records of these splits.

        The rows of one of its partitions come in the order of their epochs. Other rows may be among them.
        """
        ...

    def received(self, batches: Iterator[pa.RecordBatch], splits: Sequence[Any]) -> Iterator[Split]:
        """Cut what comes of a partition of the frame into pieces, each of a split, which `read` takes in its place.

        Runs in a task. Records outside every split are left out.
        """
        ...

    def missing(self, splits: Sequence[Any]) -> tuple[int, TidegaugeError] | None:
        """Return the first epoch that Spark cannot have all records of, and the error; or None.

        Called after Spark failed to read. Upstream lacks a record, or Spark cannot hold one. Raises what
        `Source.probe` raises.
        """
        ...


def from_time_of(source: Source) -> FromTime:
    """Return the clock of a source. Raises `InvalidArgument` for any other object."""
    clock: FromTime = getattr(
        source, "from_time", PARTITIONS
    )  # `isinstance` of `Clocked` takes a hundred times as long
    if clock is not PARTITIONS:
        FromTimes(clock)  # refuses what is no FromTime
    return clock
