"""The driver's side of a function: which epochs it is given now, and what follows from how it returned.

The order of a commit, each step safe to crash after:

    take the lock        no other driver on this machine is in the function
    compare              the progress file with what we know of it
    for each epoch       call the function with its rows; then write the progress file
    remove the staged files

Invariant: nobody calls the function for an epoch before the upper of the progress file, as long as the lock of the
file system holds. A commit that fails in the middle has moved the file, and is not over: tried again, it goes on with
the epoch that failed. `upper` stays at its beginning until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.base import Transient, brief, waited_out
from tidegauge.errors.foreach import EpochFunctionFailed, EpochFunctionWaits
from tidegauge.errors.history import DamagedHistory
from tidegauge.errors.sinks import (
    ForeignTable,
    NothingTakenOut,
    OutputIsNoTable,
    TableOfAnotherIncarnation,
    TableUpperMismatch,
)
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import discard, sweep
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import check_span, expect, staged_status
from tidegauge.sinks.foreach.function import EpochAttempt, EpochFunction
from tidegauge.sinks.foreach.progress import PROGRESS, GivenSoFar, alone, read, write
from tidegauge.sinks.location import LocalFiles, gone
from tidegauge.sinks.ordered import merged
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark

__all__ = ["TRIES", "FunctionOutput", "upto"]

TRIES: Final = 6
"""How often in a row an epoch may fail for a reason that may pass, about ten seconds; then it counts as failed.
Fewer than the attempts after which a run gives up, which other outputs would suffer from."""


def upto(history: History, lower: int, upper: int) -> History | None:
    """Return the part of a history that ends right before `upper` and has the epochs from `lower` on, None without.

    It says where the output begins, as the whole does.
    """
    links = [link for link in history.links if lower <= link.epoch < upper]
    if not links or links[-1].epoch != upper - 1:
        return None
    return History((*links[:-1], replace(links[-1], starts=history.links[-1].starts)))


class FunctionOutput:
    """A `Table` that can `sweep`: what the function has been given of the output `output`."""

    def __init__(self, function: EpochFunction, folder: str, output: OutputId, *, env: Env | None = None) -> None:
        self._function: Final = function
        self._folder: Final = folder
        self._output: Final = output
        self._env: Final = env or Env()
        self._failed = (0, 0)
        """The epoch that failed last, and how often in a row."""
        self._held = self._shown = self._read()
        """What the file says, as we know it; and what it said, or came to, at the end of the last commit."""

    @property
    def upper(self) -> int:
        """The first epoch for which the function has not returned, by the last commit seen."""
        return self._shown.upper

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper."""
        return self._shown.digest or None

    @property
    def schema(self) -> pa.Schema | None:
        """None: rows may have other columns at any time."""
        return None

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
        """Give the rows of `files` to the function, epoch by epoch, up to the first that fails.

        Raises `NothingTakenOut`, `TableUpperMismatch`, `HistoriesDiffer`, `TableOfAnotherIncarnation`,
        `StagedFileMissing`, `MisplacedRows`; `EpochFunctionFailed`, and `EpochFunctionWaits` and `EpochFunctionBusy`,
        which may pass.
        """
        if remove:
            raise NothingTakenOut(files=len(remove), table=self._folder)
        check_span(lower, upper, files)
        with alone(self._folder, output=str(self._output)):
            now = self._read()
            if now != self._held:
                self._held = self._shown = now
                if (now.upper, now.write) != (upper, write):  # else it was ours, and its answer was lost
                    raise self._mismatch(lower)
            elif self._shown.upper != lower and (now.upper, now.write) != (upper, write):
                raise self._mismatch(lower)
            elif self._shown.upper == lower:
                expect(self, self._output, history, mendable=False)
                self._give(files, rows_schema(schema), upper, write, history)
                ended = replace(self._held, upper=upper, digest=history.digest)
                self._shown = self._held if self._held.upper == upper else ended
        self.discard(files)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files."""
        discard(LocalFiles(self._folder), files)

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Remove what earlier drivers of this flow staged and did not commit."""
        sweep(LocalFiles(self._folder), job_mark(self._output.incarnation), confirm)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where the progress file is gone."""
        if self.upper and gone(Path(self._folder, PROGRESS)):
            about = {"table": self._folder, "output": str(self._output)}
            raise TableUpperMismatch(**about, expected=self.upper, actual=0)

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:  # noqa: ARG002 - there is no earlier state
        """Return one file that stands for all rows: how many the function was given, and their bytes in memory."""
        held = self._shown
        return [StagedFile(PROGRESS, held.rows, held.size, 0, held.upper - 1)] if held.upper else []

    def volume(self) -> Volume:
        """Return how many rows the function was given, as one file, and their bytes."""
        return Volume.of(self.files())

    def uris(self, files: Sequence[StagedFile]) -> list[str]:  # noqa: ARG002
        """Raise `OutputIsNoTable`."""
        raise OutputIsNoTable(output=self._output.output, place="the hands of a function")

    def version_of(self, epoch: int) -> str | None:  # noqa: ARG002
        """Return None: the file keeps the last commit alone."""
        return None

    def links(self) -> list[Link]:
        """Return the links of the progress file. Raises `DamagedHistory`."""
        try:
            return list(map(Link.decode, self._held.links))
        except ValueError as error:
            raise DamagedHistory(table=self._folder, path=PROGRESS, detail=str(error)) from error

    # -- the calls

    def _give(
        self, files: Sequence[StagedFile], columns: pa.Schema, upper: int, attempt: str, history: History
    ) -> None:
        """Call the function for each epoch that it lacks. The file says how far it has come, after each call."""
        for file in files:
            staged_status(self._folder, file)
        rows = size = 0
        for epoch, found in groupby(merged(self._folder, files), key=itemgetter(0)):
            if epoch < self._held.upper:
                continue
            given = _Counted(batch.select(columns.names) for _, batch in found)
            self._call(epoch, pa.RecordBatchReader.from_batches(columns, given))
            for _ in given:  # what the function left unread counts, too
                pass
            rows, size = rows + given.rows, size + given.size
            if epoch + 1 < upper and (told := upto(history, self._held.upper, epoch + 1)) is not None:
                self._write(self._held.after(epoch + 1, told, write=attempt, rows=rows, size=size))
                rows = size = 0
        if self._held.upper < upper:
            told = upto(history, self._held.upper, upper) or history
            self._write(self._held.after(upper, told, write=attempt, rows=rows, size=size))

    def _call(self, epoch: int, rows: pa.RecordBatchReader) -> None:
        output = self._output
        attempt = EpochAttempt(output.flow, output.output, output.incarnation, epoch, self._env.unique())
        try:
            self._function(rows, attempt)
        except Exception as error:
            count = self._failed[1] if self._failed[0] == epoch else 0
            self._failed = epoch, count + (not waited_out(error))
            passing = isinstance(error, OSError | Transient) and self._failed[1] < TRIES
            kind = EpochFunctionWaits if passing else EpochFunctionFailed
            name = getattr(self._function, "__qualname__", type(self._function).__name__)
            raise kind(function=name, output=str(output), epoch=epoch, detail=brief(error)[:500]) from error

    def _write(self, progress: GivenSoFar) -> None:
        write(self._folder, progress)
        self._held = progress

    # -- what is there

    def _read(self) -> GivenSoFar:
        output = self._output
        found = read(self._folder)
        if found is None:
            return GivenSoFar(output.flow, output.output, output.incarnation)
        if (found.flow, found.output) != (output.flow, output.output):
            detail = f"it is that of '{found.flow}:{found.output}'"
            raise ForeignTable(table=self._folder, output=str(output), detail=detail)
        if found.incarnation != output.incarnation:
            about = {"table": self._folder, "output": str(output)}
            raise TableOfAnotherIncarnation(**about, incarnation=output.incarnation)
        return found

    def _mismatch(self, expected: int) -> TableUpperMismatch:
        return TableUpperMismatch(table=self._folder, output=str(self._output), expected=expected, actual=self.upper)


class _Counted:
    """Batches on their way to the function, counted."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches: Final = batches
        self.rows = 0
        self.size = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.rows += batch.num_rows
        self.size += batch.nbytes
        return batch
