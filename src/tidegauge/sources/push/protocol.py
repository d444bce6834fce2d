"""A push source: records come by themselves, over one connection in the driver, and cannot be read again by range.

The law. What a subscription gives is a function of `start` and of upstream's log: each `receive` gives all records
from the frontier reached before, inclusive, up to the frontier that it comes with, exclusive, and no others. So a
restart, or a connection that was cut, reads again from an earlier frontier and gets the same records; and because
bindings are durable they get the same epochs.

It follows that upstream keeps what it has not been told is durable (`acknowledge`), and that a source which holds
records back, such as those of an open transaction, holds back its frontier.

A log that was cut off, as by restoring an older backup, fails the source: its `end` is before what the flow has. Once
others have appended enough, the end tells no more; so a log that is restored should have another identity.

Errors are `Transient`, or an `OSError`: the subscription is closed, the source is stalled, and after a growing delay
it is connected again from the frontier reached. Or they are `Definite`: the source has failed for good. Any other
exception ends the flow.

>>> order = pa.record_batch({"id": [7], "_partition": ["p0"], "_offset": [4]})
>>> Received((("orders", order),), Frontier({"p0": 5})).rows
1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Bound
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.protocol import OnBadRecord

__all__ = [
    "ConnectsAlone",
    "DecodedBeside",
    "DecodedLater",
    "HeldBack",
    "HoldsBack",
    "LaterStreams",
    "PushSource",
    "Received",
    "Subscription",
    "TellsColumns",
]


@dataclass(frozen=True, slots=True)
class Received:
    """The records of each stream up to `frontier`, which is exclusive: batches in the order of upstream.

    batches: each with its stream, its columns, and the place of each record in the columns `_partition` (a text) and
    `_offset` (an integer). frontier: a sealed one is the end of the source. end: how far upstream's log goes at
    present, None where upstream does not say.

    The end is never before the frontier, names every partition that has records, and never goes back, not on another
    connection either: where it does, upstream has lost records, and the source fails. If you are told it seldom, take
    what came since on this connection into it, but never the `start`. If a copy may answer that lags behind, raise a
    transient error until it has caught up.

    further: the columns that records have besides those of their stream, by stream; see `TellsColumns`.

    awaits: whether records are on their way that no end tells of, as those of a stream that joins. Until they have
    come, a run does not take itself for caught up. hindered: what keeps such records from coming at present: it is
    shown as what the source waits for, which goes on with all others.
    """

    batches: Sequence[tuple[str, pa.RecordBatch]]
    frontier: Frontier
    end: Frontier | None = None
    further: Mapping[str, pa.Schema] = field(default_factory=dict)
    awaits: bool = False
    hindered: TidegaugeError | None = None

    @property
    def rows(self) -> int:
        """How many records there are."""
        return sum(batch.num_rows for _, batch in self.batches)


class Subscription(Protocol):
    """One connection to upstream. The driver has one at a time of a source; where a run opens its flow anew, the old
    one may return from its last call after the new one was made.

    Its methods are called beside the flow, one at a time, in changing threads; never after `close`, and never after
    one of them has raised, except `close`.
    """

    @property
    def identity(self) -> str:
        """A text that changes when upstream's log is replaced by another one; "" where upstream has none.

        Known as soon as there is a subscription. A log other than the one that was bound first fails the source.
        """
        ...

    def receive(self, limit: int, seconds: float) -> Received | None:
        """Return the records since the frontier reached; None when there is no news.

        Returns as soon as there is anything, and waits at most `seconds`: a stop waits for that. At most about
        `limit` records, which is less for large ones; more where they have one position, but never more than 131,072.
        Progress of the frontier, or of the end, alone is news; so is the end on a new connection.
        """
        ...

    def acknowledge(self, frontier: Frontier) -> None:
        """Tell upstream that everything before `frontier` is durable in every output. Idempotent.

        Called between two calls of `receive`, seldom more than once for an epoch, and again on the next connection:
        a connection that breaks may lose the last one. It should not wait for an answer.
        After a transient error the connection goes on, and the frontier is told later. It is never beyond the records
        given, and never goes back, except in another run.
        """
        ...

    def close(self) -> None:
        """End the connection. Must not block. Called once, also after an error; what it raises is ignored."""
        ...


@runtime_checkable
class PushSource(Protocol):
    """A source that pushes. It is a picklable value: configuration only, no state, no connection.

    Its positions are places of partitions with integers, as a `Frontier` has them; give it a `from_time` if its clock
    is of another kind than `PARTITIONS` (see `sources.protocol.Clocked`).
    """

    @property
    def unit(self) -> str:
        """What one position counts, for people: "bytes" or "records"."""
        ...

    @property
    def streams(self) -> Mapping[str, pa.Schema]:
        """The declared columns of each stream. A source with one stream has that one under the name ""."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON without secrets, for the store and for people."""
        ...

    def connect(self, start: Frontier, bound: Bound) -> Subscription:
        """Return a subscription from `start` on, inclusive. Runs beside the flow.

        Should give up after some seconds, with a transient error. Raises `Definite` when upstream no longer has
        `start`; `StartForgotten` says so with the numbers. bound: the durable knowledge about the source. Where
        upstream does not say its end, this is the place to ask whether it still has everything before `start`.
        """
        ...


