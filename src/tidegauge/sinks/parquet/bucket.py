"""A Parquet table in an object store: a commit is a manifest that is put where there is none.

    <table>/_staged/<job>/part-....parquet             staged, and committed but not in sight yet
    <table>/from_epoch=000000000042/_manifest.json     a commit of [42, upper)
    <table>/from_epoch=000000000042/part-....parquet   its rows, copied here after the commit
    <table>/_removed/part-....parquet                  rows that a later commit took out

A store renames nothing, and has no step that shows several objects. So the manifest is the commit: our readers go by
it, and find the rows where they were staged until they are in sight. The chain brings the files of a commit into
sight before it adds the next one; what a driver that died left undone does the next. A swap carries the manifest of
the first commit of its edition.

Invariant: no file is in sight of those who list the table before its commit is made, and none is away from where it
was staged before it is in sight, whole. What jobs have left goes once our own next commit is made: it has the name
that a commit of an earlier driver, asleep since it looked at its files, was to have.

>>> where_staged("from_epoch=000000000042/part-" + "0" * 32 + "-00000-9b2c-000.parquet")
'_staged/00000000000000000000000000000000/part-00000000000000000000000000000000-00000-9b2c-000.parquet'
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final

from tidegauge.errors.base import Transient
from tidegauge.errors.history import DamagedHistory
from tidegauge.errors.objects import ObjectStoreAway
from tidegauge.errors.sinks import DamagedManifest
from tidegauge.objects.client import at_once
from tidegauge.objects.path import ObjectPath
from tidegauge.remap.history import History, Link
from tidegauge.sinks.attempt import STAGED, discard, left_by
from tidegauge.sinks.commits import all_staged
from tidegauge.sinks.location import inside, prove
from tidegauge.sinks.parquet.ground import CommitSlot, Stamp
from tidegauge.sinks.parquet.manifest import LINKS, MANIFEST, REMOVED, Manifest, first_of, is_commit, slot_of
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.uploads import ObjectFiles

__all__ = ["BucketGround", "where_staged"]

_JOB: Final = slice(len("part-"), len("part-") + 32)


def where_staged(path: str) -> str:
    """Return where a committed file was staged. The folders of its partition were there, too."""
    _, _, within = path.partition("/")
    return f"{STAGED}/{path.rpartition('/')[2][_JOB]}/{within}"


class BucketGround:
    """A `TableGround`: an address in an object store."""

    def __init__(self, folder: str) -> None:
        self.folder: Final = folder
        self._place: Final = ObjectPath.of(folder)
        self._files: Final = ObjectFiles(folder)
        self._listed: list[str] = []
        self._texts: dict[str, bytes] = {}
        self._left: list[str] = []
        self._proved = False

    @property
    def late(self) -> bool:
        """True: there is no step that shows several objects."""
        return True

    # -- what is there

    def names(self) -> list[str]:
        """List all objects of the table, and read the manifests, many at once, for the chain is followed next."""
        self._listed = list(self._place.below())
        manifests = [path for path in self._listed if path.endswith(f"/{MANIFEST}") and is_commit(path.split("/")[0])]
        self._texts = {
            path: text
            for path, text in zip(manifests, at_once(self._read, manifests), strict=True)
            if text is not None
        }
        return sorted({path.split("/")[0] for path in self._listed if not path.startswith(("_", "."))})

    def stamp(self, slot: CommitSlot) -> Stamp | None:
        """Ask for the status of the manifest, of the swap's where it is in that."""
        for name in filter(None, (slot.name, slot.swap)):
            with suppress(FileNotFoundError):
                status = (self._place / f"{name}/{MANIFEST}").stat()
                return status.st_ino, status.st_mtime_ns
        return None

    def text(self, slot: CommitSlot) -> bytes | None:
        """Read the manifest, in that of the swap where it is there yet."""
        path = f"{slot.name}/{MANIFEST}"
        found = self._texts.pop(path, None) or self._read(path)
        return self._carried(slot.swap) if found is None and slot.swap is not None else found

    def visible(self, slots: Iterable[CommitSlot]) -> set[str]:
        """Return what the last listing had of them."""
        names = {slot.name for slot in slots}
        return {path for path in self._listed if _in_sight(path) and path.partition("/")[0] in names}

    def staged(self, paths: Iterable[str]) -> set[str]:
        """Return those that are where they were staged."""
        listed = set(self._listed)
        return {path for path in paths if where_staged(path) in listed}

    def away(self, paths: Iterable[str]) -> set[str]:
        """Look into `_removed`."""
        wanted = list(paths)
        there = set((self._place / REMOVED).names()) if wanted else set()
        return {path for path in wanted if path.rpartition("/")[2] in there}

    def links(self, slot: CommitSlot, manifest: Manifest) -> list[Link]:
        """Read them in the manifest; beside it where the table was copied from a disk."""
        try:
            found = [Link.decode(link) for link in manifest.links]
            if (beside := f"{slot.name}/{LINKS}") in self._listed:
                found += History.decode((self._place / beside).read_text())
        except ValueError as error:
            raise DamagedHistory(table=self.folder, path=f"{self.folder}/{slot.name}", detail=str(error)) from error
        return found

    def uris(self, paths: Sequence[str], *, first: CommitSlot, hidden: Collection[str]) -> list[str]:  # noqa: ARG002
        """Return addresses."""
        late = [path for path in paths if path in hidden]
        here = at_once(lambda path: (self._place / path).exists(), late)
        where = {path: path if there else where_staged(path) for path, there in zip(late, here, strict=True)}
        return [str(inside(self.folder, where.get(path, path))) for path in paths]

    def gone(self, slot: CommitSlot) -> bool:
        """Look whether there is a manifest."""
        try:
            return self.stamp(slot) is None
        except Transient:
            return False

    # -- a commit

    def add(self, manifest: Manifest, files: Sequence[StagedFile], history: History, swap: Manifest | None) -> bool:
        """Put the manifest where there is none. One that is there may be ours, of a request with a lost answer."""
        if not self._proved:
            prove(self._place / f"{STAGED}/_proof-{manifest.write}")
            self._proved = True
        text = manifest.encode(history.lines)
        if swap is not None:
            text = swap.encode(first=text)
        path = self._place / f"{(swap or manifest).folder}/{MANIFEST}"
        if not path.put_new(text) and path.read_bytes() != text:
            return False
        jobs = {file.path.split("/")[1] for file in files}
        for job in self._left:
            if job not in jobs:
                with suppress(OSError, Transient):  # it stays for a later run
                    self._files.clear(f"{STAGED}/{job}")
        self._left = []
        return True

    def finish(self, slot: CommitSlot) -> None:
        """Move the files of before out of sight, and then put the first manifest."""
        there = self._place / f"{slot.name}/{MANIFEST}"
        if slot.swap is None or there.exists():
            return
        text = self._carried(slot.swap)
        old = [
            path for path in self._place.below() if _in_sight(path) and slot_of(path.split("/")[0])[1] < slot.place
        ]
        for _done in at_once(self.hide, old):
            pass
        there.put_new(text)

    def show(self, files: Sequence[StagedFile]) -> None:
        """Copy files to where they are seen, and then remove them where they were staged."""
        for _done in at_once(self._show, files):
            pass

    def _show(self, file: StagedFile) -> None:
        staged, there = self._place / where_staged(file.path), self._place / file.path
        try:
            staged.copy_to(there)
        except FileNotFoundError:
            if not there.exists():
                raise
        found = there.stat().st_size
        if found != file.bytes:
            raise ObjectStoreAway(place=str(there), detail=f"a copy has {found} bytes of {file.bytes}")
        staged.unlink(missing_ok=True)

    def hide(self, path: str) -> None:
        """Copy a file to `_removed`, and then remove it."""
        seen, there = self._place / path, self._place / f"{REMOVED}/{path.rpartition('/')[2]}"
        with suppress(FileNotFoundError):  # another driver has moved it, or it was cleared away
            size = seen.stat().st_size
            seen.copy_to(there)
            if (found := there.stat().st_size) != size:
                raise ObjectStoreAway(place=str(there), detail=f"a copy has {found} bytes of {size}")
            seen.unlink(missing_ok=True)

    # -- what is staged

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove them where they were staged."""
        discard(self._files, files)

    def keep(self, files: Sequence[StagedFile], mark: str) -> bool:  # noqa: ARG002 - nothing was gathered
        """Ask for each of them."""
        return all_staged(self.folder, files)

    def sweep(self, mark: str, confirm: Callable[[], None], *, kept: Collection[str]) -> None:
        """Remember the jobs that have left files, until the next commit."""
        self._left = left_by(self._files, mark, kept=kept)
        if self._left:
            confirm()

    def _carried(self, swap: str) -> bytes:
        """Return the manifest that a swap carries. One that was copied from a disk half done carries none."""
        path = f"{swap}/{MANIFEST}"
        text = self._read(path)
        if text is None or (found := first_of(text)) is None:
            raise DamagedManifest(path=f"{self.folder}/{path}", detail="it carries no first commit")
        return found

    def _read(self, path: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self._place / path).read_bytes()
        return None


def _in_sight(path: str) -> bool:
    """Whether those who list the table look at an object, and it is one of a commit."""
    folder, *within = path.split("/")
    parted = all("=" in one for one in within[:-1])
    return is_commit(folder) and bool(within) and parted and not path.rpartition("/")[2].startswith(("_", "."))
