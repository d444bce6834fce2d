"""A sink of a simulation: a table of a `Lake` behind the seam of a sink, as our own tables behave.

Every call tells `meet` its name right before it does anything, and some right after: `POINTS` has them. The hook may
let other drivers run, raise an error of the outside world, or crash the driver.

Invariants. Between two calls of the hook a driver does one thing, in whole. Whatever the hook raises, the table holds
a commit in whole or not at all. As for our own tables, an error of a commit is a question, and the table knows the
answer: after an error at `committed` the attempt finds its own commit and goes on. One at `answer` is like an error
of the last `fsync`: the commit stands, its attempt has failed, and the next one finds that out.

>>> lake, seen = Lake(), []
>>> sink = SimulatedSink(lake, "orders", meet=seen.append)
>>> table = sink.open(OutputId("shop", "orders", "0" * 32))
>>> schema = pa.schema([("id", pa.int64()), ("_epoch", pa.int64())])
>>> stager = sink.stage(schema, job="1" * 32, task=0)
>>> stager.write(pa.record_batch({"id": [7], "_epoch": [0]}))
>>> table.commit(0, 2, schema, stager.close(), write="2" * 32)
>>> table.upper, lake.rows("orders").to_pylist()
(2, [{'id': 7, '_epoch': 0}])
>>> print(*seen)
open stage written close closed commit committed answer
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.errors.sinks import (
    ForeignTable,
    StagedFileMissing,
    TableOfAnotherIncarnation,
    TableUpperMismatch,
)
from tidegauge.evolution import Evolution, wider
from tidegauge.leftout import KeptByKey
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import stem_of
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import check_span, expect, still_to_do
from tidegauge.sinks.evolving import gained, grown
from tidegauge.sinks.location import inside
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark
from tidegauge.testing.simulation.tables.filling import filled_in
from tidegauge.testing.simulation.tables.lake import Lake, LakeCommit, LakeTable, uri_of
from tidegauge.testing.simulation.tables.stager import Meet, SimulatedStager

if TYPE_CHECKING:
    from tidegauge.sinks.replacement import TableReplacement

__all__ = [
    "DECIDED",
    "POINTS",
    "Meet",
    "SimulatedSink",
    "SimulatedTable",
    "answered",
    "check_staged",
    "unhooked",
]

POINTS: Final = (
    "open",
    "sweep",
    "stand",
    "stage",
    "written",
    "close",
    "closed",
    "abort",
    "commit",
    "committed",
    "answer",
    "discard",
)
"""The names of the calls, in the order of a driver's life. What ends in `ed`, and `answer`, come after the effect."""

DECIDED: Final = ("relabel", "relabelled", "remove", "removed")
"""Those of calls that people have decided: a table's rows get another edition, or the table goes."""


def unhooked(_point: str) -> None:
    """Let every call pass."""


@dataclass(frozen=True, slots=True)
class SimulatedSink:
    """Write an output to a table of a lake.

    Args:
        lake: where the table is.
        name: the table.
        meet: is told each call; see `POINTS`.
        applies: whether it takes rows with an operation. They are kept as they come; `applied` makes a table of them.
        keeps: how it fills in what changes leave out (`filling`), None where it does not.
    """

    lake: Lake
    name: str
    meet: Meet = unhooked
    applies: bool = False
    keeps: KeptByKey | None = None

    @property
    def identity(self) -> str:
        """The table."""
        return f"lake:{self.name}"

    @property
    def shared(self) -> bool:
        """False: the table belongs to one output."""
        return False

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON."""
        return {"kind": "lake", "name": self.name}

    def check(self, schema: pa.Schema) -> None:
        """Raise `UnsupportedColumn`, `InvalidColumnName` or `EpochColumnMissing` when rows could not be written."""
        rows_schema(schema)

    def incarnation(self, flow: str, output: str) -> str | None:
        """Return the incarnation that the first commit has, None where there is none."""
        table = self.lake.tables.get(self.name)
        owner = None if table is None else table.owner
        return None if owner is None or (owner.flow, owner.output) != (flow, output) else owner.incarnation

    def open(self, output: OutputId) -> SimulatedTable:
        """Return the present table. Raises `TableOfAnotherIncarnation` and `ForeignTable`."""
        self.meet("open")
        return SimulatedTable(self.lake, self.name, output, self.meet, self.keeps)

    def check_removable(self, output: OutputId) -> None:
        """Raise as `open`. Nobody else's files are in a table of the lake."""
        SimulatedTable(self.lake, self.name, output, unhooked)

    def remove(self, output: OutputId) -> None:
        """Remove the table, with the files that are staged beside it."""
        self.check_removable(output)
        self.meet("remove")
        self.lake.tables.pop(self.name, None)
        self.meet("removed")

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> SimulatedStager:
        """Return a writer for one task of one job. `job` is 32 hex digits, `task` counts from 0."""
        return SimulatedStager(self.lake, self.name, schema, self.meet, path=f"{job}/{stem_of(job, task)}")


