"""An output in the memory of the driver's process, for tests and notebooks.

    tasks     rows -> Arrow files in a folder that the driver sees
    driver    those of a commit -> memory; the files are removed

Invariant: the rows, the upper and the digest are one value that a commit replaces, so every look shows whole
commits. Nothing of it outlives the process: the sink of the next one has another identity, so that its output is new
to the store, and gets all of its epochs.

>>> sink = MemorySink()
>>> schema = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> table = sink.open(OutputId("shop", "users", "0" * 32))
>>> stager = sink.stage(schema, job="1" * 32, task=0)
>>> stager.write(pa.record_batch({"user": ["ada"], "_epoch": [0]}))
>>> table.commit(0, 2, schema, stager.close(), write="2" * 32)
>>> table.upper, sink.table().to_pylist()
(2, [{'user': 'ada', '_epoch': 0}])
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.foreach import RowsInOtherProcess
from tidegauge.errors.sinks import (
    ForeignTable,
    NothingTakenOut,
    OutputIsNoTable,
    TableOfAnotherIncarnation,
    TableUpperMismatch,
)
from tidegauge.evolution import Evolution, filled, wider
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import discard, sweep
from tidegauge.sinks.columns import EPOCH, rows_schema
from tidegauge.sinks.commits import check_span, expect, staged_status
from tidegauge.sinks.evolving import gained, grown
from tidegauge.sinks.location import LocalFiles, local_folder
from tidegauge.sinks.ordered import OrderedStager, merged
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark
from tidegauge.sinks.temporary import make_own_folder, own_folder

__all__ = ["MemorySink", "MemoryTable"]


@dataclass(frozen=True, slots=True)
class _InMemory:
    """All that a sink holds, of `owner`. files: those of the commits, each with its rows."""

    owner: OutputId | None = None
    upper: int = 0
    digest: str = ""
    write: str = ""
    schema: pa.Schema | None = None
    files: tuple[tuple[StagedFile, pa.Table], ...] = ()


class _Memory:
    """Holds it, for all tables that a sink opens. lock: of those that commit."""

    def __init__(self) -> None:
        self.held = _InMemory()
        self.lock: Final = threading.Lock()


@dataclass(frozen=True)
class MemorySink:
    """Keep an output in the memory of this process.

    Read it with `table()`, or with `tg.read_arrow` and `tg.read` in the same process. A new sink, such as
    that of the next process, is another table: its output is late, and gets all epochs again.

    Args:
        staging: a folder that the driver and the tasks share, needed if they are on several machines. None stands for
            a folder in the system's temporary directory.
    """

    _: KW_ONLY
    staging: str | None = None
    name: str = field(default_factory=Env().unique, init=False)
    _memory: _Memory | None = field(default_factory=_Memory, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.staging is not None:
            object.__setattr__(self, "staging", local_folder(self.staging, sink="MemorySink(staging=...)"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the rows where they are: tasks only stage."""
        return _copied, (self.staging, self.name)

    def table(self) -> pa.Table:
        """Return all rows committed so far, in the order of epochs; before the first commit no rows, of `_epoch`."""
        held = self._here().held
        columns = pa.schema([(EPOCH, pa.int64())]) if held.schema is None else held.schema
        return pa.concat_tables([columns.empty_table(), *(rows for _, rows in held.files)])

    @property
    def identity(self) -> str:
        """The memory of this sink alone."""
        return f"memory:{self.name}"

    @property
    def shared(self) -> bool:
        """False: it belongs to one output."""
        return False

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        where = {} if self.staging is None else {"staging": self.staging}
        return {"kind": "memory", "name": self.name, **where}

    def check(self, schema: pa.Schema) -> None:
        """Raise `UnsupportedColumn`, `InvalidColumnName` or `EpochColumnMissing` when rows could not be held."""
        rows_schema(schema)

    def open(self, output: OutputId) -> MemoryTable:
        """Return the table. Raises `ForeignTable`, `TableOfAnotherIncarnation`, `RowsInOtherProcess`."""
        return MemoryTable(self._here(), self._folder, output, name=self.identity)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> OrderedStager:
        """Return a writer for one task of one job. `job` is 32 hex digits, `task` counts from 0."""
        if self.staging is None:
            make_own_folder(sink="MemorySink")
        return OrderedStager(LocalFiles(self._folder), rows_schema(schema), job=job, task=task)

    @property
    def _folder(self) -> str:
        return f"{own_folder() if self.staging is None else self.staging}/memory"

    def _here(self) -> _Memory:
        if self._memory is None:
            raise RowsInOtherProcess(sink=self.identity)
        return self._memory


def _copied(staging: str | None, name: str) -> MemorySink:
    """Return a copy of a sink, for a task."""
    copy = MemorySink(staging=staging)
    object.__setattr__(copy, "name", name)
    object.__setattr__(copy, "_memory", None)
    return copy


