"""The driver's side of a Parquet table: the chain of its commits, followed to its end, and the next one added.

Invariant (compare-and-append): the folders are a chain, each beginning where another ends, from epoch 0. A commit at
`lower` is the rename of a finished folder onto `from_epoch=<lower>`, which the file system refuses when a commit
is there already. So of two drivers one wins, and the table's upper is the end of the chain. A commit that only
replaces files takes the same place in the chain, and the next one the same name with one more zero before the number.

A commit that takes files out names them in its manifest, so our readers see them go with the same rename. Readers
that list the folder see them until they are moved to `_removed`, right after it, or at the next run if the driver
dies in between; for so long they see replaced rows twice. A swap (`parquet.edition`) takes all rows of before out,
and the chain goes on in a new edition, from epoch 0; a commit of an earlier edition is refused.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tidegauge.errors.sinks import DamagedManifest, EpochReplaced, TableSchemaChanged, TableUpperMismatch
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import discard, sweep
from tidegauge.sinks.columns import differences, rows_schema
from tidegauge.sinks.commits import all_staged, check_span, expect, staged_status, still_to_do
from tidegauge.sinks.location import LocalFiles, gone, make_folder, path_inside, synchronise, writing
from tidegauge.sinks.parquet.commits import Commits, take_in
from tidegauge.sinks.parquet.edition import finish
from tidegauge.sinks.parquet.manifest import (
    REMOVED,
    Manifest,
    commits_in,
    folder_name,
    gathered,
    links_of,
    placed,
    remove_empty,
    slot_of,
    ungathered,
)
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark

if TYPE_CHECKING:
    from tidegauge.sinks.parquet.replacement import ParquetReplacement

__all__ = ["ParquetChain"]

_TAKEN: Final = frozenset([errno.ENOTEMPTY, errno.EEXIST])


class _Taken(Exception):
    """The name of a commit is that of another one by now."""


class ParquetChain:
    """A `Table`: the chain of commits in `folder`, as the output `output` sees it."""

    def __init__(self, folder: str, output: OutputId) -> None:
        self._folder: Final = folder
        self._output: Final = output
        self._kept: frozenset[str] = frozenset()
        self._now: Final = Commits(folder, output)
        self._now.follow()
        self._opened: Final = self._now.edition

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        return self._now.upper

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper, None where the last commit has none."""
        return self._now.digest or None

    @property
    def schema(self) -> pa.Schema | None:
        """The present columns of the table, None before its first commit."""
        self._now.follow()
        return self._now.schema

    @property
    def edition(self) -> str:
        """The edition that its rows had when it was opened, "" for the first one."""
        return self._opened

    def replacement(self, edition: str) -> ParquetReplacement:
        """Return a table that holds nothing, until its first commit takes this one's place."""
        from tidegauge.sinks.parquet.replacement import ParquetReplacement

        return ParquetReplacement(self._folder, self._output, self, edition)

    def withdraw(self, edition: str) -> None:
        """Give the rows that are there another edition, so that no replacement which was begun takes their place."""
        upper = self._now.upper
        while True:
            self._now.follow()
            self._expect(upper)
            if self.added(replace(self.swap(edition), anew=0), []):
                return

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

        Also raises `FileNotHeld`, `HistoriesDiffer`, `TableOfAnotherIncarnation`, `TableSchemaChanged`,
        `StagedFileMissing`, `MisplacedRows`, `TableNotWritable` and `StagingElsewhere`; any other `OSError`, of a
        full disk for one, goes through.
        """
        check_span(lower, upper, files, remove=remove)
        columns = rows_schema(schema)
        self._now.follow()
        self._expect(lower)
        expect(self, self._output, history)
        if self._now.schema is not None and (detail := differences(self._now.schema, columns)):
            raise TableSchemaChanged(table=self._folder, output=str(self._output), detail=detail)
        if remove and not self._is_to_do(files, remove, replaces=lower == upper):
            return
        for file in files:
            staged_status(self._folder, file)
        self.finish()  # else those who list the folder would see its rows beside old ones
        manifest = Manifest(
            self._output,
            lower,
            upper,
            write,
            tuple(placed(file, folder_name(lower, self._now.place)) for file in files),
            columns if self._now.schema is None else None,
            history.digest,
            removed=tuple(file.path for file in remove),
            place=self._now.place,
            edition=self._now.edition,
        )
        if not self.added(manifest, files, history):
            self._now.follow()
            raise self._mismatch(lower)
        self._now.follow()
        with suppress(OSError):  # the commit is made; what stays in sight is moved by the next run
            self._move_removed()

    def added(
        self,
        manifest: Manifest,
        files: Sequence[StagedFile],
        history: History = NO_HISTORY,
        *,
        swap: Manifest | None = None,
    ) -> bool:
        """Add a commit at the end of the chain; False where somebody else has.

        swap: the manifest of a swap that the commit is to be out of sight in.
        """
        try:
            with writing(self._folder), gathered(self._folder, files, manifest, history, swap=swap) as folder:
                try:
                    # rename(2) also replaces a folder that is empty; a commit never is, it has its manifest
                    folder.rename(Path(self._folder, (swap or manifest).folder))
                except OSError as error:
                    raise (_Taken if error.errno in _TAKEN else error) from None
        except _Taken:
            return False
        with writing(self._folder):
            synchronise(self._folder)
        remove_empty(self._folder, files)
        return True

    def swap(self, edition: str) -> Manifest:
        """Return the swap that would put rows of another edition in the place of those that are there now."""
        now = self._now
        now.follow()
        upper, place = now.upper, now.place
        write = job_mark(self._output.incarnation) + edition[:16]
        anew = 1 + max([place, *(one.place for one in now.commits)])
        return Manifest(
            self._output, upper, upper, write, (), None, now.digest, place=place, edition=edition, anew=anew
        )

    def begun_by(self, write: str, edition: str) -> bool:
        """Whether the table is of this edition, and this attempt has made its first commit."""
        first = self._now.read(0, self._now.base) if self._now.edition == edition else None
        return first is not None and first.write == write

    def finish(self) -> None:
        """Finish a swap: those who list the folder then see the rows that are there, and no others."""
        if self._now.swap is not None:
            with writing(self._folder):
                finish(self._folder, self._now.swap, self._now.base)
            self._now.follow()

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. A file that was committed is not where it was staged, and so is safe."""
        discard(LocalFiles(self._folder), files)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table."""
        upper = self._now.upper
        if upper and all(map(gone, self._now.folders(0, self._now.base))):
            raise TableUpperMismatch(table=self._folder, output=str(self._output), expected=upper, actual=0)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep files from the sweep, also what a commit had gathered, if all are there; say whether they are."""
        ungathered(self._folder, files, job_mark(self._output.incarnation))
        there = all_staged(self._folder, files)
        self._kept = frozenset(file.path.split("/")[1] for file in files if there)
        return there

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Remove what earlier drivers of this flow staged and did not commit; `attempt` has the argument.

        Files that they had taken out, and left in sight, are moved out of it; a swap that they made is finished.
        """
        if self._now.swap is not None:
            confirm()
            self.finish()
        if self._now.removed:
            confirm()
            with suppress(OSError):
                self._move_removed()
        sweep(LocalFiles(self._folder), job_mark(self._output.incarnation), confirm, kept=self._kept)

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the committed files in commit order.

        as_of: where rows were taken out since this epoch, the files are those before; `EpochReplaced` where one
        commit holds the epoch and took them out. They stay readable as long as nobody clears `_removed`.
        """
        self._now.follow()
        later = (
            at
            for at, one in enumerate(self._now.commits)
            if one.changes and as_of is not None and as_of < one.upper - 1
        )
        change = next(later, None)
        if change is None or as_of is None:
            return list(self._now.files.values())
        if self._now.commits[change].lower <= as_of:
            raise EpochReplaced(table=self._folder, epoch=as_of)
        held: dict[str, StagedFile] = {}
        for one in self._now.commits[:change]:
            manifest = self._now.read(one.lower, one.place)
            if manifest is not None:
                take_in(held, manifest)
        return [file if file.path in self._now.files else self._moved(file) for file in held.values()]

    def volume(self) -> Volume:
        """Return how much the committed files come to."""
        return Volume.of(self.files())

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return absolute paths of the files."""
        first = Path(self._folder, folder_name(0, self._now.base))
        now = next(
            filter(Path.is_dir, self._now.folders(0, self._now.base)), first
        )  # its rows may be out of sight yet
        paths = [path_inside(self._folder, file.path) for file in files]
        return [str(now / path.name if path.parent == first else path) for path in paths]

    def version_of(self, epoch: int) -> str | None:
        """Return the name of the folder whose commit brought the epoch, None for one that is not held."""
        self._now.follow()
        if not 0 <= epoch < self._now.upper:
            return None
        at = bisect_right(self._now.commits, epoch, key=lambda one: one.lower)
        return next(
            folder_name(one.lower, one.place) for one in reversed(self._now.commits[:at]) if epoch < one.upper
        )

    def links(self) -> list[Link]:
        """Return the links that all commits have, those of earlier editions among them. Raises `DamagedHistory`."""
        self._now.follow()
        found = list[Link]()
        base = self._now.base
        for lower, place in {*map(slot_of, commits_in(self._folder, self._output)), (0, base)}:
            try:
                manifest = self._now.read(lower, place)
            except DamagedManifest:
                if place >= base:
                    raise
                continue  # it brings no row any more
            if manifest is not None:
                for folder in filter(Path.is_dir, self._now.folders(lower, place)):
                    found += links_of(folder, manifest)
        return found

    # -- files that are taken out

    def _is_to_do(self, files: Sequence[StagedFile], remove: Sequence[StagedFile], *, replaces: bool) -> bool:
        """Return whether a commit that takes files out is still to be made."""
        held = {
            path.rpartition("/")[2]: path for path in self._now.files
        }  # the commit gives staged files a new folder
        paths = [held.get(file.path.rpartition("/")[2], "") for file in files]
        return still_to_do(paths, remove, self._now.files, table=self._folder, replaces=replaces)

    def _move_removed(self) -> None:
        """Move files that commits have taken out away from readers that list the folder."""
        away = Path(self._folder, REMOVED)
        for path in [*self._now.removed]:
            make_folder(away)
            with suppress(FileNotFoundError):  # another driver has moved it, or it was cleared away
                path_inside(self._folder, path).rename(away / path.rpartition("/")[2])
            self._now.removed.discard(path)

    def _moved(self, file: StagedFile) -> StagedFile:
        """Return a file that was taken out where it is now."""
        away = f"{REMOVED}/{file.path.rpartition('/')[2]}"
        return replace(file, path=away) if path_inside(self._folder, away).exists() else file

    def _expect(self, lower: int) -> None:
        """Raise unless the table ends there. Rows of another edition are another table, at the same upper too."""
        if (self._now.upper, self._now.edition) != (lower, self._opened):
            raise self._mismatch(lower)

    def _mismatch(self, expected: int) -> TableUpperMismatch:
        return TableUpperMismatch(
            table=self._folder, output=str(self._output), expected=expected, actual=self._now.upper
        )
