"""Where tables are: which paths a sink takes, how files become durable there, and what staging needs of a place.

A table is in a folder of a file system that is mounted on every machine, or at an address in an object store. A
`TablePath` is a `Path` on the one and an `ObjectPath` in the other. The functions here hide the differences.

Invariant: on a disk a file or folder is durable when it and the entry that names it were both synchronised, in an
object store when its put was answered; a path relative to a table never leads out of it.

>>> location("file:///lake/my%20orders", sink="DeltaSink"), location("s3a://lake/orders/", sink="DeltaSink")
('/lake/my orders', 's3://lake/orders')

`StagingFiles` is the seam between staging and a place, `staging` finds the one of a table.

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
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from tidegauge import disk
from tidegauge.errors.base import Transient
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import StagingElsewhere, TableNotWritable, UnsupportedLocation
from tidegauge.objects.address import address, is_address
from tidegauge.objects.path import ObjectPath

__all__ = [
    "AWAY",
    "LocalFiles",
    "StagingFiles",
    "TablePath",
    "at",
    "gone",
    "inside",
    "local_folder",
    "location",
    "make_folder",
    "names_in",
    "path_inside",
    "prove",
    "put_new",
    "put_whole",
    "staging",
    "synchronise",
    "writing",
]

TablePath: TypeAlias = Path | ObjectPath

AWAY: Final = "removed-"
"""How the name of a folder begins that is on its way out."""


def local_folder(path: str | os.PathLike[str], *, sink: str) -> str:
    """Return an absolute path for a path or a `file:` URI; raise `UnsupportedLocation` for any other scheme."""
    return disk.local_path(
        path, parameter=f"{sink}(path)", elsewhere=lambda scheme: UnsupportedLocation(sink=sink, scheme=scheme)
    )


def location(path: str | os.PathLike[str], *, sink: str) -> str:
    """Return an address in an object store in its one form, or what `local_folder` returns. Raises as both do."""
    text = os.fspath(path)
    return address(text) if isinstance(text, str) and is_address(text) else local_folder(path, sink=sink)


def at(folder: str) -> TablePath:
    """Return the place of a table."""
    return ObjectPath.of(folder) if is_address(folder) else Path(folder)


def inside(folder: str, relative: str) -> TablePath:
    """Return the path of a file of the table, or raise when `relative` would lead out of it."""
    if is_address(folder):
        return ObjectPath.of(folder) / "/".join(_parts(relative))
    return path_inside(folder, relative)


def path_inside(folder: str, relative: str) -> Path:
    """Return the path of a file of a table on a disk, or raise as `inside`."""
    return Path(folder, *_parts(relative))


def _parts(relative: str) -> tuple[str, ...]:
    parts = PurePosixPath(relative).parts
    if not parts or relative.startswith("/") or "\\" in relative or "\0" in relative or ".." in parts:
        raise InvalidArgument(parameter="path", value=relative, expected="a path inside the table")
    return parts


def names_in(folder: TablePath, start: str = "") -> list[str]:
    """Return the names in a folder that begin with `start`. Raises FileNotFoundError where it is missing.

    In a store it is missing where it is empty, and only names of objects are returned.
    """
    if isinstance(folder, ObjectPath):
        if not (names := folder.names(start)) and not start:
            raise FileNotFoundError(errno.ENOENT, "No such folder", str(folder))
        return names
    return [name for name in os.listdir(folder) if name.startswith(start)]


def gone(path: TablePath) -> bool:
    """Whether nothing is at a path. What cannot be looked at is not known to be gone."""
    if isinstance(path, ObjectPath):
        try:
            return path.empty() and not path.exists()
        except Transient:
            return False
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def synchronise(path: str | TablePath) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    if not isinstance(path, ObjectPath):
        disk.synchronise(path)


def put_new(path: TablePath, data: bytes, *, beside: str) -> bool:
    """Make a file with this name, whole and durably, if and only if nobody else's is there; False where one is.

    beside: on a disk, a name that no other attempt has; a store refuses by itself.
    """
    return path.put_new(data) if isinstance(path, ObjectPath) else disk.put_new(path, data, beside=beside)


def prove(path: TablePath) -> None:
    """Raise `ConditionalPutIgnored` unless a file is not written over at this place. path: a name that nobody has.

    A disk does not. A server that passes for S3 may, and every commit that somebody else has made meanwhile would be
    lost in silence. So it is asked twice for one object.
    """
    if isinstance(path, ObjectPath):
        path.prove()


def put_whole(path: TablePath, data: bytes, *, beside: str, durable: bool = True) -> None:
    """Make a file in the place of the one that may be there, with its folder; whole or not at all."""
    if isinstance(path, ObjectPath):
        path.put(data)
        return
    make_folder(path.parent)
    other = path.with_name(beside)
    if durable:
        disk.write_durably(other, data)
    else:
        other.write_bytes(data)
    other.rename(path)
    if durable:
        synchronise(path.parent)


def make_folder(path: TablePath) -> None:
    """Create a folder and its parents where they are missing, durably. A store needs none."""
    if not isinstance(path, ObjectPath):
        disk.make_folder(path)


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

    def own(self, stem: str) -> str:
        """Return how the names of an attempt's files begin: as given where `create` alone keeps attempts apart."""
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

    def own(self, stem: str) -> str:
        """Return the name itself: creation is exclusive."""
        return stem

    def create(self, path: str) -> Any:
        """Open a file that nobody has."""
        there = path_inside(self.root, path)
        with writing(self.root):
            make_folder(there.parent)
            there.touch(exist_ok=False)
            return pa.OSFile(str(there), "wb")

    def keep(self, path: str) -> int:
        """Synchronise a file."""
        there = path_inside(self.root, path)
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
            path_inside(self.root, path).unlink(missing_ok=True)

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
        return path_inside(self.root, folder) if folder else Path(self.root)


def staging(folder: str) -> StagingFiles:
    """Return where tasks stage the files of a table."""
    if not is_address(folder):
        return LocalFiles(folder)
    from tidegauge.sinks.uploads import ObjectFiles

    return ObjectFiles(folder)
