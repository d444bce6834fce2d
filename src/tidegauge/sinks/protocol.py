"""What a sink is: tasks stage files, the driver commits them with the epoch in the table's own commit.

Invariants: staged rows that are not committed are invisible to every reader, and harmless for ever; `commit` is a
compare-and-append on the table's upper, so two drivers can never both append one epoch; the table itself has the last
word, and there is no copy of the upper anywhere else.

A sink is a picklable value, because its `stage` runs in tasks. `open` gives the driver's side of it, a `Table`.

Errors mean the same everywhere: `Transient` and `OSError` may pass, and are tried again after growing delays;
`Definite` fails the output and no other. `docs/how-to/write-a-sink.md` has a sink in full, and
`tidegauge.testing.kit.check_sink` tries all of this on yours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.datafiles import StagedFile, Volume

__all__ = [
    "Applying",
    "Finishing",
    "Identified",
    "Keeping",
    "OutputId",
    "Recoverable",
    "Replaceable",
    "Rereadable",
    "Resident",
    "Sink",
    "StagedFile",
    "Stager",
    "Standing",
    "Sweeping",
    "Table",
    "Volume",
    "job_mark",
]


def job_mark(incarnation: str) -> str:
    """Return the 16 hex digits that begin the names of a flow's jobs: they tell which flow staged a file."""
    return incarnation[-16:]


@dataclass(frozen=True, slots=True)
class OutputId:
    """Whose rows these are: the flow, the output, and the incarnation of the flow's store (32 hex digits)."""

    flow: str
    output: str
    incarnation: str

    def __str__(self) -> str:
        return f"{self.flow}:{self.output}"


class Stager(Protocol):
    """Writes one task's rows of one output. Not closed means not staged: whatever was written is left as litter.

    In a task, all calls in one thread. Exceptions that are not ours are tried again too; those of ours that are not
    `Transient` fail the output at that epoch.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; `_epoch` is one of the columns."""
        ...

    def close(self) -> list[StagedFile]:
        """Finish, make the files durable, and return them (none when no row was written)."""
        ...

    def abort(self) -> None:
        """Remove the files written so far."""
        ...


class Table(Protocol):
    """The driver's side of an opened sink.

    A commit runs beside the driver's thread, which calls everything else. While it is under way nothing is called but
    `discard`, of files that are no part of it. An error of ours that is neither `Transient` nor `Definite`, and any
    other that is no `OSError`, ends the run; after `TableUpperMismatch` the run opens its tables anew, unless another
    driver has taken over.
    """

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        ...

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper (`remap.history`), or its first digits, at least 15.

        None before the first commit, and where that was made by a version without digests.
        """
        ...

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the table, `_epoch` included, None before its first commit."""
        ...

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
        """Append `files` as the epochs `[lower, upper)`, in whole, or raise `TableUpperMismatch` and change nothing.

        The comparison is with the present table, not with the one that was opened. Creates the table with `schema`
        (which has `_epoch`) at its first commit; later, a `schema` that the table does not have is
        `TableSchemaChanged`. No files is a commit too: it moves the upper. `write` names the attempt.

        remove: committed files that the same commit takes out, as `files` told them; `files` may then have rows of
        their epochs too. With `lower == upper` the commit replaces files and moves no upper: it puts in as many rows
        as it takes out, and if the table shows that this was done already, it is done. A file that the table does not
        hold now is `FileNotHeld`. Files taken out stay readable by `files(as_of=...)` until somebody clears them
        away. A sink that can take nothing out raises `NothingTakenOut`.

        history: of these epochs, as far as we know it. The commit keeps its digest, and its links in a place where
        nothing that keeps the table short or tidy removes them. Raises `HistoriesDiffer`, and changes nothing, when
        the table was committed before with another history than that before `lower`.
        """
        ...

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files that will never be committed. Files already gone are not an error."""
        ...

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the committed data files of this output, in commit order.

        as_of: an epoch that the table holds; the files then have all rows that the table held when this was its last
        epoch, perhaps among rows of later epochs. Raises `EpochReplaced` where commits have taken some of them out
        and it cannot be told which.
        """
        ...

    def volume(self) -> Volume:
        """Return how much `files` come to, without a list of them where the table knows it."""
        ...

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return full paths or URIs of the given files, for a reader."""
        ...

    def version_of(self, epoch: int) -> str | None:
        """Return which commit of the table brought an epoch, in the table's own words.

        None if the table does not hold the epoch, or no longer knows which commit brought it.
        """
        ...

    def links(self) -> list[Link]:
        """Return the links of the flow's history that the table still has, in any order, some perhaps twice.

        What an attempt wrote that came to nothing is among them. Raises `DamagedHistory`.
        """
        ...


@runtime_checkable
class Sweeping(Protocol):
    """A `Table` that recognises files staged in vain, and so clears up after drivers that died."""

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Remove what earlier drivers of this flow staged and did not commit.

        Call it with the lease, before staging anything, and before reading the `upper` to begin from. A sweep may
        first have to shut out an earlier driver that still lives, and only then knows that driver's last commit: read
        `upper` only after sweeping; otherwise you restage epochs the table already has. `confirm` raises if the lease
        was lost meanwhile.
        """
        ...


