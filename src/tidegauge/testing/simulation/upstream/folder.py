"""`Folder`: files in memory, behind the seam to a file system. Writers change them, and a `FileSource` reads them.

A file is an inode, as on a real disk: a name may move from one to another, and a file without a name lives on for
those who hold it open. So a source of files notices here what it notices there: a file that grows, with a record that
is torn, one that was renamed, cut, replaced under its name, or removed. Time is what a writer says it is.

Invariant: an inode number is given out once, and a file's modification time changes only with its bytes.

>>> from datetime import UTC, datetime
>>> from tidegauge.remap.binding import Bound
>>> from tidegauge.sources import FileSource, Json
>>> folder, now = Folder(), datetime(2026, 11, 23, tzinfo=UTC)
>>> folder.append("/landing/a.jsonl", b'{"id": 1}\\n{"id"', at=now)
>>> source = read_from(FileSource("/landing/*.jsonl", format=Json("id long")), folder)
>>> observed = source.probe(Bound(), now=now)
>>> list(observed.upper.values()), list(observed.end.values())
([10], [15])
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Final

from tidegauge.objects.address import is_address
from tidegauge.sources.file.memory import OpenFiles
from tidegauge.sources.file.source import FileSource

__all__ = ["Folder", "FolderEntry", "Inode", "InodeStatus", "in_memory", "read_from"]

_DEVICE: Final = 1
_FIRST: Final = 1 << 40
"""The first descriptor: one that no system gives out, so that it is not taken for the system's."""
_HELD: Final = "/held/"
_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class InodeStatus:
    """The status of a file or a folder, as `stat` tells it."""

    st_mode: int
    st_ino: int
    st_size: int
    st_mtime_ns: int
    st_nlink: int
    st_dev: int = _DEVICE


_FOLDER: Final = InodeStatus(stat.S_IFDIR | 0o755, 0, 0, 0, 1)


