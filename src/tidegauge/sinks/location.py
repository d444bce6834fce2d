"""Folders on file systems: which paths a sink takes, and how files written there become durable.

Invariant: a file or folder is durable when it and the entry that names it were both synchronised; a path relative to
a table never leads out of it.

>>> local_folder("file:///lake/my%20orders", sink="DeltaSink")
'/lake/my orders'
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.sinks import StagingElsewhere, TableNotWritable, UnsupportedLocation

__all__ = ["gone", "inside", "local_folder", "make_folder", "synchronise", "write_durably", "writing"]

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
