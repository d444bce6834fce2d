"""The commits of a Parquet table: the chain of their folders, followed to its end and held against the files.

Each begins where another ends, from epoch 0, at the name that the one before it leads to. A swap leads to the first
commit of another edition, and all commits before it count no more (`parquet.edition`).

Invariant: the commits that were taken in begin an edition of the chain, and leave none out. A folder that no commit
leads to, and a file that none names, is refused when the chain is followed from its beginning.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     now = Commits(folder, OutputId("shop", "users", "0" * 32))
...     now.follow()
...     now.upper, folder_name(now.upper, now.place), now.edition
(0, 'from_epoch=000000000000', '')
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from tidegauge.errors.sinks import BrokenChain, DamagedManifest, FilesChangedByOthers
from tidegauge.sinks.parquet.edition import first_folders, newest, visible
from tidegauge.sinks.parquet.manifest import MANIFEST, Manifest, commits_in, folder_name, slot_of
from tidegauge.sinks.protocol import OutputId, StagedFile

__all__ = ["ChainCommit", "Commits", "take_in"]

_Stamp: TypeAlias = tuple[int, int]


class ChainCommit(NamedTuple):
    """A commit of the chain. changes: whether it took out rows that the table held."""

    lower: int
    upper: int
    place: int
    changes: bool


class Commits:
    """The chain in `folder`, as far as it was followed.

    The next commit is at `upper` and `place`. files: those that the table holds. removed: those that were taken out,
    and may still be in sight. base: the place of the edition's first commit. swap: the folder of the swap that led to
    it, where that was met.
    """

    def __init__(self, folder: str, output: OutputId) -> None:
        self._folder: Final = folder
        self._output: Final = output
        self._last: tuple[Path, _Stamp] | None = None
        self._forget()

    def follow(self) -> None:
        """Follow the chain from the end that we know to its end now; from its beginning, if ours is not there."""
        if self._last is not None and _stamp(self._last[0]) == self._last[1]:
            self._walk()
            return
        while True:
            self._forget()
            listed = commits_in(self._folder, self._output)
            self._begin(newest(listed))
            try:
                self._walk()
                self._account(listed)
            except (BrokenChain, DamagedManifest, FilesChangedByOthers):
                if commits_in(self._folder, self._output) == listed:
                    raise  # else a commit, or a swap, has come between two looks
            else:
                return

    def folders(self, lower: int, place: int) -> list[Path]:
        """Return the places to look for a commit, in their order."""
        if (lower, place) == (0, self.base):
            return first_folders(self._folder, self.swap, place)
        return [Path(self._folder, folder_name(lower, place))]

    def read(self, lower: int, place: int) -> Manifest | None:
        """Return the manifest of a commit that begins at `lower`, checked to be ours; None when there is none."""
        paths = [folder / MANIFEST for folder in self.folders(lower, place)]
        text = _first_bytes(paths)
        if text is None and any(map(_filled, paths)):
            text = _first_bytes(paths)  # a commit is one rename: it may have come between the two looks
            if text is None:
                raise DamagedManifest(path=str(paths[-1]), detail="it is missing")
        if text is None:
            return None
        manifest = Manifest.decode(text, path=str(paths[-1]))
        if (manifest.lower, manifest.place) != (lower, place):
            raise DamagedManifest(path=str(paths[-1]), detail=f"it says that it begins at {manifest.lower}")
        if (lower == 0) != (manifest.schema is not None):
            detail = "the first manifest of an edition, and only it, has the schema"
            raise DamagedManifest(path=str(paths[-1]), detail=detail)
        manifest.check_owner(self._folder, self._output)
        return manifest

    def _forget(self) -> None:
        self.edition = ""
        self.removed: set[str] = set()
        self._begin(0)
        self._last = None

    def _begin(self, base: int, *, swap: str | None = None) -> None:
        """Begin with the first epoch of an edition."""
        self.base = self.place = base
        self.swap = swap
        self.upper = 0
        self.digest = ""
        self.schema: pa.Schema | None = None
        self.files: dict[str, StagedFile] = {}
        self.commits: list[ChainCommit] = []

    def _walk(self) -> None:
        """Take in the commits after the end that we know."""
        moved = False
        while (manifest := self.read(self.upper, self.place)) is not None:
            moved = True
            self._last = None  # until the end is reached: a walk that is broken off is begun anew
            self.edition = manifest.edition or self.edition
            if manifest.anew:
                self.removed.update(self.files)
                self._begin(manifest.anew, swap=manifest.folder)
                continue
            take_in(self.files, manifest)
            self.removed.update(manifest.removed)
            self.commits.append(ChainCommit(manifest.lower, manifest.upper, manifest.place, manifest.changes))
            if manifest.upper > self.upper:
                self.upper, self.place, self.digest = manifest.upper, self.base, manifest.digest
            else:
                self.place += 1
            if manifest.schema is not None:
                self.schema = manifest.schema
        if moved and self.commits:
            last = self.commits[-1]
            paths = [folder / MANIFEST for folder in self.folders(last.lower, last.place)]
            self._last = next(((path, stamp) for path in paths if (stamp := _stamp(path)) is not None), None)

    def _account(self, listed: Sequence[str]) -> None:
        """Raise unless the folders are those of commits, and hold their files and no others that readers would see.

        Folders of earlier editions hold none.
        """
        reached = {folder_name(one.lower, one.place) for one in self.commits}
        end = folder_name(self.upper, self.place)  # a folder of this name is empty, and gives way to the next commit
        stray = [name for name in listed if name not in reached and name != end and slot_of(name)[1] >= self.base]
        if stray:
            raise BrokenChain(table=self._folder, folder=stray[0], reached=end)
        there = {
            f"{name}/{file}"
            for name in reached.union(listed)
            for folder in self.folders(*slot_of(name))
            for file in visible(folder)
        }
        wanted = set(self.files)
        self.removed &= there  # the others are moved away
        if there - self.removed != wanted:
            missing, foreign = sorted(wanted - there), sorted(there - self.removed - wanted)
            raise FilesChangedByOthers(
                table=self._folder, output=str(self._output), upper=self.upper, missing=missing, foreign=foreign
            )


def take_in(files: dict[str, StagedFile], manifest: Manifest) -> None:
    """Bring the files of a table to what they are after one more commit. Raises `DamagedManifest`."""
    for path in manifest.removed:
        if files.pop(path, None) is None:
            where = f"{manifest.folder}/{MANIFEST}"
            raise DamagedManifest(path=where, detail=f"it takes out {path}, which no commit before it has")
    files.update((file.path, file) for file in manifest.files)


def _first_bytes(paths: Sequence[Path]) -> bytes | None:
    """Return the bytes of the first of these files that is there, None where none is."""
    for path in paths:
        with suppress(FileNotFoundError):
            return path.read_bytes()
    return None


def _filled(manifest: Path) -> bool:
    """Whether there is something where a manifest is to be."""
    return manifest.parent.is_dir() and any(manifest.parent.iterdir())


def _stamp(path: Path) -> _Stamp | None:
    """Return what distinguishes a file from another one of its name, or None when there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
