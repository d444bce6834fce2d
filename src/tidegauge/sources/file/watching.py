"""A disk that is watched in one look: by one source alone, or by many that look at the same folders.

Those that are asked together list each folder once, and ask for the status of each file once (`Findings`). What they
do with it is their own: each picks the names of its pattern.

A shared listing may be a little older than the moment at which a source looks at its files. So what does not fit
together, since a name was given to another file meanwhile or to none, is looked at again by the source alone
(`listing`), which is then in the same place as a source that shares nothing.

Invariants. Nothing is older than the look. The identity, the size and the modification time of a file are of one
`stat`. A source waits for a folder that it would list itself, never for one of another, nor for another's file.

>>> import os, tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     for name in ("orders-1", "clicks-1", "orders-2"):
...         open(f"{folder}/{name}", "w").close()
...     watch = Watch(findings=Findings())
...     [entry.name for entry in watch.entries(folder, "orders")]
['orders-1', 'orders-2']
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any, Final

from tidegauge.remap.findings import Findings
from tidegauge.sources.file.disk import DISK, Disk, Entry, FileStatus

__all__ = ["Contents", "Watch", "absent", "entries"]

_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def absent(error: OSError) -> bool:
    """Whether an error says that there is nothing of that name."""
    return error.errno in _ABSENT


def entries(folder: str, *, disk: Disk = DISK) -> Iterator[Entry]:
    """Yield what a folder holds; nothing when there is no such folder."""
    try:
        found = disk.scandir(folder)
    except OSError as error:
        if absent(error):
            return
        raise
    with found as listed_entries:
        yield from listed_entries


@dataclass(frozen=True, slots=True)
class Contents:
    """What a folder held when it was listed, in the order of the names, and in the same order these."""

    entries: list[Entry]
    names: list[str]

    @classmethod
    def of(cls, folder: str, disk: Disk) -> Contents:
        """List a folder."""
        found = sorted(entries(folder, disk=disk), key=lambda entry: entry.name)
        return cls(found, [entry.name for entry in found])

    def beginning(self, prefix: str) -> Iterator[Entry]:
        """Yield the entries whose names begin with a prefix."""
        here = islice(self.entries, bisect_left(self.names, prefix), None)
        return takewhile(lambda entry: entry.name.startswith(prefix), here)


class _Asking:
    """Stands for a status that somebody is asking for."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A disk in one look. findings: what the sources of the look share; None for one that is asked alone."""

    disk: Disk = DISK
    findings: Findings | None = None

    @property
    def alone(self) -> Watch:
        """The disk as a source sees it that shares nothing."""
        return Watch(self.disk)

    def entries(self, folder: str, prefix: str = "") -> Iterable[Entry]:
        """Return what a folder holds: all whose names begin with a prefix, and perhaps others. Raises `OSError`."""
        if self.findings is None:
            return entries(folder, disk=self.disk)
        return self._contents(folder, self.findings).beginning(prefix)

    def folders(self, folder: str) -> Iterable[Entry]:
        """Return the folders in a folder, without links to folders. Raises `OSError`."""
        findings = self.findings
        if findings is None:
            return _folders(entries(folder, disk=self.disk))
        key = ("folders", self.disk, folder)
        return findings.once(key, lambda: list(_folders(self._contents(folder, findings).entries)))

    def _contents(self, folder: str, findings: Findings) -> Contents:
        return findings.once(("folder", self.disk, folder), lambda: Contents.of(folder, self.disk))

    def statuses(self, paths: Iterable[str]) -> dict[str, FileStatus | None]:
        """Return the status of each path, None for one that is not there. Raises `OSError` for the first other error.

        Nobody waits here: a file that another source is asking about all the time is asked about again.
        """
        if self.findings is None:
            return {path: self._status(path) for path in paths}
        known: dict[str, Any] = self.findings.once(("statuses", self.disk), dict)
        mine, found, others = _Asking(), dict[str, FileStatus | None](), list[str]()
        for path in paths:
            status = known.setdefault(path, mine)
            if status is mine:
                known[path] = found[path] = self._status(path)
            elif isinstance(status, _Asking):
                others.append(path)
            else:
                found[path] = status
        for path in others:
            status = known[path]
            found[path] = self._status(path) if isinstance(status, _Asking) else status
        return found

    def _status(self, path: str) -> FileStatus | None:
        try:
            return self.disk.stat(path)
        except OSError as error:
            if absent(error):
                return None
            raise


def _folders(found: Iterable[Entry]) -> Iterator[Entry]:
    return (entry for entry in found if entry.is_dir(follow_symlinks=False))
