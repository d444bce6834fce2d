"""A disk: where a path is on it, and how a file there is for good, whole, and made by one alone.

Invariant: a file or folder is durable when it and the entry that names it were both synchronised.

>>> local_path("file:///lake/my%20orders", parameter="path", elsewhere=ValueError)
'/lake/my orders'
>>> import tempfile
>>> with tempfile.TemporaryDirectory() as root:
...     path = Path(root, "one")
...     put_new(path, b"mine", beside="a"), put_new(path, b"yours", beside="b"), path.read_bytes()
(True, False, b'mine')
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tidegauge.errors.flow import InvalidArgument

__all__ = ["local_path", "make_folder", "put_new", "synchronise", "write_durably"]

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_path(path: str | os.PathLike[str], *, parameter: str, elsewhere: Callable[[str], Exception]) -> str:
    """Return an absolute path for a path or a `file:` URI.

    Absolute, because tasks may run in another working directory than the program that names the path. parameter: what
    it was given as. elsewhere: makes the error for another scheme, given that alone: the rest may hold a password.

    Raises `InvalidArgument`, and what `elsewhere` makes.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise InvalidArgument(parameter=parameter, value=text, expected="the path of a folder, not empty")
    found = _SCHEME.match(text)
    if found is None:
        return str(Path(text).absolute())
    uri = urlsplit(text)
    if uri.scheme.lower() != "file" or uri.netloc not in {"", "localhost"}:
        raise elsewhere(found[1])
    return str(Path(unquote(uri.path)).absolute())


def synchronise(path: str | Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder and its parents where they are missing, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError:
        if os.path.lexists(path) and not path.is_dir():
            raise
        make_folder(path)  # who made it has removed it since
        return
    synchronise(path.parent)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on the disk. Its name is durable when its folder is synchronised."""
    with open(path, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def put_new(path: Path, data: bytes, *, beside: str) -> bool:
    """Make a file with this name, whole and durably, if and only if nobody else's is there; False where one is.

    It is written and synchronised beside it, under a name that no other attempt has, and then linked to its own. The
    file system refuses that where the name is taken.
    """
    other = path.with_name(beside)
    try:
        write_durably(other, data)
        os.link(other, path)
    except FileExistsError:
        return False
    finally:
        other.unlink(missing_ok=True)
    synchronise(path.parent)
    return True
