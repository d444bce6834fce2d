"""The driver's side of a Parquet table: the chain of its commits, followed to its end, and the next one added.

Invariant (compare-and-append): the folders are a chain, each beginning where another ends, from epoch 0. A commit at
`lower` is the rename of a finished folder onto `from_epoch=<lower>`, which the file system refuses when a commit
is there already. So of two drivers one wins, and the table's upper is the end of the chain. A commit that only
replaces files takes the same place in the chain, and the next one the same name with one more zero before the number.

A commit that takes files out names them in its manifest, so our readers see them go with the same rename. Readers
that list the folder see them until they are moved to `_removed`, right after it, or at the next run if the driver
dies in between; for so long they see replaced rows twice.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from tidegauge.errors.sinks import (
    BrokenChain,
    DamagedManifest,
    EpochReplaced,
    FilesChangedByOthers,
    TableSchemaChanged,
    TableUpperMismatch,
)
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import discard, sweep
from tidegauge.sinks.columns import differences, rows_schema
from tidegauge.sinks.commits import all_staged, check_span, expect, staged_status, still_to_do
from tidegauge.sinks.location import LocalFiles, gone, inside, make_folder, synchronise, writing
from tidegauge.sinks.parquet.manifest import (
    MANIFEST,
    REMOVED,
    Manifest,
    commits_in,
    folder_name,
    gathered,
    links_of,
    placed,
    remove_empty,
    ungathered,
)
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark

__all__ = ["ParquetChain"]

_TAKEN: Final = frozenset([errno.ENOTEMPTY, errno.EEXIST])
_Stamp: TypeAlias = tuple[int, int]


class _Commit(NamedTuple):
    """A commit of the chain. changes: whether it took out rows that the table held."""

    lower: int
    upper: int
    place: int
    changes: bool


class ParquetChain:
    """A `Table`: the chain of commits in `folder`, as the output `output` sees it."""

    def __init__(self, folder: str, output: OutputId) -> None:
        self._folder: Final = folder
        self._output: Final = output
        self._kept: frozenset[str] = frozenset()
        self._forget()
        self._follow()

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
        self._follow()
        return self._schema

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
        self._follow()
        if self._upper != lower:
            raise self._mismatch(lower)
        expect(self, self._output, history)
        if self._schema is not None and (detail := differences(self._schema, columns)):
            raise TableSchemaChanged(table=self._folder, output=str(self._output), detail=detail)
        if remove and not self._is_to_do(files, remove, replaces=lower == upper):
            return
        for file in files:
            staged_status(self._folder, file)
        name = folder_name(lower, self._place)
        target = Path(self._folder, name)
        manifest = Manifest(
            self._output,
            lower,
            upper,
            write,
            tuple(placed(file, name) for file in files),
            columns if self._schema is None else None,
            history.digest,
            removed=tuple(file.path for file in remove),
            place=self._place,
        )
        with writing(self._folder), gathered(self._folder, files, manifest, history) as folder:
            try:
                # rename(2) also replaces a folder that is empty; a commit never is, it has its manifest
                folder.rename(target)
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
                self._follow()
                raise self._mismatch(lower) from error
        with writing(self._folder):
            synchronise(self._folder)
        remove_empty(self._folder, files)
        self._follow()
        with suppress(OSError):  # the commit is made; what stays in sight is moved by the next run
            self._move_removed()

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. A file that was committed is not where it was staged, and so is safe."""
        discard(LocalFiles(self._folder), files)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table."""
        if (upper := self._upper) and gone(Path(self._folder, folder_name(0))):
            raise TableUpperMismatch(table=self._folder, output=str(self._output), expected=upper, actual=0)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep files from the sweep, also those that a commit had gathered; say whether all are there."""
        ungathered(self._folder, files, job_mark(self._output.incarnation))
        self._kept = frozenset(file.path.split("/")[1] for file in files)
        return all_staged(self._folder, files)

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Remove what earlier drivers of this flow staged and did not commit; `attempt` has the argument.

        Files that they had taken out, and left in sight, are moved out of it.
        """
        if self._removed:
            confirm()
            with suppress(OSError):
                self._move_removed()
        sweep(LocalFiles(self._folder), job_mark(self._output.incarnation), confirm, kept=self._kept)

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the committed files in commit order.

        as_of: where rows were taken out since this epoch, the files are those before; `EpochReplaced` where one
        commit holds the epoch and took them out. They stay readable as long as nobody clears `_removed`.
        """
        self._follow()
        later = (
            at for at, one in enumerate(self._commits) if one.changes and as_of is not None and as_of < one.upper - 1
        )
        change = next(later, None)
        if change is None or as_of is None:
            return list(self._files.values())
        if self._commits[change].lower <= as_of:
            raise EpochReplaced(table=self._folder, epoch=as_of)
        held: dict[str, StagedFile] = {}
        for one in self._commits[:change]:
            manifest = self._read(one.lower, one.place)
            if manifest is not None:
                take_in(held, manifest)
        return [file if file.path in self._files else self._moved(file) for file in held.values()]

    def volume(self) -> Volume:
        """Return how much the committed files come to."""
        return Volume.of(self.files())

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return absolute paths of the files."""
        return [str(inside(self._folder, file.path)) for file in files]

    def version_of(self, epoch: int) -> str | None:
        """Return the name of the folder whose commit brought the epoch, None for one that is not held."""
        self._follow()
        if not 0 <= epoch < self._upper:
            return None
        at = bisect_right(self._commits, epoch, key=lambda one: one.lower)
        return next(folder_name(one.lower, one.place) for one in reversed(self._commits[:at]) if epoch < one.upper)

    def links(self) -> list[Link]:
        """Return the links that all commits have. Raises `DamagedHistory`."""
        self._follow()
        found = list[Link]()
        for one in self._commits:
            if (manifest := self._read(one.lower, one.place)) is not None:
                found += links_of(self._folder, manifest)
        return found

    # -- files that are taken out

    def _is_to_do(self, files: Sequence[StagedFile], remove: Sequence[StagedFile], *, replaces: bool) -> bool:
        """Return whether a commit that takes files out is still to be made."""
        held = {path.rpartition("/")[2]: path for path in self._files}  # the commit gives staged files a new folder
        paths = [held.get(file.path.rpartition("/")[2], "") for file in files]
        return still_to_do(paths, remove, self._files, table=self._folder, replaces=replaces)

    def _move_removed(self) -> None:
        """Move files that commits have taken out away from readers that list the folder."""
        away = Path(self._folder, REMOVED)
        for path in [*self._removed]:
            make_folder(away)
            with suppress(FileNotFoundError):  # another driver has moved it, or it was cleared away
                inside(self._folder, path).rename(away / path.rpartition("/")[2])
            self._removed.discard(path)

    def _moved(self, file: StagedFile) -> StagedFile:
        """Return a file that was taken out where it is now."""
        away = f"{REMOVED}/{file.path.rpartition('/')[2]}"
        return replace(file, path=away) if inside(self._folder, away).exists() else file

    # -- the chain

    def _forget(self) -> None:
        self._upper = 0
        self._place = 0
        self._digest = ""
        self._schema: pa.Schema | None = None
        self._files: dict[str, StagedFile] = {}
        self._removed: set[str] = set()
        self._commits: list[_Commit] = []
        self._last: tuple[Path, _Stamp] | None = None

    def _follow(self) -> None:
        """Follow the chain from the end that we know to its end now; from its beginning, if ours is not there."""
        if self._last is None or _stamp(self._last[0]) != self._last[1]:
            self._forget()
            listed = commits_in(self._folder, self._output)
            reached = self._walk()
            end = folder_name(
                self._upper, self._place
            )  # a folder of this name is empty, and gives way to the next commit
            stray = [name for name in listed if name not in reached and name != end]
            if stray:
                raise BrokenChain(table=self._folder, folder=stray[0], reached=end)
            self._account(reached)
        else:
            self._walk()

    def _walk(self) -> set[str]:
        """Take in the commits after the end that we know; return the names of their folders."""
        reached: set[str] = set()
        while (manifest := self._read(self._upper, self._place)) is not None:
            reached.add(manifest.folder)
            self._last = None  # until the end is reached: a walk that is broken off is begun anew
            take_in(self._files, manifest)
            self._removed.update(manifest.removed)
            self._commits.append(_Commit(manifest.lower, manifest.upper, manifest.place, manifest.changes))
            if manifest.upper > self._upper:
                self._upper, self._place, self._digest = manifest.upper, 0, manifest.digest
            else:
                self._place += 1
            if manifest.schema is not None:
                self._schema = manifest.schema
        if reached:
            last = self._commits[-1]
            path = Path(self._folder, folder_name(last.lower, last.place), MANIFEST)
            stamp = _stamp(path)
            self._last = None if stamp is None else (path, stamp)
        return reached

    def _account(self, folders: Iterable[str]) -> None:
        """Raise unless the commits' folders hold their files and no others that a reader would take for rows."""
        there = {
            f"{folder}/{entry.name}"
            for folder in folders
            for entry in os.scandir(Path(self._folder, folder))
            if not entry.name.startswith(("_", "."))
        }
        wanted = set(self._files)
        self._removed &= there  # the others are moved away
        if there - self._removed != wanted:
            missing, foreign = sorted(wanted - there), sorted(there - self._removed - wanted)
            raise FilesChangedByOthers(
                table=self._folder, output=str(self._output), upper=self._upper, missing=missing, foreign=foreign
            )

    def _read(self, lower: int, place: int) -> Manifest | None:
        """Return the manifest of a commit that begins at `lower`, checked to be ours; None when there is none."""
        path = Path(self._folder, folder_name(lower, place), MANIFEST)
        text = _bytes(path)
        if text is None and path.parent.is_dir() and any(path.parent.iterdir()):
            text = _bytes(path)  # a commit is one rename: it may have come between the two looks
            if text is None:
                raise DamagedManifest(path=str(path), detail="it is missing")
        if text is None:
            return None
        manifest = Manifest.decode(text, path=str(path))
        if (manifest.lower, manifest.place) != (lower, place):
            raise DamagedManifest(path=str(path), detail=f"it says that it begins at {manifest.lower}")
        if (lower == 0) != (manifest.schema is not None):
            raise DamagedManifest(path=str(path), detail="the first manifest, and only it, has the schema")
        manifest.check_owner(self._folder, self._output)
        return manifest

    def _mismatch(self, expected: int) -> TableUpperMismatch:
        return TableUpperMismatch(table=self._folder, output=str(self._output), expected=expected, actual=self._upper)


def take_in(files: dict[str, StagedFile], manifest: Manifest) -> None:
    """Bring the files of a table to what they are after one more commit. Raises `DamagedManifest`."""
    for path in manifest.removed:
        if files.pop(path, None) is None:
            where = f"{manifest.folder}/{MANIFEST}"
            raise DamagedManifest(path=where, detail=f"it takes out {path}, which no commit before it has")
    files.update((file.path, file) for file in manifest.files)


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _stamp(path: Path) -> _Stamp | None:
    """Return what distinguishes a file from another one of its name, or None when there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
