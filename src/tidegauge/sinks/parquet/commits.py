"""The commits of a Parquet table: the chain of their folders, followed to its end and held against the files.

Each begins where another ends, from epoch 0, at the name that the one before it leads to. A swap leads to the first
commit of another edition, and all commits before it count no more (`parquet.edition`).

Invariant: the commits that were taken in begin an edition of the chain, and leave none out. A folder that no commit
leads to, and a file that none names, is refused when the chain is followed from its beginning.

>>> import tempfile
>>> from tidegauge.sinks.parquet.ground import ground_of
>>> with tempfile.TemporaryDirectory() as folder:
...     now = Commits(ground_of(folder), OutputId("shop", "users", "0" * 32))
...     now.follow()
...     now.upper, folder_name(now.upper, now.place), now.edition
(0, 'from_epoch=000000000000', '')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from tidegauge.errors.sinks import BrokenChain, DamagedManifest, FilesChangedByOthers
from tidegauge.sinks.parquet.edition import newest
from tidegauge.sinks.parquet.ground import CommitSlot, Stamp, TableGround
from tidegauge.sinks.parquet.manifest import MANIFEST, Manifest, folder_name, only_commits, slot_of
from tidegauge.sinks.protocol import OutputId, StagedFile

__all__ = ["ChainCommit", "Commits", "take_in"]


class ChainCommit(NamedTuple):
    """A commit of the chain. changes: whether it took out rows that the table held."""

    lower: int
    upper: int
    place: int
    changes: bool


class Commits:
    """The chain on a ground, as far as it was followed.

    The next commit is at `upper` and `place`. files: those that the table holds. removed: those that were taken out,
    and may still be in sight. hidden: those of the last commit that may not be in sight yet. base: the place of the
    edition's first commit. made: the name of the attempt that made that. swap: the folder of the swap that led to it,
    where that was met.
    """

    def __init__(self, ground: TableGround, output: OutputId) -> None:
        self._ground: Final = ground
        self._folder: Final = ground.folder
        self._output: Final = output
        self._last: tuple[CommitSlot, Stamp] | None = None
        self._forget()

    def follow(self) -> None:
        """Follow the chain from the end that we know to its end now; from its beginning, if ours is not there."""
        if self._last is not None and self._ground.stamp(self._last[0]) == self._last[1]:
            self._walk()
            return
        while True:
            self._forget()
            listed = self.names()
            self._begin(newest(listed))
            try:
                self._walk()
                self._account(listed)
            except (BrokenChain, DamagedManifest, FilesChangedByOthers):
                if self.names() == listed:
                    raise  # else a commit, or a swap, has come between two looks
            else:
                return

    def names(self) -> list[str]:
        """Return the names of the commits' folders, sorted. Raises `ForeignTable` where there are other things."""
        return only_commits(self._ground.names(), self._folder, self._output)

    def slot(self, lower: int, place: int) -> CommitSlot:
        """Return where a commit is."""
        return CommitSlot(lower, place, self.swap if (lower, place) == (0, self.base) else None)

    def read(self, lower: int, place: int) -> Manifest | None:
        """Return the manifest of a commit that begins at `lower`, checked to be ours; None when there is none."""
        slot = self.slot(lower, place)
        if (text := self._ground.text(slot)) is None:
            return None
        path = f"{self._folder}/{slot.name}/{MANIFEST}"
        manifest = Manifest.decode(text, path=path)
        if (manifest.lower, manifest.place) != (lower, place):
            raise DamagedManifest(path=path, detail=f"it says that it begins at {manifest.lower}")
        if lower == 0 and manifest.schema is None:
            detail = "the first manifest of an edition has the schema, and it has none"
            raise DamagedManifest(path=path, detail=detail)
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
        self.made = ""
        self.schema: pa.Schema | None = None
        self.partition: tuple[str, ...] = ()
        self.files: dict[str, StagedFile] = {}
        self.hidden: set[str] = set()
        self.commits: list[ChainCommit] = []

    def took(self, manifest: Manifest) -> None:
        """Take in a commit that was added just now at the end that we know, as reading it would."""
        self._take(manifest)
        self._remember()

    def _walk(self) -> None:
        """Take in the commits after the end that we know."""
        moved = False
        while (manifest := self.read(self.upper, self.place)) is not None:
            moved = True
            self._take(manifest)
        if moved:
            self._remember()

    def _take(self, manifest: Manifest) -> None:
        self._last = None  # until the end is reached: a walk that is broken off is begun anew
        self.edition = manifest.edition or self.edition
        if manifest.anew:
            self.removed.update(self.files)
            self._begin(manifest.anew, swap=manifest.folder)
            return
        take_in(self.files, manifest)
        self.hidden = {file.path for file in manifest.files if self._ground.late}
        self.removed.update(manifest.removed)
        self.commits.append(ChainCommit(manifest.lower, manifest.upper, manifest.place, manifest.changes))
        if manifest.upper > self.upper:
            self.upper, self.place, self.digest = manifest.upper, self.base, manifest.digest
        else:
            self.place += 1
        if manifest.schema is not None:
            self.schema = manifest.schema
        if manifest.lower == 0:
            self.partition = manifest.partition
            self.made = self.made or manifest.write

    def _remember(self) -> None:
        """Remember the end, to go on from there."""
        if self.commits:
            last = self.slot(self.commits[-1].lower, self.commits[-1].place)
            stamp = self._ground.stamp(last)
            self._last = None if stamp is None else (last, stamp)

    def _account(self, listed: Sequence[str]) -> None:
        """Raise unless the folders are those of commits, and hold their files and no others that readers would see.

        Folders of earlier editions hold none.
        """
        reached = {folder_name(one.lower, one.place) for one in self.commits}
        end = folder_name(self.upper, self.place)  # a folder of this name is empty, and gives way to the next commit
        stray = [name for name in listed if name not in reached and name != end and slot_of(name)[1] >= self.base]
        if stray:
            raise BrokenChain(table=self._folder, folder=stray[0], reached=end)
        there = self._ground.visible(self.slot(*slot_of(name)) for name in reached.union(listed))
        wanted = set(self.files)
        self.removed &= there  # the others are moved away
        self.hidden = self._ground.staged(self.hidden & (wanted - there))
        if there - self.removed != wanted - self.hidden:
            missing, foreign = sorted(wanted - there - self.hidden), sorted(there - self.removed - wanted)
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
