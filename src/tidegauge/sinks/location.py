"""Folders on file systems: which paths a sink takes, how files become durable there, and what staging needs of one.

Invariant: a file or folder is durable when it and the entry that names it were both synchronised; a path relative to
a table never leads out of it.

>>> local_folder("file:///lake/my%20orders", sink="DeltaSink")
'/lake/my orders'

`StagingFiles` is the seam between staging and a file system, `LocalFiles` the one that is mounted on every machine.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as root:
...     files = LocalFiles(root)
...     with files.create("_staged/job/part-0") as out:
...         print(out.write(b"rows"))
...     files.keep("_staged/job/part-0"), files.folders("_staged"), files.folders("elsewhere")
4
(4, ['job'], [])
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import StagingElsewhere, TableNotWritable, UnsupportedLocation

__all__ = [
    "AWAY",
    "LocalFiles",
    "StagingFiles",
    "gone",
    "inside",
    "local_folder",
    "make_folder",
    "synchronise",
    "write_durably",
    "writing",
]

AWAY: Final = "removed-"
"""How the name of a folder begins that is on its way out."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_folder(path: str | os.PathLike[str], *, sink: str) -> str:
    """Return an absolute path for a path or a `file:` URI; raise `UnsupportedLocation` for any other scheme.

    Absolute, because tasks may run in another working directory than the program that names the path.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise InvalidArgument(parameter=f"{sink}(path)", value=text, expected="the path of a folder, not empty")
    found = _SCHEME.match(text)
    if found is None:
        return str(Path(text).absolute())
    uri = urlsplit(text)
    if uri.scheme.lower() != "file" or uri.netloc not in {"", "localhost"}:
        # Only the scheme is shown: the rest of a URI may hold a password.
        raise UnsupportedLocation(sink=sink, scheme=found[1])
    return str(Path(unquote(uri.path)).absolute())


def inside(folder: str, relative: str) -> Path:
    """Return the path of a file of the table, or raise when `relative` would lead out of it."""
    parts = PurePosixPath(relative).parts
    if not parts or relative.startswith("/") or "\\" in relative or "\0" in relative or ".." in parts:
        raise InvalidArgument(parameter="path", value=relative, expected="a path inside the table")
    return Path(folder, *parts)


def gone(path: Path) -> bool:
    """Whether nothing is at a path. What cannot be looked at is not known to be gone."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def synchronise(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk. Its name is durable when its folder is synchronised."""
    with open(path, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def make_folder(path: Path) -> None:
    """Create a folder and its parents where they are missing, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    synchronise(path.parent)


@contextmanager
def writing(table: str) -> Iterator[None]:
    """Turn refusals of the file system that will not pass by themselves into errors with a remedy.

    All other `OSError`s, a full disk among them, go through unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise StagingElsewhere(table=table, detail=str(error)) from error
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise TableNotWritable(table=table, detail=str(error)) from error
        raise


class StagingFiles(Protocol):
    """Where attempts at tasks stage: what staging, aborting, discarding and sweeping need of a file system.

    A picklable value, used in tasks and in the driver. Paths are relative, their parts parted by "/".
    """

    @property
    def root(self) -> str:
        """Where it is, for people."""
        ...

    def create(self, path: str) -> Any:
        """Return an Arrow output stream into a new file, with its folders. Raises `FileExistsError`."""
        ...

    def keep(self, path: str) -> int:
        """Wait until a file whose stream was closed survives a crash, and return its size."""
        ...

    def keep_names(self, folder: str) -> None:
        """Wait until the names in a folder survive a crash too."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file. One that is gone is no error."""
        ...

    def prune(self, folder: str) -> None:
        """Remove a folder if nothing is in it, as far as there are such folders."""
        ...

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, none where it is missing. Links are not followed."""
        ...

    def clear(self, folder: str) -> None:
        """Remove a folder with all in it. A commit of its files that is about to be made fails."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The `StagingFiles` in a folder that is mounted on every machine."""

    root: str

    def create(self, path: str) -> Any:
        """Open a file that nobody has."""
        there = inside(self.root, path)
        with writing(self.root):
            make_folder(there.parent)
            there.touch(exist_ok=False)
            return pa.OSFile(str(there), "wb")

    def keep(self, path: str) -> int:
        """Synchronise a file."""
        there = inside(self.root, path)
        with writing(self.root):
            synchronise(there)
            return there.stat().st_size

    def keep_names(self, folder: str) -> None:
        """Synchronise a folder."""
        with writing(self.root):
            synchronise(self._folder(folder))

    def remove(self, path: str) -> None:
        """Remove a file."""
        with writing(self.root):
            inside(self.root, path).unlink(missing_ok=True)

    def prune(self, folder: str) -> None:
        """Remove an empty folder."""
        with suppress(OSError):
            self._folder(folder).rmdir()

    def folders(self, folder: str) -> list[str]:
        """List the folders in a folder."""
        try:
            with os.scandir(self._folder(folder)) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def clear(self, folder: str) -> None:
        """Rename a folder, which a commit of it does too, and only one of them can; then remove it."""
        there = self._folder(folder)
        away = there if there.name.startswith(AWAY) else there.with_name(f"{AWAY}{there.name}")
        there.rename(away)
        shutil.rmtree(away)

    def _folder(self, folder: str) -> Path:
        return inside(self.root, folder) if folder else Path(self.root)
