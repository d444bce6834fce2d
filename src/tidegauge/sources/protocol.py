"""A source: four small methods, one of which runs in a task.

Invariant (law 2): `read` yields exactly the records of its split, `[lower, upper)` of one partition, or raises; it
never reads on to whatever is newest, and a short read is an error, never an empty result.

Errors are `Transient` (the source is stalled and tried again) or `Definite` (the source has failed for good). Any
`OSError` that a source lets through counts as transient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.fromtime import PARTITIONS, FromTime, FromTimes
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.metadata import TIMESTAMP

__all__ = [
    "BAD_RECORDS",
    "Acknowledged",
    "BadRecord",
    "Clocked",
    "Divided",
    "Framed",
    "GoingOn",
    "OnBadRecord",
    "Placed",
    "Source",
    "Split",
    "from_time_of",
]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that could not be decoded, with where it stands and its raw bytes.

    key, and timestamp (with a time zone): of a message that has them.
    """

    partition: str
    position: int
    raw: bytes
    code: str
    message: str
    key: bytes | None = None
    timestamp: datetime | None = None


OnBadRecord = Callable[[BadRecord], None]
"""Called by `Source.read` for each record that cannot be decoded. It may raise, which ends the read."""

BAD_RECORDS = pa.schema(
    [
        ("source", pa.string()),
        ("partition", pa.string()),
        ("position", pa.int64()),
        ("raw", pa.binary()),
        ("code", pa.string()),
        ("message", pa.string()),
        ("key", pa.binary()),
        ("timestamp", TIMESTAMP),
    ]
)
"""The columns of `stream.errors`."""


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


@runtime_checkable
class Source(Protocol):
    """A source that can be read by range. It is a picklable value: configuration only, no state, no connection."""

    @property
    def unit(self) -> str:
        """What one position counts, for people: "bytes", "records"."""
        ...

    @property
    def schema(self) -> pa.Schema | None:
        """The declared columns, metadata columns included, or None when they are to be inferred once."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON without secrets, for the store and for people."""
        ...

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        """Ask upstream how far it is, given what is durably bound. Runs in the driver, on the flow's tick.

        `Observation.upper` is never before `bound.frontier`, and at most one epoch's worth beyond it. Raises
        `Definite` when bound data is gone or has changed.
        """
        ...

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        """Cut slices into splits for tasks, at record boundaries. `bound.schema` is known by now.

        `bound.last` is what `probe` said within the last second, None where that is longer ago: what it vouches for
        need not be asked again.

        Raises `Definite` when upstream is no longer the one of `bound.identity`: then the bound data is gone.
        """
        ...

    def read(self, split: Any, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the records of exactly this split as batches of the source's schema. Runs in a task.

        Memory is bounded by the batch size, whatever the size of the split.
        """
        ...

    def acknowledge(self, frontier: Frontier) -> None:
        """Tell upstream that everything before `frontier` is durable in every output. Idempotent."""
        ...


@runtime_checkable
class Clocked(Protocol):
    """A source that says what kind of clock it goes by. Others go by `PARTITIONS`.

    Its clock checks everything that is bound, and the kind of clock is kept: another one under the same name is
    refused.
    """

    @property
    def from_time(self) -> FromTime:
        """The clock. It stays of one kind as long as the source has its name."""
        ...


@runtime_checkable
class Placed(Protocol):
    """A source that wants to know whose it is."""

    def placed(self, flow: str, name: str) -> Source:
        """Return the source as the one of this name in this flow."""
        ...


@runtime_checkable
class GoingOn(Protocol):
    """A source that, where its user chose so, goes on without records that upstream has lost."""

    @property
    def loss(self) -> str:
        """The code of the error that such a loss is without that choice, for `gaps`."""
        ...

    def lost(self, slices: Sequence[Slice], bound: Bound) -> Sequence[Slice]:
        """Return the parts of bound slices that upstream no longer has and that are given up; none without a choice.

        They become rows of `gaps` before the rest is planned. Raises what `Source.plan` raises.
        """
        ...


@runtime_checkable
class Acknowledged(Protocol):
    """A source whose upstream shows what it was told."""

    def unacknowledged(self, frontier: Frontier) -> str:
        """Return, for people, what upstream lacks of the acknowledgement of a frontier and why; "" for nothing.

        Raises what `Source.probe` raises.
        """
        ...


@runtime_checkable
class Divided(Protocol):
    """A source that has positions inside records, not only between them."""

    def record_at(self, piece: Slice, position: int, bound: Bound) -> tuple[int, int] | None:
        """Return the ends of the record that a position of a bound slice is inside of.

        None when it is between two records, and when nobody can tell any more. Raises `OSError`.
        """
        ...


@runtime_checkable
class Framed(Protocol):
    """A source whose raw records Spark can read by itself, with the same pinned ranges; it is `read` that decodes."""

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
        """Return the first epoch that Spark cannot have all records of, and the error, or None; asked when it failed.

        Upstream lacks it, or it is one that Spark cannot hold.

        Raises what `Source.probe` raises.
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
