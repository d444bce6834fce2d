"""Which files a glob names now.

Invariant: the answer is sorted by path, names each path once, and depends on the disk alone. Only folders that can
hold a match are listed: for `a/b/hello*/*.json` these are `a/b` and its folders that begin with `hello`.

A source that is asked together with others uses what these have listed (`watching`), as long as that fits what it
finds itself: a name that was there is there, with the inode number that it had. Else it lists by itself.

The rules: `*`, `?` and `[...]` match within one name; a segment `**` stands for any number of folders and does not
follow links to folders. Names that begin with `.` or `_` are ignored unless their own segment begins with the
same character. A link to a file counts as the file.

>>> listed("/no/such/folder/*.jsonl").files
()
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from tidegauge.sources.file.disk import DISK, Disk, Entry, FileStatus
from tidegauge.sources.file.watching import Watch

__all__ = ["Listing", "listed", "literally", "matcher", "printable", "root", "segments", "siblings"]

_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Listing:
    """Regular files with what `stat` said of them, and a line for people about each name that is skipped.

    watch: how the disk was looked at, which is how the rest of the look goes on.
    """

    files: tuple[tuple[str, FileStatus], ...]
    passed_over: tuple[str, ...] = ()
    watch: Watch = field(default_factory=Watch)


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


def siblings(folder: str, inos: Iterable[int], *, watch: Watch) -> list[tuple[str, FileStatus]]:
    """Return the regular files of a folder that have one of these inode numbers, whatever their names."""
    wanted = frozenset(inos)
    found: list[tuple[str, FileStatus]] = []
    for entry in watch.entries(folder):
        if entry.inode() in wanted and entry.is_file(follow_symlinks=False):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                status = None
            if watch.findings is not None and (status is None or status.st_ino != entry.inode()):
                return siblings(folder, wanted, watch=watch.alone)
            if status is not None:
                found.append((entry.path, status))
    return found


@cache
def matcher(segment: str) -> Callable[[str], bool]:
    """Return what tells whether a segment of a pattern stands for a name."""
    match = re.compile(fnmatch.translate(segment)).match
    shown = segment[:1] if segment[:1] in {".", "_"} else ""

    def matches(name: str) -> bool:
        hidden = name[0] in "._"
        return (not hidden or name[0] == shown) and match(name) is not None

    return matches


@cache
def segments(pattern: str) -> tuple[str, ...]:
    """Return the segments of a pattern."""
    parts = [part for part in pattern.split("/") if part]
    kept = [part for i, part in enumerate(parts) if part != "**" or parts[i - 1 : i] != ["**"]]
    return (*kept, "*") if kept[-1:] == ["**"] else tuple(kept)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names that a segment with a wildcard stands for. prefix: with what all of them begin."""

    prefix: str
    test: Callable[[str], bool]


@cache
def _tests(pattern: str) -> tuple[tuple[_Names | None, ...], tuple[str, int]]:
    """Return for each segment how names are told to match, None where one name does; and where to begin."""
    steps = segments(pattern)
    tests = tuple(
        None if part == "**" or magic is None else _Names(part[: magic.start()], matcher(part))
        for part, magic in ((part, _MAGIC.search(part)) for part in steps)
    )
    plain = next((i for i, part in enumerate(steps) if tests[i] or part == "**"), len(steps) - 1)
    return tests, ("/" + "/".join(steps[:plain]), plain)


def root(pattern: str) -> str:
    """Return the folder with which an absolute pattern begins: the one that holds all that it names.

    >>> root("/data/in/**/*.csv"), root("/data/in/a.csv")
    ('/data/in', '/data/in')
    """
    folder, _plain = _tests(pattern)[1]
    return folder


def _paths(pattern: str, watch: Watch) -> dict[str, Entry | None]:
    """Return the paths that a pattern names, each with its entry if that was found for other sources, too."""
    steps = segments(pattern)
    tests, start = _tests(pattern)
    visible, keep = matcher("*"), watch.findings is not None
    found: dict[str, Entry | None] = {}
    todo = [start]
    while todo:
        folder, at = todo.pop()
        last = at + 1 == len(steps)
        names = tests[at]
        if steps[at] == "**":
            todo.append((folder, at + 1))
            todo += [(entry.path, at) for entry in watch.folders(folder) if visible(entry.name)]
        elif names is None:
            path = os.path.join(folder, steps[at])
            if last:
                found[path] = None
            else:
                todo.append((path, at + 1))
        elif last:
            test, here = names.test, watch.entries(folder, names.prefix)
            found |= {entry.path: entry if keep else None for entry in here if test(entry.name)}
        else:
            # A link is tried: what it points to shows when it is listed.
            todo += [
                (entry.path, at + 1)
                for entry in watch.entries(folder, names.prefix)
                if names.test(entry.name) and (entry.is_dir(follow_symlinks=False) or entry.is_symlink())
            ]
    return found


def _storable(path: str) -> bool:
    return path.isascii() or not any("\ud800" <= character <= "\udfff" for character in path)


def _outdated(entry: Entry, status: FileStatus | None) -> bool:
    """Whether a name was given to another file, or to none, since its folder was listed."""
    return entry.is_file(follow_symlinks=False) and (status is None or status.st_ino != entry.inode())


def listed(pattern: str, *, watch: Watch | None = None, disk: Disk = DISK) -> Listing:
    """Return the files that an absolute pattern names. Raises `OSError` for a folder that may not be read.

    watch: the disk as the sources of a look see it; None for one of its own.
    """
    watch = watch or Watch(disk)
    paths = _paths(pattern, watch)
    ordered = sorted(paths)
    statuses = watch.statuses(ordered)
    if watch.findings is not None and any(
        entry is not None and _outdated(entry, statuses[path]) for path, entry in paths.items()
    ):
        return listed(pattern, watch=watch.alone)
    files: list[tuple[str, FileStatus]] = []
    passed_over: list[str] = []
    for path in ordered:
        status = statuses[path]
        if status is None:
            continue
        if stat.S_ISDIR(status.st_mode):
            if path == pattern:
                passed_over.append(f"{printable(path)} is a folder: write {printable(path)}/* for the files in it")
        elif not stat.S_ISREG(status.st_mode):
            passed_over.append(f"{printable(path)} is passed over: a pipe, socket or device, not a file")
        elif not _storable(path):
            passed_over.append(f"{printable(path)} is passed over: its name is not valid UTF-8")
        else:
            files.append((path, status))
    return Listing(tuple(files), tuple(passed_over), watch)
