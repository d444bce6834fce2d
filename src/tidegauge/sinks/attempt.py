"""What an attempt at a task writes: rows that come together in memory, files, and the litter it leaves if it dies.

    <table>/_staged/<job>/part-....parquet    staged by a task
    <table>/_staged/commit-<job>/...          gathered for a commit that did not come to its last step
    <table>/_staged/removed-<either>/...      on its way out

Invariant: no two attempts write one file, not even two at one task; what `AttemptFiles.close` returns is durable,
and its names are; `AttemptFiles.abort` leaves nothing; `sweep` removes nothing that is not proved to be ours and
abandoned.

>>> stem_of("0" * 32, 7)
'part-00000000000000000000000000000000-00007'

*Ours.* A job's name begins with the mark of its flow (`job_mark`): 60 random bits that were drawn when the flow came
into its store. Another flow, even one that was pointed at this folder by mistake, has another mark. Whatever else
lies here is left alone.

*Abandoned.* No job's name is used twice. The caller has the flow's lease, and has staged nothing yet. First the
folders are listed, then `confirm` checks that the lease was ours all the time. So every folder in the list is of a
driver that had the lease before and has it no more. No clock is asked, and files staged after the check are not in
the list. A job whose files are to be committed yet is not abandoned (`kept`).

*In use all the same?* A driver that lost its lease may be alive: asleep, or behind a slow network. It cannot
publish, but it may yet come to commit. A commit is one rename of its folder; so is the first step of a removal. Of
two renames of one folder the file system lets one win. If it is the commit, there is nothing left to remove. If it
is the removal, the commit fails in whole. Nothing is ever removed from under a manifest. A task that still writes,
writes into a folder that nobody will commit. Readers never look into folders whose names begin with "_".

An object store renames nothing. There the folders that are listed stay until this driver's own next commit is made
(`parquet.bucket`), which takes the name that any commit of an earlier driver was to have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import MisplacedRows
from tidegauge.sinks.columns import EPOCH, fit
from tidegauge.sinks.layout.values import PartitionValues
from tidegauge.sinks.location import AWAY, StagingFiles, writing
from tidegauge.sinks.protocol import StagedFile

__all__ = [
    "STAGED",
    "AttemptFiles",
    "FileContent",
    "OpenFile",
    "Waiting",
    "discard",
    "fitting",
    "folders_of",
    "left_by",
    "stem_of",
    "sweep",
]

STAGED: Final = "_staged"
"""The folder of staged files, where they have one of their own: readers skip names that begin with "_"."""
_JOB: Final = re.compile(r"[0-9a-f]{32}")
_NAME: Final = re.compile(rf"(?:{AWAY})?(?:commit-)?([0-9a-f]{{16}})[0-9a-f]{{16}}")


class FileContent(NamedTuple):
    """What a finished file holds; see `StagedFile`."""

    rows: int
    first_epoch: int
    last_epoch: int
    statistics: str = ""


class OpenFile(Protocol):
    """A file that is being written."""

    def finish(self) -> FileContent:
        """Write the rest, close the file, and say what it holds."""
        ...

    def drop(self) -> None:
        """Let go of the file, which is about to be removed; whether its last bytes can be written does not matter."""
        ...


F = TypeVar("F", bound=OpenFile)


class Waiting:
    """Batches that come together until they are enough to be written."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self.bytes = 0
        self._schema: Final = schema
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch of the schema."""
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def take(self) -> pa.Table:
        """Return all of them as one table, and forget them."""
        taken = pa.Table.from_batches(self._batches, schema=self._schema)
        self._batches.clear()
        self.rows = self.bytes = 0
        return taken


class AttemptFiles(Generic[F]):
    """The files of one attempt, written one after the other into the folder `prefix` of `place`.

    partition: the values that all their rows have, see `StagedFile`.
    """

    def __init__(
        self, place: StagingFiles, prefix: str, *, stem: str, suffix: str, partition: PartitionValues = ()
    ) -> None:
        self.open: F | None = None
        self.closed = False
        self._place: Final = place
        self._prefix: Final = prefix
        self._stem: Final = place.own(stem)
        self._suffix: Final = suffix
        self._partition: Final = partition
        self._number = 0
        self._paths: list[str] = []
        self._staged: list[StagedFile] = []

    def begin(self, make: Callable[[Any], F]) -> F:
        """Open the next file that nobody has, made by `make` of its stream.

        An earlier attempt at this task may have left files, or still be writing: creation is exclusive, so it keeps
        its own, and what it wrote is never committed.
        """
        while True:
            name = f"{self._stem}-{self._number:03d}{self._suffix}"
            path = f"{self._prefix}/{name}" if self._prefix else name
            self._number += 1
            try:
                stream = self._place.create(path)
            except FileExistsError:
                continue
            self._paths.append(path)
            self.open = make(stream)
            return self.open

    def finish(self) -> None:
        """Finish the open file, if there is one."""
        if self.open is not None:
            with writing(self._place.root):
                found = self.open.finish()
            path = self._paths[-1]
            size = self._place.keep(path)
            ends = found.first_epoch, found.last_epoch
            said = found.statistics
            self._staged.append(StagedFile(path, found.rows, size, *ends, said, self._partition))
            self.open = None

    def close(self) -> list[StagedFile]:
        """Finish, make the names durable too, and return the files; none when none was begun."""
        if not self.closed:
            self.finish()
            if self._staged:
                self._place.keep_names(self._prefix)
            self.closed = True
        return list(self._staged)

    def abort(self) -> None:
        """Remove the written files."""
        self.closed = True
        if self.open is not None:
            self.open.drop()
            self.open = None
        for path in self._paths:
            self._place.remove(path)
        self._paths.clear()
        self._staged.clear()


def fitting(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return rows in their staged form. Raises `BatchDoesNotFit`; `MisplacedRows` for a row without an epoch."""
    rows = fit(batch, columns)
    if rows.column(EPOCH).null_count:
        raise MisplacedRows(found="without an epoch", expected="any epoch")
    return rows


