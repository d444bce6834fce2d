"""Opening the file that is meant, wherever it is now.

Invariant: an open file that is returned has the inode number and the fingerprint that were asked for, and at least
the bytes that were asked for. A file may be renamed or replaced between any two calls, so everything is checked on
the open file, never on its name.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from tidegauge.errors.sources import FileGone, FileRewritten
from tidegauge.sources.file.identity import FileFacts, fingerprint
from tidegauge.sources.file.listing import entries

__all__ = ["check", "open_known", "opened", "siblings"]


def opened(path: str) -> BinaryIO:
    """Open a regular file. Raises `FileNotFoundError` for anything else, at once: a pipe does not block."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "not a regular file any more", path)
    return os.fdopen(fd, "rb")


def siblings(folder: str, inos: Iterable[int]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files of a folder that have one of these inode numbers, whatever their names."""
    wanted = frozenset(inos)
    for entry in entries(folder):
        if entry.inode() in wanted and entry.is_file(follow_symlinks=False):
            try:
                yield entry.path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


def check(stream: BinaryIO, facts: FileFacts, *, path: str, upper: int) -> None:
    """Raise `FileRewritten` unless the open file still begins as it did and has its first `upper` bytes."""
    found = fingerprint(stream.fileno(), facts.head, whole=bool(facts.whole))
    size = os.fstat(stream.fileno()).st_size
    if found != facts.digest or (size < upper and not facts.packed):
        raise FileRewritten(path=path, bound=upper, size=size, expected=facts.digest, found=found)


def open_known(
    facts: FileFacts, *, lower: int, upper: int, elsewhere: Callable[[], Iterable[str]] = tuple
) -> tuple[str, BinaryIO]:
    """Return where a known file is now, and the file, opened.

    It is looked for under its last path, then under any name in that folder, then in the paths that `elsewhere`
    gives. Raises `FileGone` when it is in none of them, `FileRewritten` when it is there with other content, and
    `OSError`.
    """
    rewritten: FileRewritten | None = None
    for path in _places(facts, elsewhere):
        try:
            stream = opened(path)
        except FileNotFoundError:
            continue
        try:
            if os.fstat(stream.fileno()).st_ino != facts.ino:
                stream.close()
                continue
            check(stream, facts, path=path, upper=upper)
        except FileRewritten as error:
            stream.close()
            rewritten = rewritten or error
        except BaseException:
            stream.close()
            raise
        else:
            return path, stream
    raise rewritten or FileGone(path=facts.path, lower=lower, upper=upper)


def _places(facts: FileFacts, elsewhere: Callable[[], Iterable[str]]) -> Iterator[str]:
    yield facts.path
    yield from (path for path, _ in siblings(str(Path(facts.path).parent), [facts.ino]) if path != facts.path)
    yield from elsewhere()