@runtime_checkable
class ConnectsAlone(Protocol):
    """A push source that keeps notes of its own: a driver that has lost its lease must not write them any more."""

    def connect_alone(self, start: Frontier, bound: Bound, confirm: Callable[[], None]) -> Subscription:
        """Return a subscription as `connect` does. From now on nothing that an earlier one notes counts.

        confirm: raises where the driver has lost its lease. What it raises ends the run.
        """
        ...


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What upstream keeps for a flow. size: in bytes. limit: beyond which upstream gives it up, None for none.

    ending: whether upstream is about to give it up.
    """

    size: int
    limit: int | None = None
    ending: bool = False


@runtime_checkable
class HoldsBack(Protocol):
    """A push source whose upstream can say how much it keeps for the flow."""

    def held_back(self) -> HeldBack | None:
        """Ask upstream; None where it keeps nothing. Called by `status`. Raises what `connect` raises."""
        ...


@runtime_checkable
class LaterStreams(Protocol):
    """A push source whose streams may become more, and fewer, from run to run."""

    def later(self) -> Mapping[str, Frontier | None]:
        """Return the streams that came after the source had begun, with the frontiers up to which they have nothing.

        None for one that is yet to join: at a frontier beyond all that was given by then. An answer other than
        None never changes. Called where a flow is opened; asks no upstream. May raise a transient error.
        """
        ...


@runtime_checkable
class DecodedLater(Protocol):
    """A push source that gives raw records, which the tasks decode: bad ones go where those of other sources go."""

    def decode(self, stream: str, batch: pa.RecordBatch, on_bad_record: OnBadRecord) -> pa.RecordBatch:
        """Return the rows of a batch that was received, in the columns of its stream. Runs in a task."""
        ...


@runtime_checkable
class DecodedBeside(DecodedLater, Protocol):
    """One whose records say where in files what they stand for is."""

    def beside(self, batch: pa.RecordBatch) -> int:
        """Return the bytes of files that decoding a batch that was received reads: it is work that is dealt out."""
        ...


@runtime_checkable
class TellsColumns(DecodedLater, Protocol):
    """A push source that gives raw records of several streams, which take columns on while the flow runs.

    A subscription that receives records with columns which `bound.schema` does not have at its connection tells of
    these with the records, or before, as long as the first such record is not bound, and again in every receipt from
    then on (`Received.further`). The flow is opened anew before it binds them. The next connection has those that
    were taken on in `bound.schema`; the others are ignored. Records from before a column have null in it.
    """

    def refused(self, stream: str, column: str) -> str:
        """Return why a column that was told of is not to be taken on, "" where it may be. Asks no upstream."""
        ...

    def decode_by(
        self, stream: str, batch: pa.RecordBatch, columns: pa.Schema, on_bad_record: OnBadRecord
    ) -> pa.RecordBatch:
        """Return the rows of a batch in these columns: those that its stream had when its records were bound."""
        ...
