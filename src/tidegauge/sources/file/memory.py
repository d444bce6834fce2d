"""What a driver remembers of a source's files from one probe to the next: those held open, and its last answer.

Invariant: all of it may be lost; it decides nothing that a look would not. Pickled, or in another process, nothing is
remembered.

*Held open* are files that were seen and are not in every output yet, so that one which is deleted can still be read
to its end. The tasks of the driver's machine open such a file by the driver's own descriptor (`/proc/PID/fd/N`), and
check it like any other. Elsewhere, and after the driver has ended, a deleted file is gone. At most `MOST` files are
held, the first ones.

*At rest* is a source when the status alone told of each of its files that it is unchanged, none was opened, none is
missing, and nothing is waited for. Its answer then follows from the bindings, from its last answer, and from the
paths, devices, inode numbers, sizes and modification times of its files. The folders are listed and every file is
asked for its status each time; while all of that is equal, so is the answer.

>>> import tempfile
>>> held = OpenFiles()
>>> with tempfile.TemporaryFile() as stream:
...     held.keep("a", stream)
>>> held.path("a").startswith("/proc/"), held.path("b")
(True, None)
>>> held.release(Frontier({"a": 0}))
>>> print(held.path("a"))
None
>>> from datetime import UTC
>>> said = Observation(at=datetime(2026, 11, 20, tzinfo=UTC), upper=Frontier(), end=Frontier())
>>> rest, bound = Rest(), Bound(last=said)
>>> rest.keep((), bound, said)
>>> rest.again((), bound, now=datetime(2026, 11, 21, tzinfo=UTC)).at.day
21
>>> print(rest.again((), bound, now=said.at))  # these bindings do not know the last answer
None
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, Final, TypeAlias

import pyarrow as pa

from tidegauge.remap.binding import Bound, Observation
from tidegauge.remap.frontier import Frontier
from tidegauge.sources.file.disk import DISK, Disk, FileStatus

__all__ = ["MOST", "Files", "OpenFiles", "Rest"]

MOST: Final = 256
"""Files that one source holds open, at most."""

Files: TypeAlias = Sequence[tuple[str, FileStatus]]


def _close(files: dict[str, int], disk: Disk) -> None:
    while files:
        disk.close(files.popitem()[1])


class OpenFiles:
    """The open files of one source, by partition, and the disk that has them."""

    def __init__(self, disk: Disk = DISK) -> None:
        self.disk: Final = disk
        self._files: Final[dict[str, int]] = {}
        self._lock: Final = threading.Lock()
        weakref.finalize(self, _close, self._files, disk)

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenFiles, () if self.disk is DISK else (self.disk,)

    def keep(self, key: str, stream: BinaryIO) -> None:
        """Hold an open file as the one of a partition."""
        with self._lock:
            fd = self._files.get(key)
            if fd is not None and self.disk.sameopenfile(fd, stream.fileno()):
                return
            if fd is not None:
                self.disk.close(self._files.pop(key))
            if len(self._files) < MOST:
                self._files[key] = self.disk.dup(stream.fileno())

    def path(self, key: str) -> str | None:
        """Return a path that opens the file of a partition, None when it is not held."""
        fd = self._files.get(key)
        return None if fd is None else self.disk.descriptor(fd)

    def release(self, durable: Frontier) -> None:
        """Let go of the files that every output holds to their end."""
        with self._lock:
            for key, fd in list(self._files.items()):
                if durable[key] >= self.disk.fstat(fd).st_size:
                    self.disk.close(self._files.pop(key))


@dataclass(slots=True)
class _Kept:
    """The last answer, the bindings that it was given for, and the facts of the files that it came from."""

    facts: list[tuple[str, int, int, int, int]]
    frontier: Frontier
    schema: pa.Schema | None
    observed: Observation


class Rest:
    """What one source said last, if it was at rest."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Rest, ()

    def keep(self, files: Files, bound: Bound, observed: Observation) -> None:
        """Keep the answer of a source at rest, with the bindings and the files that it has."""
        self._kept = _Kept(_facts(files), bound.frontier, bound.schema, observed)

    def again(self, files: Files, bound: Bound, *, now: datetime) -> Observation | None:
        """Return the last answer if it still holds, None if it takes a look."""
        kept = self._kept
        if kept is None or bound.last is not kept.observed or bound.frontier is not kept.frontier:
            return None
        if bound.schema is not kept.schema or _facts(files) != kept.facts:
            return None
        said = kept.observed
        kept.observed = Observation(
            at=now, upper=said.upper, end=said.end, lower=said.lower, details=said.details, note=said.note
        )
        return kept.observed


def _facts(files: Files) -> list[tuple[str, int, int, int, int]]:
    return [(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) for path, status in files]