class SimulatedTable:
    """A `Table`: the table `name` of a lake, as the output `output` sees it."""

    def __init__(self, lake: Lake, name: str, output: OutputId, meet: Meet, keeps: KeptByKey | None = None) -> None:
        self._lake: Final = lake
        self._name: Final = name
        self._output: Final = output
        self._meet: Final = meet
        self._keeps: Final = keeps
        self._kept: frozenset[str] = frozenset()
        self._how: Evolution = "strict"
        self._upper = 0
        self._digest = ""
        self.edition: Final = self._follow().edition

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        return self._upper

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper, None where the last commit has none."""
        return self._digest or None

    @property
    def schema(self) -> pa.Schema | None:
        """The present columns of the table, None before its first commit."""
        return self._follow().schema

    def evolve(self, how: Evolution) -> None:
        """Take rows of other columns in this way from now on."""
        self._how = how

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that a commit of rows with this schema would add; raise what it would raise of them."""
        held = self._follow().schema
        return () if held is None else gained(held, self._grown(held, rows_schema(schema)))

    def _grown(self, held: pa.Schema | None, columns: pa.Schema) -> pa.Schema:
        """Return the columns of the table once it has rows with these. Raises as `grown`."""
        if held is None or held is columns:
            return columns
        about: dict[str, Any] = {"place": self._name, "output": str(self._output), "widens": wider, "nests": True}
        return grown(held, columns, self._how, **about)

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
        """Append `files` as the epochs `[lower, upper)`, or raise `TableUpperMismatch` and change nothing.

        remove: files that the same commit takes out.

        Also raises `FileNotHeld`, `HistoriesDiffer`, `TableOfAnotherIncarnation`, `ForeignTable`,
        `TableSchemaChanged`, `ColumnsRefused`, `StagedFileMissing` and `MisplacedRows`, and what the hook raises.
        """
        check_span(lower, upper, files, remove=remove)
        columns = rows_schema(schema)
        self._meet("commit")
        table = self._expected(lower, history)
        after = self._grown(table.schema, columns)
        if remove:
            paths = [file.path for file in files]
            if not still_to_do(paths, remove, table.held, table=self._name, replaces=lower == upper):
                return
        check_staged(table, files, name=self._name)
        if self._keeps is not None:
            self._fill(table, files, self._keeps)
        self._lake.tables[self._name] = table
        table.append(
            LakeCommit(self._output, lower, upper, write, tuple(files), tuple(remove), history.digest, history.links),
            after,
        )
        answered(table, write, self._meet)
        self._follow()

    def _fill(self, table: LakeTable, files: Sequence[StagedFile], keeps: KeptByKey) -> None:
        """Put the values into staged rows that their changes leave out."""
        staged = {file.path: found for file in files if (found := table.staged[file.path]) is not None}
        batches = {path: found.batches for path, found in staged.items()}
        for path, filled in filled_in(batches, table.read(table.held), keeps, table=self._name).items():
            table.staged[path] = staged[path]._replace(batches=tuple(filled))

    def replacement(self, edition: str) -> TableReplacement:
        """Return the table that is to take the place of this one; see `Replaceable`."""
        from tidegauge.sinks.replacement import TableReplacement
        from tidegauge.testing.simulation.tables.replacement import SimulatedSwap

        seen = self.upper, self.edition
        return TableReplacement(self, SimulatedSwap(self._lake, self._name, self._output, self._meet, seen, edition))

    def withdraw(self, edition: str) -> None:
        """Give the rows another edition; see `Replaceable`."""
        self._meet("relabel")
        table = self._present()
        if (table.upper, table.edition) != (self._upper, self.edition):
            raise self._mismatch(self._upper, table.upper)
        table.edition = edition
        self._meet("relabelled")

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. Those that were committed are no longer among them."""
        for file in files:
            inside(self._name, file.path)
        self._meet("discard")
        staged = self._present().staged
        for file in files:
            staged.pop(file.path, None)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table."""
        self._meet("stand")
        if self._upper and not self._present().commits:
            raise self._mismatch(self._upper, 0)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep files from the sweep if all are there; say whether they are."""
        staged = self._present().staged
        there = all((found := staged.get(file.path)) is not None and found.file == file for file in files)
        self._kept = frozenset(file.path for file in files if there)
        return there

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Remove what earlier drivers of this flow staged and did not commit; `sinks.attempt` has the argument."""
        self._meet("sweep")
        mark = job_mark(self._output.incarnation)
        found = [path for path in self._present().staged if path.startswith(mark) and path not in self._kept]
        if found:
            confirm()
            staged = self._present().staged  # the rest of the world went on meanwhile
            for path in found:
                staged.pop(path, None)

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the committed files in commit order. Raises `EpochReplaced`."""
        return self._follow().files(as_of=as_of, name=self._name)

    def volume(self) -> Volume:
        """Return how much the committed files come to."""
        return self._follow().volume

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return what `Lake.read` finds the files by."""
        return [uri_of(self._name, file.path) for file in files]

    def reader(self) -> Callable[[str], Iterator[pa.RecordBatch]]:
        """Return the function that reads a committed file."""
        return self._lake.batches

    def version_of(self, epoch: int) -> str | None:
        """Return the number of the commit that brought the epoch, None for one that is not held."""
        found = self._follow().version_of(epoch)
        return None if found is None else str(found)

    def links(self) -> list[Link]:
        """Return the links that all commits have."""
        table = self._follow()
        return [link for commit in (*table.earlier, *table.commits) for link in commit.links]

    def _present(self) -> LakeTable:
        """Return the present table, an empty one where it is not there: looking makes none."""
        return self._lake.tables.get(self._name) or LakeTable()

    def _follow(self) -> LakeTable:
        """Take in how far the table is now, which must be ours."""
        table = self._present()
        self._upper, self._digest = 0, ""
        if (owner := table.owner) is not None and owner != self._output:
            if (owner.flow, owner.output) != (self._output.flow, self._output.output):
                detail = f"it was written by {str(owner)!r}"
                raise ForeignTable(table=self._name, output=str(self._output), detail=detail)
            incarnation = self._output.incarnation
            raise TableOfAnotherIncarnation(table=self._name, output=str(self._output), incarnation=incarnation)
        self._upper, self._digest = table.upper, table.digest
        return table

    def _expected(self, lower: int, history: History) -> LakeTable:
        """Return the table to commit to, unless it is not as a commit expects it."""
        table = self._follow()
        if table.upper != lower or table.edition != self.edition:
            raise self._mismatch(lower, table.upper)
        expect(self, self._output, history)
        return table

    def _mismatch(self, expected: int, actual: int) -> TableUpperMismatch:
        return TableUpperMismatch(table=self._name, output=str(self._output), expected=expected, actual=actual)


def check_staged(table: LakeTable, files: Sequence[StagedFile], *, name: str) -> None:
    """Raise `StagedFileMissing` for a file that is not beside a table as it was staged."""
    for file in files:
        staged = table.staged.get(file.path)
        if staged is None or staged.file.bytes != file.bytes:
            raise StagedFileMissing(path=file.path, table=name, problem="is not there as it was staged")


def answered(table: LakeTable, write: str, meet: Meet) -> None:
    """Hear what came of an attempt that a table has taken, which may be an error all the same."""
    try:
        meet("committed")
    except Exception:
        if not any(commit.write == write for commit in reversed(table.commits)):
            raise
    meet("answer")
