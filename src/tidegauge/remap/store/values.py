"""What goes into the store and what comes out of it, as frozen values.

Invariant: a value read from the store is a copy; changing the store does not change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Bound, Detail, EarlierColumns, Slice
from tidegauge.remap.fromtime.partitioned import PARTITIONS
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.remap.start import StampMode, StartRecord
from tidegauge.remap.table import RemapTable

__all__ = [
    "COLLECTED",
    "Backfill",
    "BackfillPlan",
    "BackfillUnit",
    "CodeRecord",
    "Decisions",
    "EpochRecord",
    "FlowRecord",
    "Gap",
    "HoldRecord",
    "Incarnation",
    "Loaded",
    "LoadedOutput",
    "LoadedSource",
    "OutputSpec",
    "Pause",
    "PauseReason",
    "Replacement",
    "SourceSpec",
    "Stall",
]

COLLECTED: Final = "collected"
"""What the configuration of a source has if an output ever took its bad records. It outlives that output."""


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """A flow: epochs below `upper` are bound, below `published` published, below `since` indistinguishable."""

    id: int
    name: str
    incarnation: str
    upper: int
    published: int
    since: int


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source as its flow describes it: its configuration as JSON without secrets, its columns if declared, and the
    kind of its clock. streams: whether its columns are those of streams, which may become more or fewer. collected:
    whether an output takes its bad records."""

    config: Mapping[str, Any]
    schema: pa.Schema | None = None
    clock: str = PARTITIONS.kind
    streams: bool = False
    collected: bool = False


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """An output as its flow describes it: the source that it reads, its configuration as JSON without secrets.

    identity: its sink's, which says where it writes to however that is spelled; "" where nobody asked.
    """

    source: str
    config: Mapping[str, Any]
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A later life of a source's upstream: the epochs from `began_at` on are of it, until the next one begins.

    identity: what upstream said of itself when it was first bound, "" where it says nothing. at: when it was begun,
    and reason: why.
    """

    number: int
    began_at: int
    identity: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that are in no table, or not in all: `[lower, upper)` of a partition, bound in `epoch`, now lost.

    code: of the error that said so. reason: for people, with the outputs that lack them.
    """

    source: str
    epoch: int
    partition: str
    lower: int
    upper: int
    at: datetime
    code: str
    reason: str

    @property
    def size(self) -> int:
        """How many positions are lost, in the source's own unit."""
        return self.upper - self.lower


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedSource:
    """A source as the store knows it.

    `identity` is upstream's when it was first bound, "" where it has none. `failure` is the epoch from which it has
    failed for good, and why. `folded` is the last epoch up to `since` at which it moved, before the history up to
    there was compacted; None when there is none. `state` is the newest one.

    All this is of the present incarnation; at the epochs before it began, `table` has the frontier `ORIGIN`. The
    incarnations after the first one are `incarnations`, and the tables of those that are over are `past`: one for
    each, each up to the epoch at which the next one began. `earlier` are the columns that it had before `schema`.
    """

    table: RemapTable
    details: Mapping[str, Detail]
    schema: pa.Schema | None
    failure: tuple[int, TidegaugeError] | None
    config: Mapping[str, Any]
    identity: str
    folded: int | None = None
    state: SourceState | None = None
    incarnations: tuple[Incarnation, ...] = ()
    past: tuple[RemapTable, ...] = ()
    earlier: tuple[EarlierColumns, ...] = ()

    @property
    def collected(self) -> bool:
        """Whether an output ever took its bad records."""
        return COLLECTED in self.config

    @property
    def incarnation(self) -> int:
        """The number of the present incarnation."""
        return self.incarnations[-1].number if self.incarnations else 0

    @property
    def began_at(self) -> int:
        """The epoch at which the present incarnation began."""
        return self.incarnations[-1].began_at if self.incarnations else 0

    @property
    def columns_since(self) -> int:
        """The first epoch whose records have the present columns, 0 if there were no others."""
        return self.earlier[-1].epoch if self.earlier else 0

    @property
    def bound(self) -> Bound:
        """Its newest binding."""
        return Bound(
            frontier=self.table.frontier,
            details=self.details,
            schema=self.schema,
            identity=self.identity,
            state=self.state,
            incarnation=self.incarnation,
            earlier=self.earlier,
        )

    def slices(self, lower: int, upper: int) -> list[Slice]:
        """Return what the epochs `[lower, upper)` bind of any incarnation, sorted by epoch, then partition.

        To look at: the records of an incarnation that is over cannot be read. Raises what `RemapTable.slices` raises.
        """
        now = self.table.slices(lower, upper)
        parts = [(table, max(lower, table.since), min(upper, table.upper)) for table in self.past]
        return [*(piece for table, first, end in parts if first < end for piece in table.slices(first, end)), *now]


