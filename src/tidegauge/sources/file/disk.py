"""The seam to a file system: the calls of the operating system that a source of files makes, and no others.

`DISK` is this machine's. Everything that a source decides about files it decides on what a `Disk` says, so the same
decisions run on a folder in memory. Descriptors are those of the disk that gave them, and mean nothing to another.

Invariant: a disk raises what the system raises: `OSError`, with the number of the error.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO, Final, Protocol

__all__ = ["DISK", "Disk", "Entry", "FileStatus", "LocalDisk"]

# statx(2): Linux reports the birth time by this call only, and `os.stat` does not make it.
_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_SIZE: Final = 256
_MASK: Final = struct.Struct("=I")
_TIME: Final = struct.Struct("=qI")
_BTIME_AT: Final = 80


class FileStatus(Protocol):
    """What `stat` says of a file, as `os.stat_result` has it."""

    @property
    def st_mode(self) -> int: ...  # noqa: D102
    @property
    def st_dev(self) -> int: ...  # noqa: D102
    @property
    def st_ino(self) -> int: ...  # noqa: D102
    @property
    def st_nlink(self) -> int: ...  # noqa: D102
    @property
    def st_size(self) -> int: ...  # noqa: D102
    @property
    def st_mtime_ns(self) -> int: ...  # noqa: D102


class Entry(Protocol):
    """A name in a folder, as `os.DirEntry` has it."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def path(self) -> str: ...  # noqa: D102
    def inode(self) -> int: ...  # noqa: D102
    def is_dir(self, *, follow_symlinks: bool = True) -> bool: ...  # noqa: D102
    def is_file(self, *, follow_symlinks: bool = True) -> bool: ...  # noqa: D102
    def is_symlink(self) -> bool: ...  # noqa: D102
    def stat(self, *, follow_symlinks: bool = True) -> FileStatus: ...  # noqa: D102


class Disk(Hashable, Protocol):
    """A file system. All that is named as in `os` does what `os` does."""

    def scandir(self, folder: str, /) -> AbstractContextManager[Iterator[Entry]]: ...  # noqa: D102
    def stat(self, path: str, /) -> FileStatus: ...  # noqa: D102
    def lexists(self, path: str, /) -> bool: ...  # noqa: D102
    def fstat(self, fd: int, /) -> FileStatus: ...  # noqa: D102
    def pread(self, fd: int, size: int, at: int, /) -> bytes: ...  # noqa: D102
    def dup(self, fd: int, /) -> int: ...  # noqa: D102
    def close(self, fd: int, /) -> None: ...  # noqa: D102
    def sameopenfile(self, one: int, other: int, /) -> bool: ...  # noqa: D102

    def open(self, path: str, /) -> BinaryIO:
        """Open a regular file. Raises `FileNotFoundError` for anything else, at once: a pipe does not block."""
        ...

    def birth(self, fd: int, /) -> int:
        """Return when an open file was created, in nanoseconds since 1970, or 0 where nobody says."""
        ...

    def descriptor(self, fd: int, /) -> str:
        """Return a path that opens the file of a descriptor, as long as that is open."""
        ...


@cache
def _statx() -> Callable[..., Any] | None:
    try:
        return ctypes.CDLL(None).statx
    except (AttributeError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class LocalDisk:
    """The file systems of this machine."""

    stat = staticmethod(os.stat)
    lexists = staticmethod(os.path.lexists)
    fstat = staticmethod(os.fstat)
    pread = staticmethod(os.pread)
    dup = staticmethod(os.dup)
    close = staticmethod(os.close)
    sameopenfile = staticmethod(os.path.sameopenfile)

    def scandir(self, folder: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """Return what a folder holds."""
        return os.scandir(folder)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file."""
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileNotFoundError(errno.ENOENT, "not a regular file any more", path)
        return os.fdopen(fd, "rb")

    def birth(self, fd: int) -> int:
        """Return when an open file was created."""
        elsewhere = getattr(os.fstat(fd), "st_birthtime", None)
        if elsewhere is not None:
            return int(elsewhere * 1_000_000_000)
        call = _statx()
        buffer = ctypes.create_string_buffer(_SIZE)
        if call is None or call(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer) != 0:
            return 0
        if not _MASK.unpack_from(buffer, 0)[0] & _STATX_BTIME:
            return 0
        seconds, nanoseconds = _TIME.unpack_from(buffer, _BTIME_AT)
        return int(seconds) * 1_000_000_000 + int(nanoseconds)

    def descriptor(self, fd: int) -> str:
        """Return a path that opens the file of a descriptor."""
        return f"/proc/{os.getpid()}/fd/{fd}"


DISK: Final[Disk] = LocalDisk()
