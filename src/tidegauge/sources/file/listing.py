"""Which files a glob names now.

Invariant: the answer is sorted by path, names each path once, and depends on the disk alone. Only folders that can
hold a match are listed: for `a/b/hello*/*.json` these are `a/b` and its folders that begin with `hello`.

The rules: `*`, `?` and `[...]` match within one name; a segment `**` stands for any number of folders and does not
follow links to folders. Names that begin with `.` or `_` are ignored unless their own segment begins with the
same character. A link to a file counts as the file.

>>> listed("/no/such/folder/*.jsonl").files
()
"""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from tidegauge.sources.file.disk import DISK, Disk, Entry, FileStatus

__all__ = ["Listing", "entries", "listed", "literally", "printable", "root", "siblings"]

_MAGIC = re.compile(r"[*?\[]")
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


@dataclass(frozen=True, slots=True)
class Listing:
    """Regular files with what `stat` said of them, and a line for people about each name that is skipped."""

    files: tuple[tuple[str, FileStatus], ...]
    passed_over: tuple[str, ...] = ()


def printable(path: str) -> str:
    """Return a path on one line, in characters that can be stored.

    >>> printable("a\\nb"), printable("a\\udcff")
    ('a\\\\nb', 'a\\\\udcff')
    """
    shown = path.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def literally(pattern: str, *, disk: Disk = DISK) -> str:
    """Return a hint where a pattern is the very name of a file, whose special characters it takes for a glob."""
    if not disk.lexists(pattern):
        return ""
    return f", but there is a file of that very name: write {printable(glob.escape(pattern))!r} for it"


def entries(folder: str, *, disk: Disk = DISK) -> Iterator[Entry]:
    """Yield what a folder holds; nothing when there is no such folder."""
    try:
        found = disk.scandir(folder)
    except OSError as error:
        if error.errno in _ABSENT:
            return
        raise
    with found as listed_entries:
        yield from listed_entries


def siblings(folder: str, inos: Iterable[int], *, disk: Disk = DISK) -> Iterator[tuple[str, FileStatus]]:
    """Yield the regular files of a folder that have one of these inode numbers, whatever their names."""
    wanted = frozenset(inos)
    for entry in entries(folder, disk=disk):
        if entry.inode() in wanted and entry.is_file(follow_symlinks=False):
            try:
                yield entry.path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


@cache
def _matcher(segment: str) -> Callable[[str], bool]:
    match = re.compile(fnmatch.translate(segment)).match
    shown = segment[:1] if segment[:1] in {".", "_"} else ""

    def matches(name: str) -> bool:
        hidden = name[0] in "._"
        return (not hidden or name[0] == shown) and match(name) is not None

    return matches


@cache
def _segments(pattern: str) -> tuple[str, ...]:
    parts = [part for part in pattern.split("/") if part]
    kept = [part for i, part in enumerate(parts) if part != "**" or parts[i - 1 : i] != ["**"]]
    return (*kept, "*") if kept[-1:] == ["**"] else tuple(kept)


@cache
def _tests(pattern: str) -> tuple[tuple[Callable[[str], bool] | None, ...], tuple[str, int]]:
    """Return for each segment how names are told to match, None where one name does; and where to begin."""
    segments = _segments(pattern)
    tests = tuple(None if part == "**" or not _MAGIC.search(part) else _matcher(part) for part in segments)
    plain = next((i for i, part in enumerate(segments) if tests[i] or part == "**"), len(segments) - 1)
    return tests, ("/" + "/".join(segments[:plain]), plain)


def root(pattern: str) -> str:
    """Return the folder with which an absolute pattern begins: the one that holds all that it names.

    >>> root("/data/in/**/*.csv"), root("/data/in/a.csv")
    ('/data/in', '/data/in')
    """
    folder, _plain = _tests(pattern)[1]
    return folder


def _paths(pattern: str, disk: Disk) -> set[str]:
    segments = _segments(pattern)
    tests, start = _tests(pattern)
    visible = _matcher("*")
    found: set[str] = set()
    todo = [start]
    while todo:
        folder, at = todo.pop()
        last = at + 1 == len(segments)
        test = tests[at]
        if segments[at] == "**":
            todo.append((folder, at + 1))
            todo += [
                (entry.path, at)
                for entry in entries(folder, disk=disk)
                if visible(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
        elif test is None:
            path = os.path.join(folder, segments[at])
            if last:
                found.add(path)
            else:
                todo.append((path, at + 1))
        elif last:
            found.update(entry.path for entry in entries(folder, disk=disk) if test(entry.name))
        else:
            # A link is tried: what it points to shows when it is listed.
            todo += [
                (entry.path, at + 1)
                for entry in entries(folder, disk=disk)
                if test(entry.name) and (entry.is_dir(follow_symlinks=False) or entry.is_symlink())
            ]
    return found


def _storable(path: str) -> bool:
    return path.isascii() or not any("\ud800" <= character <= "\udfff" for character in path)


def listed(pattern: str, *, disk: Disk = DISK) -> Listing:
    """Return the files that an absolute pattern names. Raises `OSError` for a folder that may not be read."""
    files: list[tuple[str, FileStatus]] = []
    passed_over: list[str] = []
    for path in sorted(_paths(pattern, disk)):
        try:
            status = disk.stat(path)
        except OSError as error:
            if error.errno in _ABSENT:
                continue
            raise
        if stat.S_ISDIR(status.st_mode):
            if path == pattern:
                passed_over.append(f"{printable(path)} is a folder: write {printable(path)}/* for the files in it")
        elif not stat.S_ISREG(status.st_mode):
            passed_over.append(f"{printable(path)} is passed over: a pipe, socket or device, not a file")
        elif not _storable(path):
            passed_over.append(f"{printable(path)} is passed over: its name is not valid UTF-8")
        else:
            files.append((path, status))
    return Listing(tuple(files), tuple(passed_over))