class MemoryTable:
    """A `Table` that can `sweep`: what a sink holds, as the output `output` sees it."""

    def __init__(self, memory: _Memory, folder: str, output: OutputId, *, name: str) -> None:
        self._memory: Final = memory
        self._folder: Final = folder
        self._output: Final = output
        self._name: Final = name
        self._how: Evolution = "strict"
        self._check_owner()

    @property
    def upper(self) -> int:
        """The first epoch that it does not hold."""
        return self._memory.held.upper

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper."""
        return self._memory.held.digest or None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns, None before the first commit."""
        return self._memory.held.schema

    def evolve(self, how: Evolution) -> None:
        """Take rows of other columns in this way from now on."""
        self._how = how

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that a commit of rows with this schema would add; raise what it would raise of them."""
        if (held := self.schema) is None:
            return ()
        return gained(held, self._grown(rows_schema(schema)))

    def _grown(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns once there are rows with these. Raises as `grown`."""
        if (held := self._memory.held.schema) is None:
            return columns
        return grown(held, columns, self._how, place=self._name, output=str(self._output), widens=wider, nests=True)

    def commit(
        self,
        lower: int,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        remove: Sequence[StagedFile] = (),
        write: str,
        history: History = NO_HISTORY,
    ) -> None:
        """Take in the rows of `files` as the epochs `[lower, upper)`, or raise and change nothing.

        Raises `NothingTakenOut`, `TableUpperMismatch`, `HistoriesDiffer`, `TableOfAnotherIncarnation`,
        `ForeignTable`, `TableSchemaChanged`, `ColumnsRefused`, `StagedFileMissing`, `MisplacedRows`.
        """
        if remove:
            raise NothingTakenOut(files=len(remove), table=self._name)
        check_span(lower, upper, files)
        columns = rows_schema(schema)
        with self._memory.lock:
            held = self._memory.held
            self._check_owner()
            if (held.upper, held.write) != (upper, write):  # else it is in already
                if held.upper != lower:
                    about = {"table": self._name, "output": str(self._output)}
                    raise TableUpperMismatch(**about, expected=lower, actual=held.upper)
                expect(self, self._output, history, mendable=False)
                known = self._grown(columns)
                self._memory.held = replace(
                    held,
                    owner=self._output,
                    upper=upper,
                    digest=history.digest,
                    write=write,
                    schema=known,
                    files=(
                        *((file, _anew(rows, known)) for file, rows in held.files),
                        *((file, self._read(file, known)) for file in files),
                    ),
                )
        self.discard(files)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files."""
        discard(LocalFiles(self._folder), files)

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Remove what earlier drivers of this flow staged and did not commit, for any output in memory."""
        sweep(LocalFiles(self._folder), job_mark(self._output.incarnation), confirm)

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:  # noqa: ARG002 - nothing is ever taken out
        """Return the files that were committed, in their order. Their rows are in memory (`rows`)."""
        return [file for file, _ in self._memory.held.files]

    def volume(self) -> Volume:
        """Return how much they come to, as they were staged."""
        return Volume.of(self.files())

    def rows(self, files: Sequence[StagedFile]) -> pa.Table:
        """Return the rows of committed files. Some must have been committed, or none be asked for."""
        held, wanted = self._memory.held, {file.path for file in files}
        columns = pa.schema([(EPOCH, pa.int64())]) if held.schema is None else held.schema
        found = [rows for file, rows in held.files if file.path in wanted]
        return pa.concat_tables([columns.empty_table(), *found])

    def uris(self, files: Sequence[StagedFile]) -> list[str]:  # noqa: ARG002
        """Raise `OutputIsNoTable`: no other reader gets at the rows."""
        raise OutputIsNoTable(output=self._output.output, place="the memory of a process")

    def version_of(self, epoch: int) -> str | None:  # noqa: ARG002
        """Return None: it does not keep which commit brought an epoch."""
        return None

    def links(self) -> list[Link]:
        """Return no links: a store is not recovered from memory."""
        return []

    def _check_owner(self) -> None:
        owner = self._memory.held.owner
        if owner is None or owner == self._output:
            return
        if (owner.flow, owner.output) != (self._output.flow, self._output.output):
            raise ForeignTable(table=self._name, output=str(self._output), detail=f"it has rows of '{owner}'")
        incarnation = self._output.incarnation
        raise TableOfAnotherIncarnation(table=self._name, output=str(self._output), incarnation=incarnation)

    def _read(self, file: StagedFile, columns: pa.Schema) -> pa.Table:
        staged_status(self._folder, file)
        batches = [filled(batch, columns) for _, batch in merged(self._folder, [file])]
        return pa.Table.from_batches(batches, schema=columns)


def _anew(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return rows with the columns that the table has by now."""
    if rows.schema.equals(columns):
        return rows
    return pa.Table.from_batches([filled(batch, columns) for batch in rows.to_batches()], schema=columns)
