"""What a source may do besides: each ability is a protocol of its own, which a source has or has not.

A source that has none of them is read by range, with columns that stay, by a clock of partitions. A part that
can use an ability asks for it with `isinstance`, and does without where it is not there.

Invariant: no ability changes a row. With it and without it each epoch has the records that are bound.

>>> from tidegauge.sources import GeneratorSource
>>> source = GeneratorSource(columns="id long", rows=10)
>>> isinstance(source, Cuttable), isinstance(source, Framed), from_time_of(source) is PARTITIONS
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tidegauge.env import Env, Spawn
from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import PARTITIONS, FromTime, FromTimes
from tidegauge.remap.frontier import Frontier

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegauge.sources.protocol import Source, Split

__all__ = [
    "Acknowledged",
    "Attendant",
    "Attended",
    "Clocked",
    "Confirming",
    "Cuttable",
    "Divided",
    "Evolvable",
    "Framed",
    "GoingOn",
    "Joining",
    "Overlapping",
    "Placed",
    "from_time_of",
]


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