@runtime_checkable
class Keeping(Protocol):
    """A `Table` whose staged files outlive their driver: a later one may commit them, with others, in one commit."""

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep files that earlier drivers staged from this object's sweep, if all are as they were staged.

        Return whether they are. If not, the sweep removes them, for all are staged again.

        Call it with the lease, before `sweep`.
        """
        ...


@runtime_checkable
class Replaceable(Protocol):
    """A `Table` all of whose rows can change places with others in one commit, whatever the columns of these are."""

    @property
    def edition(self) -> str:
        """The first digits, at least 15, of the edition that its rows are of; "" for the first one."""
        ...

    def replacement(self, edition: str) -> Table:
        """Return a table that holds nothing, until its first commit takes this one's rows out and puts its own in.

        From then on it is the table, in this edition. That commit raises `TableUpperMismatch`, and changes nothing,
        where the table has been committed to since it was opened, or has this edition already; what others have
        rewritten without changing rows is no hindrance. Until then, what looks at the files of a table sees none.
        edition: 32 hex digits.
        """
        ...

    def withdraw(self, edition: str) -> None:
        """Give the present rows another edition, durably: no replacement that was begun before takes their place.

        Raises `TableUpperMismatch` where the table has been committed to since it was opened. edition: 32 hex digits.
        """
        ...


@runtime_checkable
class Identified(Protocol):
    """A `Table` that is told from one which was made later in its place."""

    @property
    def made(self) -> str:
        """A text that was drawn when the table was made; "" before its first commit."""
        ...


@runtime_checkable
class Rereadable(Protocol):
    """A `Table` whose data files are read in a way of its own: those of others are Parquet files."""

    def reader(self) -> Callable[[str], Iterator[pa.RecordBatch]]:
        """Return the function that reads one of `uris`, with `_epoch`. It can be pickled, and runs in tasks.

        It raises FileNotFoundError for a file that is gone.
        """
        ...


@runtime_checkable
class Resident(Protocol):
    """A `Table` whose rows are in the memory of this process: no reader gets at them by `uris`."""

    def rows(self, files: Sequence[StagedFile]) -> pa.Table:
        """Return the rows of some of its committed files, with `_epoch`."""
        ...


@runtime_checkable
class Standing(Protocol):
    """A `Table` in a place that may be moved away, or be of a disk that is not mounted any more."""

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of a table that had commits.

        Asked before anything is staged, which would make its folders anew in the place where it was. In any thread.
        """
        ...


@runtime_checkable
class Finishing(Protocol):
    """A `Table` that does something beside the commits, which ends with the run."""

    def end(self) -> None:
        """Wait for the commit under way. No commit comes after it."""
        ...


@runtime_checkable
class Recoverable(Protocol):
    """A `Sink` from whose table a store can be recovered."""

    def incarnation(self, flow: str, output: str) -> str | None:
        """Return the incarnation of the store that an output's table was written with, None before its first commit.

        With a store that is lost nobody else knows it. Changes nothing.
        """
        ...


@runtime_checkable
class Removable(Protocol):
    """A `Sink` whose table can be removed, with all that is in it."""

    def check_removable(self, output: OutputId) -> None:
        """Raise `TableNotRemovable`, or as `Sink.open`, unless all of the table is this output's. Changes nothing."""
        ...

    def remove(self, output: OutputId) -> None:
        """Remove the table, or what an attempt has left that was cut short. Call it with the lease.

        Raises as `check_removable`, having changed nothing.
        """
        ...


@runtime_checkable
class Applying(Protocol):
    """A `Sink` that may take rows with an operation (`tidegauge.operations`). Any other is given plain rows alone."""

    @property
    def applies(self) -> bool:
        """Whether it takes them with its present options: it then applies each operation to the row of its key."""
        ...


@runtime_checkable
class Sink(Protocol):
    """Where an output's rows go."""

    @property
    def identity(self) -> str:
        """What it writes to, for comparison and for people: `/lake/orders`, `kafka:broker:9092/orders`.

        Two sinks with one identity write to one place, whatever else they were told. So it follows symbolic links,
        and names nothing that may change while the place stays the same. It holds no secrets.
        """
        ...

    @property
    def shared(self) -> bool:
        """Whether several outputs may write to one place, each with an upper of its own there.

        False for a table: it belongs to one output, and a second one is `TableTaken`.
        """
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration as JSON without secrets, for the store and for people."""
        ...

    def check(self, schema: pa.Schema) -> None:
        """Raise when rows of this schema (which has `_epoch`) could not be written.

        In the driver, beside its thread, before the first job of a run. An error of ours fails the output.
        """
        ...

    def open(self, output: OutputId) -> Table:
        """Return the present table. Changes nothing: commands that only look open it as well.

        When a run begins, and beside it when an output that was away may be back. Raises `TableOfAnotherIncarnation`
        when another life of the flow wrote it; an error that cannot pass ends the run.
        """
        ...

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> Stager:
        """Return a writer for one task of one job. Runs in a task; file names are unique for the attempt."""
        ...
