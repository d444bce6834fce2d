"""The driver's side of a Parquet table: the chain of its commits, followed to its end, and the next one added.

Invariant (compare-and-append): the folders are a chain, each beginning where another ends, from epoch 0. A commit at
`lower` is the rename of a finished folder onto `from_epoch=<lower>`, which the file system refuses when a commit
is there already. So of two drivers one wins, and the table's upper is the end of the chain.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import (
    BrokenChain,
    DamagedManifest,
    FilesChangedByOthers,
    TableSchemaChanged,
    TableUpperMismatch,
)
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import sweep
from tidegauge.sinks.columns import differences, rows_schema
from tidegauge.sinks.commits import check_span, expect, staged_status
from tidegauge.sinks.location import gone, inside, synchronise, writing
from tidegauge.sinks.parquet.manifest import (
    MANIFEST,
    STAGED,
    Manifest,
    commits_in,
    folder_name,
    gathered,
    links_of,
    placed,
    remove_empty,
)
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark

__all__ = ["ParquetChain"]

_TAKEN: Final = frozenset([errno.ENOTEMPTY, errno.EEXIST])
_Stamp: TypeAlias = tuple[int, int]


class ParquetChain:
    """A `Table`: the chain of commits in `folder`, as the output `output` sees it."""

    def __init__(self, folder: str, output: OutputId) -> None:
        self._folder: Final = folder
        self._output: Final = output
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
        """The columns of the table as it is now, None before its first commit."""
        self._follow()
        return self._schema

    def commit(
        self,
        lower: int,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        write: str,
        history: History = NO_HISTORY,
    ) -> None:
        """Append `files` as the epochs `[lower, upper)`, or raise `TableUpperMismatch` and change nothing.

        Also raises `HistoriesDiffer`, `TableOfAnotherIncarnation`, `TableSchemaChanged`, `StagedFileMissing`,
        `MisplacedRows`, `TableNotWritable` and `StagingElsewhere`; any other `OSError`, of a full disk for one, goes
        through.
        """
        check_span(lower, upper, files)
        columns = rows_schema(schema)
        self._follow()
        if self._upper != lower:
            raise self._mismatch(lower)
        expect(self, self._output, history)
        if self._schema is not None and (detail := differences(self._schema, columns)):
            raise TableSchemaChanged(table=self._folder, output=str(self._output), detail=detail)
        for file in files:
            staged_status(self._folder, file)
        target = Path(self._folder, folder_name(lower))
        committed = tuple(placed(file, lower) for file in files)
        first = columns if self._schema is None else None
        manifest = Manifest(self._output, lower, upper, write, committed, first, history.digest)
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

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. A file that was committed is not where it was staged, and so is safe."""
        with writing(self._folder):
            for file in files:
                path = inside(self._folder, file.path)
                if not file.path.startswith(f"{STAGED}/"):
                    raise InvalidArgument(parameter="files", value=file.path, expected="files that were staged")
                path.unlink(missing_ok=True)
        remove_empty(self._folder, files)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table."""
        if (upper := self._upper) and gone(Path(self._folder, folder_name(0))):
            raise TableUpperMismatch(table=self._folder, output=str(self._output), expected=upper, actual=0)

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Remove what earlier drivers of this flow staged and did not commit; `attempt` has the argument."""
        sweep(Path(self._folder, STAGED), job_mark(self._output.incarnation), confirm)

    def files(self) -> list[StagedFile]:
        """Return the committed files in commit order."""
        self._follow()
        return list(self._files)

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
        return folder_name(self._lowers[bisect_right(self._lowers, epoch) - 1])

    def links(self) -> list[Link]:
        """Return the links that all commits have. Raises `DamagedHistory`."""
        self._follow()
        found = list[Link]()
        for lower in self._lowers:
            if (manifest := self._read(lower)) is not None:
                found += links_of(self._folder, manifest)
        return found

    # -- the chain

    def _forget(self) -> None:
        self._upper = 0
        self._digest = ""
        self._schema: pa.Schema | None = None
        self._files: list[StagedFile] = []
        self._lowers: list[int] = []
        self._last: tuple[Path, _Stamp] | None = None

    def _follow(self) -> None:
        """Follow the chain from the end that we know to its end now; from its beginning, if ours is not there."""
        if self._last is None or _stamp(self._last[0]) != self._last[1]:
            self._forget()
            listed = commits_in(self._folder, self._output)
            reached = self._walk()
            end = folder_name(self._upper)  # a folder of this name is empty, and gives way to the next commit
            stray = [name for name in listed if name not in reached and name != end]
            if stray:
                raise BrokenChain(table=self._folder, folder=stray[0], reached=end)
            self._account(reached)
        else:
            self._walk()

    def _walk(self) -> set[str]:
        """Take in the commits after the end that we know; return the names of their folders."""
        reached: set[str] = set()
        while (manifest := self._read(self._upper)) is not None:
            reached.add(folder_name(manifest.lower))
            self._last = None  # until the end is reached: a walk that is broken off is begun anew
            self._upper = manifest.upper
            self._digest = manifest.digest
            self._files.extend(manifest.files)
            self._lowers.append(manifest.lower)
            if manifest.schema is not None:
                self._schema = manifest.schema
        if reached:
            path = Path(self._folder, folder_name(self._lowers[-1]), MANIFEST)
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
        wanted = {file.path for file in self._files}
        if there != wanted:
            missing, foreign = sorted(wanted - there), sorted(there - wanted)
            raise FilesChangedByOthers(
                table=self._folder, output=str(self._output), upper=self._upper, missing=missing, foreign=foreign
            )

    def _read(self, lower: int) -> Manifest | None:
        """Return the manifest of the commit that begins at `lower`, checked to be ours; None when there is none."""
        path = Path(self._folder, folder_name(lower), MANIFEST)
        text = _bytes(path)
        if text is None and path.parent.is_dir() and any(path.parent.iterdir()):
            text = _bytes(path)  # a commit is one rename: it may have come between the two looks
            if text is None:
                raise DamagedManifest(path=str(path), detail="it is missing")
        if text is None:
            return None
        manifest = Manifest.decode(text, path=str(path))
        if manifest.lower != lower:
            raise DamagedManifest(path=str(path), detail=f"it says that it begins at {manifest.lower}")
        if (lower == 0) != (manifest.schema is not None):
            raise DamagedManifest(path=str(path), detail="the first manifest, and only it, has the schema")
        manifest.check_owner(self._folder, self._output)
        return manifest

    def _mismatch(self, expected: int) -> TableUpperMismatch:
        return TableUpperMismatch(table=self._folder, output=str(self._output), expected=expected, actual=self._upper)


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
