"""One engine job: read these pinned splits once, and stage for each output the rows of a span of epochs.

Invariant: a job is a value. It decides nothing and commits nothing; run twice, it stages the same rows twice: one set
is committed and the other is litter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from tidegauge.errors.flow import OperationsNotTaken
from tidegauge.evolution import Evolution
from tidegauge.remap.round import Failure
from tidegauge.remap.stamps import FAITHFUL, OutputStamps
from tidegauge.remap.start import OutputStart
from tidegauge.sinks.cadence import Cadence
from tidegauge.sinks.protocol import Applying, Sink, StagedFile
from tidegauge.sinks.working import Work
from tidegauge.sources.protocol import RangeReader, Split

__all__ = [
    "WORDS",
    "Changelog",
    "Dedupe",
    "Engine",
    "EpochJob",
    "Filter",
    "GivenStep",
    "JobResult",
    "MadeStep",
    "MapBatches",
    "OutputPlan",
    "OutputWork",
    "Partition",
    "Select",
    "SourceRead",
    "SplitBy",
    "Staged",
    "Step",
    "Transform",
    "Unnest",
]


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep the rows for which a SQL expression is true. Plain ones run in any task, others on Spark.

    Of rows with an operation it filters the table that they make: see `tidegauge.operations`.
    """

    condition: str


@dataclass(frozen=True, slots=True)
class Select:
    """Replace the columns by SQL expressions (`_epoch` and `_op` always stay). Plain ones run in any task."""

    expressions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changelog:
    """Make plain data of rows with an operation: `_op` becomes an ordinary column, and no row goes. Runs anywhere."""

    column: str


@dataclass(frozen=True, slots=True)
class Transform:
    """Apply a function from DataFrame to DataFrame that keeps the columns `_epoch` and `_op`. Runs on Spark."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class MapBatches:
    """Apply a function from RecordBatch to RecordBatch, wherever the batch is. It does not see `_epoch`.

    Where the rows have operations it keeps the column `_op`. It returns as many rows as it was given, or fewer or
    more with `_epoch` left to us: see `task.py`.
    """

    function: Callable[[pa.RecordBatch], pa.RecordBatch]
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class Unnest:
    """Make a row of each element of a list. Runs wherever the batch is, like the steps below."""

    column: str


@dataclass(frozen=True, slots=True)
class Dedupe:
    """Keep the first row of each key in each epoch: by partition, then by position."""

    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """Keep the rows whose key hashes to one of `parts` parts; of rows with an operation, the table that they make."""

    parts: int
    key: tuple[str, ...]
    part: int


@dataclass(frozen=True, slots=True)
class SplitBy:
    """Keep the rows with one of the values of a column, None for those with another one or none.

    Of rows with an operation it keeps the table that they make.
    """

    column: str
    values: tuple[Any, ...]
    value: Any


MadeStep: TypeAlias = Unnest | Dedupe | Partition | SplitBy
"""The steps that are made into Arrow functions (`job.arrow`)."""
GivenStep: TypeAlias = Filter | Select | Changelog | Transform | MapBatches
"""The steps that users give as SQL or as a function."""
Step: TypeAlias = GivenStep | MadeStep

WORDS: Final[Mapping[type, str]] = {
    Filter: "filter",
    Select: "select",
    Changelog: "changelog",
    Transform: "transform",
    MapBatches: "map_batches",
    Unnest: "unnest",
    Dedupe: "dedupe",
    Partition: "partition",
    SplitBy: "split_by",
}
"""What steps are called, as methods of a stream."""


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """The user's description of an output: which stream of which source, through which steps, into which sink.

    channel: "rows", "errors", or the name of one of the streams that a push source has. start: None for with the
    source. after: the outputs that are to be live before this one catches up. stamps: which epoch its past has.
    patience: the seconds for which upstream keeps what it lacks while it is paused or has failed, None for no limit.
    past: the output from whose table it gets what it lacks while it is late, None for its source. cadence: when its
    staged rows are committed, None for at once. evolution: how its table takes rows of other columns than it has.
    """

    name: str
    source: str
    channel: str
    steps: tuple[Step, ...]
    sink: Sink
    start: OutputStart | None = None
    after: tuple[str, ...] = ()
    stamps: OutputStamps = FAITHFUL
    patience: float | None = None
    past: str | None = None
    cadence: Cadence | None = None
    evolution: Evolution = "strict"

    @property
    def ordered(self) -> bool:
        """Whether a step depends on the order of an epoch's rows."""
        return any(isinstance(step, Dedupe) for step in self.steps)

    def check_applied(self) -> None:
        """Raise `OperationsNotTaken` unless the sink of rows with an operation applies them."""
        if not (isinstance(self.sink, Applying) and self.sink.applies):
            raise OperationsNotTaken(output=self.name, sink=type(self.sink).__name__)


