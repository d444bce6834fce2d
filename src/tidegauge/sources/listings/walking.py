"""Listing a place page by page, in the order of the paths: a folder on a disk, or objects below a place in a store.

The rules are those of `tg.FileSource`: `*`, `?` and `[...]` match within one name, `**` stands for any number of
folders, and names that begin with `.` or `_` are ignored unless the pattern says so. Files without a byte are
ignored until they have one.

Invariant: a page has at most `PAGE` entries; a file that was there before and after the listing is on one of them,
and no page holds a path that is before one of an earlier page. Memory is that of a page and, on a disk, of the names
of one folder.

>>> may_lead("/in/day=*/*.csv", "/in/day=7"), may_lead("/in/day=*/*.csv", "/in/x")
(True, False)
>>> may_lead("/in/**/*.csv", "/in/a/b")
True
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from tidegauge.errors.listings import ListingUnordered
from tidegauge.objects.address import is_address, parts
from tidegauge.objects.listing import Listed, one, pages
from tidegauge.sources.file.listing import matcher, printable, root, segments
from tidegauge.sources.file.objects.listing import beginning, fits
from tidegauge.sources.file.watching import absent

__all__ = ["PAGE", "Walk", "before", "may_lead"]

PAGE: Final = 1000
_MAGIC: Final = re.compile(r"[*?\[]")


@dataclass(slots=True)
class Walk:
    """One listing of what a pattern names. now, settle: nanoseconds; a file that was changed since waits.

    after: only paths behind this one are listed. in_order: whether a file that has not settled ends the listing.
    waiting: how many have not settled. future: one that was last changed in the future, by this machine's clock.
    seen: how many files were on pages. passed_over: a line for people about a name that can be no path.
    """

    pattern: str
    now: int
    settle: int
    after: str = ""
    in_order: bool = False
    waiting: int = field(default=0, init=False)
    future: str = field(default="", init=False)
    seen: int = field(default=0, init=False)
    passed_over: str = field(default="", init=False)

    def pages(self) -> Iterator[list[Listed]]:
        """Yield the pages. Raises `OSError`, `ListingUnordered`, and what asking a store does."""
        if is_address(self.pattern):
            yield from self._objects()
            return
        files = self._files(root(self.pattern))
        while page := list(islice(files, PAGE)):
            self.seen += len(page)
            yield page

    def _objects(self) -> Iterator[list[Listed]]:
        if (place := beginning(self.pattern)) is None:
            found = one(self.pattern)
            yield [found] if found is not None and found.size and found.path > self.after else []
            return
        bucket, folder, deep = place
        _bucket, key = parts(self.pattern)
        start = len(bucket) + 1
        prefix = self.pattern[: _wild(self.pattern)]
        last, at = self.after, max(self.after[start:], before(prefix[start:]))
        while True:
            beyond = ""
            for page in pages(bucket, folder, deep=True, after=at):
                named: list[Listed] = []
                for each in page:
                    # A mark of a folder is listed without the slash that it is ordered by.
                    if not each.size or each.path == last:
                        continue
                    if each.path < last:
                        raise ListingUnordered(place=self.pattern, before=printable(last), path=printable(each.path))
                    last = each.path
                    if fits(key, each.path[start:]):
                        named.append(each)
                self.seen += len(named)
                yield named
                if last > prefix and not last.startswith(prefix):
                    return
                if page and not deep and (beyond := _inside(folder, page[0].path[start:], page[-1].path[start:])):
                    break  # a page from one folder that does not matter: go on behind it
            if not beyond:
                return
            at = beyond

    def _files(self, folder: str) -> Iterator[Listed]:
        """Yield the files below a folder, depth first, as their paths are ordered."""
        for name in self._names(folder):
            path = f"{folder.rstrip('/')}/{name}"
            if name.endswith("/"):
                if path >= self.after[: len(path)]:
                    yield from self._files(path[:-1])
            elif path > self.after and (found := self._file(path)) is not None:
                age = self.now - found.modified
                if self.settle and age < self.settle:
                    self.waiting += age >= 0
                    self.future = self.future or (path if age < 0 else "")
                    if self.in_order:
                        return
                    continue
                yield found
            if self.in_order and (self.waiting or self.future):
                return

    def _names(self, folder: str) -> list[str]:
        """Return the names in a folder that matter, sorted as paths are: those of folders end with a slash."""
        names: list[str] = []
        steps = segments(self.pattern)
        named = matcher(steps[-1]) if _MAGIC.search(steps[-1]) else steps[-1].__eq__
        here = fits(
            "/".join((*steps[:-1], "x")), f"{folder}/x".strip("/")
        )  # whether files count that are right in it
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if may_lead(self.pattern, entry.path):
                            names.append(f"{entry.name}/")
                    elif here and named(entry.name):
                        names.append(entry.name)
                    elif entry.is_symlink() and entry.is_dir() and may_lead(self.pattern, entry.path, linked=True):
                        names.append(f"{entry.name}/")
        except OSError as error:
            if not absent(error):
                raise
        return sorted(set(names))  # some file systems tell a name twice while others come and go

    def _file(self, path: str) -> Listed | None:
        try:
            status = os.stat(path)  # noqa: PTH116 - a path of text, a million times
        except OSError as error:
            if absent(error):
                return None
            raise
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return None
        try:
            path.encode()
        except UnicodeEncodeError:
            self.passed_over = f"{printable(path)} is ignored: its name is not valid UTF-8"
            return None
        return Listed(path, status.st_size, status.st_mtime_ns, "")


def may_lead(pattern: str, folder: str, *, linked: bool = False) -> bool:
    """Whether a folder may hold, at any depth, what a pattern names. linked: whether it is a link, which `**` does
    not follow."""
    steps, names = segments(pattern), folder.strip("/").split("/")
    for at, name in enumerate(names):
        step = steps[at] if at < len(steps) else ""
        if step == "**":
            spelled = any(one[:1] in {".", "_"} for one in steps[at:])
            return not linked and (spelled or all(each[0] not in "._" for each in names[at:]))
        if not (matcher(step)(name) if _MAGIC.search(step) else step == name):
            return False
    return len(names) < len(steps)


def _wild(pattern: str) -> int:
    """Return where the first wildcard of a pattern is."""
    found = _MAGIC.search(pattern)
    return len(pattern) if found is None else found.start()


def before(prefix: str) -> str:
    """Return a key that is before all that begin with a prefix, and behind as many others as can be told simply.

    >>> before("in/hello") < "in/hello", before("in/hello") > "in/hellm/a", before("")
    (True, True, '')
    """
    last = prefix[-1:]
    return f"{prefix[:-1]}{chr(ord(last) - 1)}\U0010fffd" if "\x21" <= last <= "\x7e" else ""


def _inside(folder: str, first: str, last: str) -> str:
    """Return a key behind all of one folder in a folder that two keys are in, "" where they are in none, or in two.

    >>> _inside("in", "in/old/a", "in/old/b") > "in/old/zzz", _inside("in", "in/a", "in/old/b")
    (True, '')
    """
    skipped = len(folder) + 1 if folder else 0
    name, slash, _ = first[skipped:].partition("/")
    whole = first[: skipped + len(name) + 1]
    return f"{whole}\U0010fffd" if slash and last.startswith(whole) else ""