@dataclass(frozen=True, slots=True)
class CodeRecord:
    """Which code makes an output's rows from `epoch` on, as text; recorded at `at`."""

    epoch: int
    code: str
    at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedOutput:
    """An output as the store knows it; how far it is, its own table knows.

    `failure` is the epoch at which it failed for a reason of its own, and why. See `outstanding`. `held`: its table
    was seen to hold the epochs before it; 0 while it was seen to hold none. start: where it begins; None for one that
    begins with its source. codes: which code made its rows, in the order of epochs.
    """

    source: str
    config: Mapping[str, Any]
    failure: tuple[int, TidegaugeError] | None
    held: int = 0
    start: StartRecord | None = None
    codes: tuple[CodeRecord, ...] = ()

    @property
    def begins(self) -> int:
        """The first epoch that it is given."""
        return 0 if self.start is None else self.start.epoch

    def reached(self, table_upper: int) -> int:
        """Return the first epoch that it lacks, of those that it is given; 0 where it begins with its source.

        So one that begins later, and holds nothing yet, stands where a table of the epochs before that does.
        """
        return table_upper or self.begins

    def outstanding(self, table_upper: int) -> tuple[int, TidegaugeError] | None:
        """Return the failure, unless the table has got past it: the table decides.

        The failure is taken back in the store right after the commit that gets past it; a driver may die between.
        """
        return None if self.failure is None or table_upper > self.failure[0] else self.failure


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """An output gets the epochs from `start` to `cutover`, both included, before anybody sees one of them.

    steps: tells its steps from others.
    """

    output: str
    start: int
    cutover: int
    mode: StampMode
    steps: str


@dataclass(frozen=True, slots=True)
class BackfillUnit:
    """The staged epochs `[lower, upper)` of a plan: the job's name, the columns, and the files as JSON data.

    With a partition it is a part of the epoch `lower`, which is `upper` as well: from where the unit before it ends,
    if that ends in the same epoch, up to this position of this partition.
    """

    lower: int
    upper: int
    job: str
    schema: pa.Schema
    files: tuple[Mapping[str, Any], ...]
    rows: int
    partition: str = ""
    position: int = 0

    @property
    def end(self) -> tuple[int, str, int]:
        """What comes after it: an epoch, and a place in that."""
        return self.upper, self.partition, self.position


@dataclass(frozen=True, slots=True)
class Backfill:
    """A plan, and its units in order."""

    plan: BackfillPlan
    units: tuple[BackfillUnit, ...]

    @property
    def reached(self) -> int:
        """The first epoch of the plan that is not known to be staged, or not all of it."""
        return self.units[-1].upper if self.units else self.plan.start


PauseReason: TypeAlias = Literal["operator", "rate", "order", "drop", "drop table", "add"]
"""Why an output is paused: by hand, because nothing is read for late outputs (a rate of 0), because it waits for
others (`after`), or because it is about to be dropped, perhaps with its table. `add` pauses nothing: a driver is to
take it in.
"""


@dataclass(frozen=True, slots=True)
class Pause:
    """A reason for which an output is paused, since `at`; None where that follows from something else."""

    output: str
    reason: PauseReason
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Replacement:
    """An output's table is to be made again, by this code. edition: tells it from any other; 32 hex digits."""

    output: str
    edition: str
    code: str
    at: datetime


Rate: TypeAlias = int | Literal["auto"] | None
"""How many rows a second are read for late outputs.

None for as many as there are, "auto" for as many as the live outputs allow.
"""


@dataclass(frozen=True, slots=True)
class Decisions:
    """What people decided about the outputs of a flow; another `number` means that it may be something else.

    rate: how many rows a second are read for late outputs. replacements: by output.
    """

    number: int = 0
    pauses: tuple[Pause, ...] = ()
    rate: Rate = None
    replacements: Mapping[str, Replacement] = field(default_factory=dict)

    @property
    def drops(self) -> Mapping[str, bool]:
        """The outputs that are to be dropped, each with whether its table goes, too."""
        return {
            name: "drop table" in reasons
            for name, reasons in self.paused.items()
            if not reasons.isdisjoint(("drop", "drop table"))
        }

    @property
    def added(self) -> frozenset[str]:
        """The outputs that the driver is to take in, if it lacks them."""
        return frozenset(pause.output for pause in self.pauses if pause.reason == "add")

    @property
    def paused(self) -> Mapping[str, frozenset[PauseReason]]:
        """The outputs that are paused, each with its reasons."""
        pauses = [pause for pause in self.pauses if pause.reason != "add"]
        return {
            name: frozenset(pause.reason for pause in pauses if pause.output == name)
            for name in dict.fromkeys(pause.output for pause in pauses)
        }


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that the store holds of a flow, as of one instant.

    gaps: the losses, sorted by source, epoch and partition. stalls: what its driver said last that it waits for.
    backfills: by output. decisions: what people decided about the outputs. digest: of all epochs, ""
    where none was kept.
    """

    flow: FlowRecord
    sources: Mapping[str, LoadedSource]
    outputs: Mapping[str, LoadedOutput]
    gaps: Sequence[Gap]
    stalls: Sequence[Stall]
    backfills: Mapping[str, Backfill]
    decisions: Decisions = Decisions()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One epoch of the timeline. `published_at` is None while an output does not hold it."""

    epoch: int
    minted_at: datetime
    published_at: datetime | None


@dataclass(frozen=True, slots=True)
class HoldRecord:
    """An epoch that its owner needs to stay distinct, since `at`."""

    owner: str
    epoch: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Stall:
    """A source or an output that its driver waits for, since when and why."""

    kind: Literal["source", "output"]
    name: str
    since: datetime
    error: TidegaugeError