@dataclass(frozen=True, slots=True)
class SourceRead:
    """The splits of one source that a job, or one of its tasks, reads. `schema` is the source's, without `_epoch`.

    A task has them in the order of their epochs. When `collect` is false, a record that cannot be decoded is a
    `Failure` of the source. whole: whether one task reads all of an epoch, by partition and position, because some
    output's step depends on that order. lacking: whether tables may lack some of its rows, of whatever epoch.
    """

    name: str
    source: RangeReader
    schema: pa.Schema
    splits: tuple[Split, ...]
    collect: bool
    whole: bool = False
    lacking: bool = False


@dataclass(frozen=True, slots=True)
class OutputWork:
    """An output's part of a job. `schema` is that of the staged rows, `_epoch` included (its last column)."""

    plan: OutputPlan
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class EpochJob:
    """Read the epochs `[lower, upper)` of these sources for these outputs. `id` is unique for the attempt.

    late: whether these outputs are, so that an engine may prefer other jobs. beside: whether it is to leave half of
    the slots, where there are several, to other jobs.
    """

    id: str
    lower: int
    upper: int
    reads: tuple[SourceRead, ...]
    outputs: tuple[OutputWork, ...]
    late: bool = False
    beside: bool = False

    def slots(self, parallelism: int) -> int:
        """Return how many tasks of it run at once on an engine that runs this many."""
        return max(1, parallelism // 2) if self.beside else parallelism


@dataclass(frozen=True, slots=True)
class Staged:
    """What a job staged for one output."""

    files: tuple[StagedFile, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a job did: staged files by output, failures, and how much was read (records, source bytes)."""

    staged: Mapping[str, Staged]
    failures: tuple[Failure, ...] = ()
    records: Mapping[str, int] = field(default_factory=dict)
    bytes_read: Mapping[str, int] = field(default_factory=dict)


class Engine(Protocol):
    """Runs jobs. It knows neither epochs to come nor tables; it stages and reports."""

    @property
    def name(self) -> str:
        """The engine's name for people."""
        ...

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        ...

    def schema(self, plan: OutputPlan, source_schema: pa.Schema) -> pa.Schema:
        """Return the columns that the plan's steps give, with `_epoch` last, or raise the error of a step."""
        ...

    def rowwise(self, plan: OutputPlan, source_schema: pa.Schema) -> bool:
        """Whether each row that the plan's steps give is made of one row alone, as far as the engine knows.

        Other steps see all rows of an epoch. Raises the error of a step.
        """
        ...

    def submit(self, job: EpochJob) -> Future[JobResult]:
        """Start a job beside the caller. The future's exception is an engine failure, which may be tried again."""
        ...

    def work(self, tasks: Sequence[Work]) -> list[list[StagedFile]]:
        """Do tasks that stage files of a table, and return what each of them staged. See `sinks.working.Workers`."""
        ...

    def close(self) -> None:
        """Stop running jobs and release what this engine created."""
        ...
