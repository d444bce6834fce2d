"""The log of a polled source: each poll that brought rows is a manifest, which makes it visible, and a Parquet file.

    000000000007.json             the manifest of poll 7
    000000000007-<hex>.parquet    its rows

A manifest has the state that upstream is polled with after it, and the digest of the manifest before it. Who creates
the one of a number has decided for all what this poll is: another driver that polled at the same time takes that, and
lets its own go.

Invariant: a manifest is created last, whole, and never changed, and its rows are durable by then. So the log is what
upstream could not be asked for again, and any range of it gives the same rows for ever.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as root:
...     log = PollLog(Path(root, "orders"))
...     one, first = log.publish(0, before="", state="{}", rows=pa.table({"id": [1, 2]}))
...     two, again = log.publish(0, before="", state="{}", rows=pa.table({"id": [9]}))
...     first, again, one == two == log.manifest(0), one.rows
(True, False, True, 2)
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.base import Transient
from tidegauge.errors.polls import PollDamaged, PollGone, PollsForgotten
from tidegauge.errors.running import UpstreamRecreated
from tidegauge.errors.sources import RangeOvertaken
from tidegauge.objects.path import ObjectPath
from tidegauge.sources.staged import manifest_digest, sealed, unsealed
from tidegauge.sources.staging import StagingPath, check_there, create, make_folder, names_in, write_rows

__all__ = ["PollLog", "PollManifest"]

_FORMAT: Final = 1
_MANIFEST: Final = re.compile(r"([0-9]{12})\.json")
_FILE: Final = re.compile(r"([0-9]{12})-[0-9a-f]{32}\.parquet")
_GROUP_BYTES: Final = 8 << 20
_GROUP_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class PollManifest:
    """What a poll brought: its number, its file, and the encoded state after it."""

    poll: int
    before: str
    state: str
    file: str
    size: int
    rows: int

    @property
    def digest(self) -> str:
        """What no other manifest has."""
        return manifest_digest(self._said())

    def encode(self) -> bytes:
        """Return it as JSON, with its digest in a second line."""
        return sealed(self._said())

    @staticmethod
    def decode(data: bytes, path: str) -> PollManifest:
        """Return the manifest that `encode` made. Raises `PollDamaged`, also for one of a newer version."""
        said = unsealed(data, path, formats=[_FORMAT], damaged=PollDamaged)
        name, size, rows = said["file"]
        if not _FILE.fullmatch(name):
            raise PollDamaged(path=path, detail=f"it names a file {name!r}")
        return PollManifest(said["poll"], said["before"], said["state"], name, size, rows)

    def _said(self) -> dict[str, Any]:
        said = {"format": _FORMAT, "poll": self.poll, "before": self.before, "state": self.state}
        return {**said, "file": [self.file, self.size, self.rows]}


@dataclass(frozen=True, slots=True)
class PollLog:
    """A log in a folder of its own. source: whose, for errors. by_rows: whether its numbers count rows, not polls."""

    folder: StagingPath
    source: str = ""
    by_rows: bool = False

    def after(self, manifest: PollManifest) -> int:
        """Return the number of the poll after one."""
        return manifest.poll + (manifest.rows if self.by_rows else 1)

    def manifest(self, poll: int) -> PollManifest:
        """Return the manifest of a poll. Raises `FileNotFoundError`, `PollDamaged`."""
        path = self._path(poll)
        found = PollManifest.decode(path.read_bytes(), str(path))
        if found.poll != poll:
            raise PollDamaged(path=str(path), detail=f"it is the manifest of poll {found.poll}")
        return found

    def has(self, poll: int) -> bool:
        """Whether a manifest begins with this number."""
        return self._path(poll).exists()

    def following(self, poll: int, digest: str) -> Iterator[PollManifest]:
        """Yield the polls from a number on, as far as they go. digest: of the one before, "" before the first.

        Raises `UpstreamRecreated` where one does not follow.
        """
        while True:
            try:
                found = self.manifest(poll)
            except FileNotFoundError:
                return
            self.check(poll, "its predecessor", digest, found.before)
            yield found
            poll, digest = self.after(found), found.digest

    def check_bound(self, poll: int, digest: str) -> str:
        """Return the digest of the last poll that is bound, which is there, and is this one or leads to it.

        A store knows the newest digest of a source alone. So one that was recovered from a table that was begun late
        may have that of a later poll, which no table has.

        Raises `UpstreamRecreated`, `PollDamaged`, `PollGone`, and `OSError` where the folder is away.
        """
        check_there(self.folder)
        try:
            there = self.manifest(poll)
        except FileNotFoundError:
            if isinstance(self.folder, ObjectPath):
                raise PollGone(source=self.source, path=str(self._path(poll))) from None
            self.check(poll, "the digest", digest, "")
            return ""
        if there.digest != digest:
            later = self.following(self.after(there), there.digest)
            if not any(one.digest == digest for one in later):
                self.check(poll, "the digest", digest, there.digest)
        return there.digest

    def check(self, poll: int, what: str, known: str, found: str) -> None:
        """Raise `UpstreamRecreated` unless two digests are one: the log was emptied, put back, or is another's."""
        if known != found:
            place = f"poll {poll} in {self.folder} with {what}"
            raise UpstreamRecreated(
                source=self.source, known=f"{place} {known or 'none'}", found=f"{place} {found or 'none'}"
            )

    @contextmanager
    def whole(self, poll: int, why: str) -> Iterator[None]:
        """Say where something is read of a log that is to be all there. why: "... needs", for the error.

        Raises `PollsForgotten` where what begins at a number is gone, and the folder is not.
        """
        try:
            yield
        except (FileNotFoundError, RangeOvertaken):
            check_there(self.folder)
            raise PollsForgotten(source=self.source, poll=poll, folder=str(self.folder), why=why) from None

    def path_of(self, manifest: PollManifest) -> StagingPath:
        """Return where the rows of a poll are."""
        return self.folder / manifest.file

    def publish(self, poll: int, *, before: str, state: str, rows: pa.Table) -> tuple[PollManifest, bool]:
        """Make rows the poll of this number, durably, and return what it is, and whether it is these.

        It is another driver's where that came first.

        Raises `OSError`, and `UpstreamRecreated` where the one that is there does not follow.
        """
        make_folder(self.folder)
        if not poll and isinstance(self.folder, ObjectPath):
            (self.folder / f"_proof-{uuid.uuid4().hex}").prove()
        path = self.folder / f"{poll:012}-{uuid.uuid4().hex}.parquet"
        try:
            size = write_rows(path, rows.schema, _groups(rows))
            mine = PollManifest(poll, before, state, path.name, size, rows.num_rows)
            if create(self._path(poll), mine.encode()):
                return mine, True
            theirs = self.manifest(poll)
        except BaseException:
            self._let_go(poll, path)
            raise
        if theirs == mine:  # a client's first try had made it, and its second one heard of that
            return mine, True
        path.unlink(missing_ok=True)
        self.check(poll, "its predecessor", before, theirs.before)
        return theirs, False

    def _let_go(self, poll: int, path: StagingPath) -> None:
        """Remove a file unless the manifest of its poll names it, which may be there for all that went wrong.

        A store may yet create that manifest, by a request that was given up here; so the sweep of the next run does
        it, when it is known which manifest is there.
        """
        if isinstance(path, ObjectPath):
            return
        with suppress(OSError, PollDamaged):
            try:
                named = self.manifest(poll).file
            except FileNotFoundError:
                named = ""
            if named != path.name:
                path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what drivers before have left that died: of polls that are published, the files that none names."""
        with suppress(OSError, PollDamaged, Transient):
            names = names_in(self.folder)
            published = {int(found[1]) for name in names if (found := _MANIFEST.fullmatch(name))}
            files: dict[int, list[str]] = {}
            for name in names:
                if found := _FILE.fullmatch(name):
                    files.setdefault(int(found[1]), []).append(name)
            for poll, some in files.items():
                if len(some) > 1 and poll in published:
                    named = self.manifest(poll).file
                    for name in some:
                        if name != named:
                            (self.folder / name).unlink(missing_ok=True)

    def _path(self, poll: int) -> StagingPath:
        return self.folder / f"{poll:012}.json"


def _groups(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in pieces of some megabytes, which are read one at a time."""
    size = max(1, rows.nbytes // max(1, rows.num_rows))
    step = max(1, min(_GROUP_ROWS, _GROUP_BYTES // size))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
