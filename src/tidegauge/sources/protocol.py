"""A source: what a flow reads, range by range. Four methods; one of them runs in tasks.

On each look the driver asks how far upstream is (`probe`) and makes the answer durable: from then on each range
belongs to an epoch. For each job it has bound ranges cut into pieces (`plan`), and tasks read these (`read`). Once
every output holds a range, upstream may forget it (`acknowledge`). What a source may do besides is in `abilities`.

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

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.badrecords import BAD_RECORDS, BadRecord, OnBadRecord

__all__ = [
    "BAD_RECORDS",
    "BadRecord",
    "OnBadRecord",
    "RangeReader",
    "Source",
    "Split",
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
