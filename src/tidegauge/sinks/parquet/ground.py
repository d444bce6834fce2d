"""The place that a Parquet table is in, as the chain of its commits needs it: a folder of a disk, or a bucket.

Invariant: `TableGround.add` makes a commit in one step, which is refused where somebody else has made one of that
name; whatever a text, a stamp or a listing says was there when it was asked for.

>>> ground_of("/lake/orders").folder, ground_of("s3://lake/orders").folder
('/lake/orders', 's3://lake/orders')
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidegauge.errors.sinks import DamagedManifest
from tidegauge.objects.address import is_address
from tidegauge.remap.history import History, Link
from tidegauge.sinks.attempt import discard, sweep
from tidegauge.sinks.commits import all_staged
from tidegauge.sinks.location import LocalFiles, gone, make_folder, path_inside, synchronise, writing
from tidegauge.sinks.parquet.edition import below, finish, first_folders, visible
from tidegauge.sinks.parquet.manifest import (
    MANIFEST,
    REMOVED,
    Manifest,
    folder_name,
    gathered,
    links_of,
    remove_empty,
    ungathered,
)
from tidegauge.sinks.protocol import StagedFile

__all__ = ["CommitSlot", "FolderGround", "Stamp", "TableGround", "ground_of"]

Stamp: TypeAlias = tuple[int, int]
_TAKEN: Final = frozenset([errno.ENOTEMPTY, errno.EEXIST])


class CommitSlot(NamedTuple):
    """Where a commit is, by its first epoch and its place. swap: the folder of the swap that led to it, if any."""

    lower: int
    place: int
    swap: str | None = None

    @property
    def name(self) -> str:
        """The name of its folder."""
        return folder_name(self.lower, self.place)


class TableGround(Protocol):
    """What the chain asks of the place of a table, and does there. Paths are relative to it."""

    @property
    def folder(self) -> str:
        """The table's folder or address."""
        ...

    @property
    def late(self) -> bool:
        """Whether the files of a commit come into sight after it."""
        ...

    def names(self) -> list[str]:
        """Return the names that readers who list the table see in it, sorted."""
        ...

    def stamp(self, slot: CommitSlot) -> Stamp | None:
        """Return what distinguishes a manifest from another one of its name, None when there is none."""
        ...

    def text(self, slot: CommitSlot) -> bytes | None:
        """Return the manifest of a commit, None where there is no commit. Raises `DamagedManifest`."""
        ...

    def visible(self, slots: Iterable[CommitSlot]) -> set[str]:
        """Return the paths of the files of commits that readers who list the table see."""
        ...

    def staged(self, paths: Iterable[str]) -> set[str]:
        """Return which of these committed files are not in sight yet, but where they were staged."""
        ...

    def away(self, paths: Iterable[str]) -> set[str]:
        """Return which of these files were taken out of sight."""
        ...

    def links(self, slot: CommitSlot, manifest: Manifest) -> list[Link]:
        """Return the links that a commit has. Raises `DamagedHistory`."""
        ...

    def add(self, manifest: Manifest, files: Sequence[StagedFile], history: History, swap: Manifest | None) -> bool:
        """Make a commit, out of sight in a swap if there is one; False where somebody else has one of its name."""
        ...

    def finish(self, slot: CommitSlot) -> None:
        """Take the rows before the swap that led to this commit out of sight, and then bring the commit into it."""
        ...

    def show(self, files: Sequence[StagedFile]) -> None:
        """Bring committed files into sight that are where they were staged."""
        ...

    def hide(self, path: str) -> None:
        """Take a file out of sight, to `_removed`; done where it is gone already."""
        ...

    def uris(self, paths: Sequence[str], *, first: CommitSlot, hidden: Collection[str]) -> list[str]:
        """Return where files are. first: the edition's first commit. hidden: those that may not be in sight yet."""
        ...

    def gone(self, slot: CommitSlot) -> bool:
        """Whether nothing is left of a commit."""
        ...

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files."""
        ...

    def keep(self, files: Sequence[StagedFile], mark: str) -> bool:
        """Put staged files back that a commit had gathered; say whether all are as they were staged."""
        ...

    def sweep(self, mark: str, confirm: Callable[[], None], *, kept: Collection[str]) -> None:
        """Remove what jobs of a flow have left, as `attempt.sweep` does."""
        ...


def ground_of(folder: str) -> TableGround:
    """Return the ground of a table."""
    if not is_address(folder):
        return FolderGround(folder)
    from tidegauge.sinks.parquet.bucket import BucketGround

    return BucketGround(folder)


@dataclass(frozen=True, slots=True)
class FolderGround:
    """A folder: a commit is the rename of a finished folder into it."""

    folder: str

    @property
    def late(self) -> bool:
        """False: a commit brings its files with it."""
        return False

    def names(self) -> list[str]:
        """List the folder."""
        return sorted(visible(Path(self.folder)))

    def stamp(self, slot: CommitSlot) -> Stamp | None:
        """Ask for the status of the manifest."""
        return next((stamp for path in self._manifests(slot) if (stamp := _stamp(path)) is not None), None)

    def text(self, slot: CommitSlot) -> bytes | None:
        """Read the manifest."""
        paths = self._manifests(slot)
        found = _first_bytes(paths)
        if found is None and any(map(_filled, paths)):
            found = _first_bytes(paths)  # a commit is one rename: it may have come between the two looks
            if found is None:
                raise DamagedManifest(path=str(paths[-1]), detail="it is missing")
        return found

    def visible(self, slots: Iterable[CommitSlot]) -> set[str]:
        """List the folders of the commits."""
        return {f"{slot.name}/{file}" for slot in slots for folder in self._folders(slot) for file in below(folder)}

    def staged(self, paths: Iterable[str]) -> set[str]:  # noqa: ARG002 - the seam's shape
        """Return none: a commit brings its files with it."""
        return set()

    def away(self, paths: Iterable[str]) -> set[str]:
        """Look into `_removed`."""
        return {path for path in paths if self._away(path).exists()}

    def links(self, slot: CommitSlot, manifest: Manifest) -> list[Link]:
        """Read them in the manifest and beside it."""
        return [link for folder in filter(Path.is_dir, self._folders(slot)) for link in links_of(folder, manifest)]

    def add(self, manifest: Manifest, files: Sequence[StagedFile], history: History, swap: Manifest | None) -> bool:
        """Rename a folder."""
        try:
            with writing(self.folder), gathered(self.folder, files, manifest, history, swap=swap) as folder:
                try:
                    # rename(2) also replaces a folder that is empty; a commit never is, it has its manifest
                    folder.rename(Path(self.folder, (swap or manifest).folder))
                except OSError as error:
                    raise (_Taken if error.errno in _TAKEN else error) from None
        except _Taken:
            return False
        with writing(self.folder):
            synchronise(Path(self.folder))
        remove_empty(self.folder, files)
        return True

    def finish(self, slot: CommitSlot) -> None:
        """Rename the files, and then the folder of the new rows."""
        if slot.swap is not None:
            with writing(self.folder):
                finish(self.folder, slot.swap, slot.place)

    def show(self, files: Sequence[StagedFile]) -> None:
        """Do nothing: a commit brings its files with it."""

    def hide(self, path: str) -> None:
        """Rename the file."""
        make_folder(Path(self.folder, REMOVED))
        with suppress(FileNotFoundError):  # another driver has moved it, or it was cleared away
            path_inside(self.folder, path).rename(self._away(path))

    def uris(self, paths: Sequence[str], *, first: CommitSlot, hidden: Collection[str]) -> list[str]:  # noqa: ARG002
        """Return absolute paths."""
        there = Path(self.folder, first.name)
        now = next(filter(Path.is_dir, self._folders(first)), there)  # its rows may be out of sight yet
        found = [path_inside(self.folder, path) for path in paths]
        return [str(now / path.relative_to(there) if there in path.parents else path) for path in found]

    def gone(self, slot: CommitSlot) -> bool:
        """Look whether there is a folder."""
        return all(map(gone, self._folders(slot)))

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove them. A file that was committed is not where it was staged, and so is safe."""
        discard(LocalFiles(self.folder), files)

    def keep(self, files: Sequence[StagedFile], mark: str) -> bool:
        """Rename them back."""
        ungathered(self.folder, files, mark)
        return all_staged(self.folder, files)

    def sweep(self, mark: str, confirm: Callable[[], None], *, kept: Collection[str]) -> None:
        """Rename the jobs' folders, and then remove them."""
        sweep(LocalFiles(self.folder), mark, confirm, kept=kept)

    def _folders(self, slot: CommitSlot) -> list[Path]:
        """Return the places to look for a commit, in their order."""
        return first_folders(self.folder, slot.swap, slot.place) if slot.swap else [Path(self.folder, slot.name)]

    def _manifests(self, slot: CommitSlot) -> list[Path]:
        return [folder / MANIFEST for folder in self._folders(slot)]

    def _away(self, path: str) -> Path:
        return Path(self.folder, REMOVED, path.rpartition("/")[2])


class _Taken(Exception):
    """The name of a commit is that of another one by now."""


def _first_bytes(paths: Sequence[Path]) -> bytes | None:
    """Return the bytes of the first of these files that is there, None where none is."""
    for path in paths:
        with suppress(FileNotFoundError):
            return path.read_bytes()
    return None


def _filled(manifest: Path) -> bool:
    """Whether there is something where a manifest is to be."""
    return manifest.parent.is_dir() and any(manifest.parent.iterdir())


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