def stem_of(job: str, task: int) -> str:
    """Return how the names of a task's files begin. Raises `InvalidArgument`."""
    if _JOB.fullmatch(job) is None:
        raise InvalidArgument(parameter="job", value=job, expected="32 hex digits")
    if task < 0:
        raise InvalidArgument(parameter="task", value=task, expected="a number from 0")
    return f"part-{job}-{task:05d}"


def discard(place: StagingFiles, files: Sequence[StagedFile]) -> None:
    """Remove staged files, and their jobs' folders if nothing is left in them."""
    for file in files:
        if not file.path.startswith(f"{STAGED}/"):
            raise InvalidArgument(parameter="files", value=file.path, expected="files that were staged")
        place.remove(file.path)
    for folder in folders_of(files):
        place.prune(folder)


def folders_of(files: Sequence[StagedFile]) -> list[str]:
    """Return the folders of staged files, below the one that all of them are below; the inner ones first.

    >>> folders_of([StagedFile("_staged/job/day=1/part-0", 1, 1, 0, 0)])
    ['_staged/job/day=1', '_staged/job']
    """
    parts = [file.path.split("/") for file in files]
    found = {"/".join(one[:end]) for one in parts for end in range(2, len(one))}
    return sorted(found, key=lambda folder: -folder.count("/"))


def sweep(
    place: StagingFiles, mark: str, confirm: Callable[[], None], *, kept: Collection[str] = frozenset()
) -> None:
    """Remove what jobs of the flow `mark` left in the folder `STAGED`; the module has the argument.

    `confirm` raises when the lease is lost, and nothing is removed. What the file system does not let go stays: it is
    invisible and harmless. kept: names of jobs whose files are still to be committed.
    """
    found = left_by(place, mark, kept=kept)
    if not found:
        return
    confirm()
    # Those on their way out come first, which makes way for the others' names.
    for name in sorted(found, key=lambda name: (not name.startswith(AWAY), name)):
        with suppress(OSError):
            place.clear(f"{STAGED}/{name}")


def left_by(place: StagingFiles, mark: str, *, kept: Collection[str]) -> list[str]:
    """Return the folders in `STAGED` that jobs of the flow `mark` have left."""
    left = [name for name in place.folders(STAGED) if name not in kept]
    return [name for name in left if (job := _NAME.fullmatch(name)) is not None and job[1] == mark]