@dataclass(slots=True, eq=False)
class Inode:
    """A file, whatever its names. born, modified: nanoseconds since 1970. linked: whether it has a name."""

    number: int
    born: int
    modified: int
    data: bytearray = field(default_factory=bytearray)
    linked: bool = True

    @property
    def status(self) -> InodeStatus:
        """Its present status."""
        return InodeStatus(stat.S_IFREG | 0o644, self.number, len(self.data), self.modified, int(self.linked))


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A name in a folder: of a file, or of another folder."""

    path: str
    file: Inode | None

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rpartition("/")[2]

    def inode(self) -> int:
        """Return the file's number, 0 for a folder."""
        return 0 if self.file is None else self.file.number

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - the seam's shape
        """Whether it is a folder."""
        return self.file is None

    def is_file(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - the seam's shape
        """Whether it is a file."""
        return self.file is not None

    def is_symlink(self) -> bool:
        """Whether it is a link: there are none here."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> InodeStatus:  # noqa: ARG002 - the seam's shape
        """Return its present status."""
        return _FOLDER if self.file is None else self.file.status


class _MemoryFile(io.RawIOBase):
    """An open file: it reads what the file has at that time."""

    def __init__(self, folder: Folder, fd: int, file: Inode) -> None:
        self._folder, self._fd, self._file, self._at = folder, fd, file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def readinto(self, buffer: Any, /) -> int:
        into = memoryview(buffer)
        found = self._file.data[self._at : self._at + len(into)]
        into[: len(found)] = found
        self._at += len(found)
        return len(found)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._file.data)}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            self._folder.close(self._fd)
        super().close()


class Folder:
    """A file system in memory. A folder is there as soon as a file was put into it, and stays.

    away: whether every folder is gone, as a mount that is not there.
    """

    def __init__(self) -> None:
        self.away = False
        self._files: dict[str, Inode] = {}
        self._folders: set[str] = set()
        self._open: dict[int, Inode] = {}
        self._made = 0
        self._opened = _FIRST

    # What its writers do.

    def append(self, path: str, data: bytes, *, at: datetime) -> None:
        """Write bytes at the end of a file, which is made if need be."""
        file = self._files.get(path)
        if file is None:
            file = self._new(path, at)
        file.data += data
        file.modified = _nanoseconds(at)

    def replace(self, path: str, data: bytes, *, at: datetime) -> None:
        """Put a new file under a name, as one that is written elsewhere and moved into place."""
        self._unlink(path)
        self._new(path, at).data += data

    def rewrite(self, path: str, data: bytes, *, at: datetime) -> None:
        """Write other bytes into a file, in place."""
        file = self._named(path)
        file.data[:] = data
        file.modified = _nanoseconds(at)

    def shrink(self, path: str, size: int, *, at: datetime) -> None:
        """Cut a file off at its beginning's first `size` bytes."""
        file = self._named(path)
        del file.data[size:]
        file.modified = _nanoseconds(at)

    def rename(self, path: str, to: str) -> None:
        """Give a file another name, which may be another file's until then."""
        file = self._named(path)
        if path != to:
            self._unlink(to)
            self._files[to] = file
            del self._files[path]
            self._folders.update(_parents(to))

    def remove(self, path: str) -> None:
        """Take a file's name away. Who has it open goes on reading it."""
        self._named(path)
        self._unlink(path)

    @property
    def paths(self) -> list[str]:
        """The names of all files."""
        return sorted(self._files)

    def content(self, path: str) -> bytes:
        """Return what a file holds."""
        return bytes(self._named(path).data)

    # What a `Disk` does.

    def scandir(self, folder: str) -> AbstractContextManager[Iterator[FolderEntry]]:
        """Return what a folder holds."""
        if self.away or folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", folder)
        begin = folder.rstrip("/") + "/"
        found = [FolderEntry(path, file) for path, file in self._files.items() if _in(path, begin)]
        found += [FolderEntry(path, None) for path in sorted(self._folders) if _in(path, begin)]
        return nullcontext(iter(found))

    def stat(self, path: str) -> InodeStatus:
        """Return the present status of a file or a folder."""
        if not self.away and path in self._folders:
            return _FOLDER
        return self._named(path).status

    def lexists(self, path: str) -> bool:
        """Whether there is something of this name."""
        return not self.away and (path in self._files or path in self._folders)

    def fstat(self, fd: int) -> InodeStatus:
        """Return the present status of an open file."""
        return self._open[fd].status

    def pread(self, fd: int, size: int, at: int) -> bytes:
        """Return bytes of an open file."""
        return bytes(self._open[fd].data[at : at + size])

    def dup(self, fd: int) -> int:
        """Return another descriptor of an open file."""
        self._opened += 1
        self._open[self._opened] = self._open[fd]
        return self._opened

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        del self._open[fd]

    def sameopenfile(self, one: int, other: int) -> bool:
        """Whether two descriptors are of one file."""
        return self._open[one] is self._open[other]

    def open(self, path: str) -> BinaryIO:
        """Open a file."""
        number = path.removeprefix(_HELD)
        file = self._open.get(int(number)) if path != number else self._named(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self._opened += 1
        self._open[self._opened] = file
        return io.BufferedReader(_MemoryFile(self, self._opened, file))

    def birth(self, fd: int) -> int:
        """Return when an open file was made."""
        return self._open[fd].born

    def descriptor(self, fd: int) -> str:
        """Return a path that opens the file of a descriptor."""
        return f"{_HELD}{fd}"

    def _new(self, path: str, at: datetime) -> Inode:
        self._made += 1
        made = self._files[path] = Inode(self._made, _nanoseconds(at), _nanoseconds(at))
        self._folders.update(_parents(path))
        return made

    def _unlink(self, path: str) -> None:
        if (file := self._files.pop(path, None)) is not None:
            file.linked = False

    def _named(self, path: str) -> Inode:
        if self.away or path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self._files[path]


def in_memory(source: FileSource) -> FileSource:
    """Return the source with the path that it has in memory: an address in an object store is one of files, too."""
    return replace(source, path="/" + source.path.replace("://", "/") if is_address(source.path) else source.path)


def read_from(source: FileSource, folder: Folder) -> FileSource:
    """Return the source as one that reads a folder in memory, and remembers no file yet, as that of a new driver."""
    found = in_memory(source)
    object.__setattr__(found, "held", OpenFiles(folder))
    return found


def _in(path: str, folder: str) -> bool:
    return path.startswith(folder) and "/" not in path[len(folder) :] and path != folder


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path


def _nanoseconds(at: datetime) -> int:
    return (at - _ZERO) // _MICRO * 1000
