"""How far the files are: what may be bound now, given the disk and what is bound.

The probe lists the files, pairs each with what is known of its inode number, and opens only those whose size or
modification time is not as it was bound. Let `p` be a file's bound position, `s` the size at which it was last seen,
and `n` its size:

    known, n = p, not modified since          nothing to do, not opened
    known, n >= p, still the same file        lines: up to the last record boundary; whole: nothing, it was touched
    known, the same, p <= n < s               what was seen beyond `n` was taken back: `EndTakenBack`, or a gap
    known, shrunk or with other content       `FileRewritten`
    known, its inode number now another file  gone, and the other file is new
    known, gone, p < s                        bound up to `s`, and then found lost: see `missing`
    not known, lines                          up to the last record boundary
    not known, whole                          all of it, when complete and not modified for the settling time

A known file that the pattern no longer names is looked for in its folder: a rotated log is read to its end.

Invariant: what is admitted is at most `limit` bytes beyond what is bound (see `admitting`), and is taken in the order
of the paths. Nothing is lost because a file was renamed under our eyes: a loss is looked for again before it is said.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from tidegauge.errors.sources import EndTakenBack, FileRewritten
from tidegauge.remap.binding import Bound, Detail
from tidegauge.sources.file.admitting import enter, grow, put_off
from tidegauge.sources.file.found import Rules, Survey
from tidegauge.sources.file.identity import Seen, Verdict, fingerprint, judge
from tidegauge.sources.file.listing import listed, literally, printable
from tidegauge.sources.file.missing import give_up, unread
from tidegauge.sources.file.opening import opened, siblings

__all__ = ["survey"]

LOOKS: Final = 3
"""How often a file is looked for before it is said to be gone: a folder that is listed while files in it are renamed
may show one of them under no name."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file on disk, with the keys of the partitions that are known under its inode number."""

    path: str
    status: os.stat_result
    keys: tuple[str, ...]
    named: bool

    def as_in(self, detail: Detail) -> bool:
        """Whether its status is the one that is known."""
        status = self.status
        return detail["modified"] == status.st_mtime_ns and detail["dev"] == status.st_dev


def survey(pattern: str, rules: Rules, bound: Bound) -> Survey:
    """Look at the disk. Raises `FileRewritten`, `EndTakenBack`, `FolderAway`, `UnknownColumns` and `OSError`."""
    found, here = _once(pattern, rules, bound)
    for _again in range(LOOKS - 1):
        if not unread(found, here):
            break
        found, here = _once(pattern, rules, bound)
    give_up(unread(found, here), here, rules, found)
    found.gone = {key: position for key, position in bound.frontier.items() if key not in here}
    return found


def _once(pattern: str, rules: Rules, bound: Bound) -> tuple[Survey, set[str]]:
    """Look once; return also the partitions whose files are here."""
    found, here = Survey.of(bound), set[str]()
    for candidate in sorted(_candidates(pattern, found), key=lambda c: c.path):
        key = _unchanged(candidate, found) or _look(candidate, rules, found)
        if key is not None:
            here.add(key)
    return found, here


def _candidates(pattern: str, found: Survey) -> Iterator[_Candidate]:
    """Yield each file once: those that the pattern names, then known ones under other names in their folders."""
    keys: defaultdict[int, list[str]] = defaultdict(list)
    for key, detail in found.known.items():
        keys[int(detail["ino"])].append(key)
    listing = listed(pattern)
    found.notes += listing.passed_over
    if not listing.files and not listing.passed_over:
        found.notes.append(f"waiting: no file matches {printable(pattern)!r}{literally(pattern)}")
    seen: set[tuple[int, int]] = set()
    for path, status in listing.files:
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            yield _Candidate(path, status, tuple(keys.get(status.st_ino, ())), named=True)
    lost: defaultdict[str, set[int]] = defaultdict(set)
    for detail in found.known.values():
        if (detail["dev"], detail["ino"]) not in seen:
            lost[str(Path(str(detail["path"])).parent)].add(int(detail["ino"]))
    for folder in sorted(lost):
        for path, status in siblings(folder, lost[folder]):
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield _Candidate(path, status, tuple(keys[status.st_ino]), named=False)


def _unchanged(candidate: _Candidate, found: Survey) -> str | None:
    """Return the partition of a file that is as it was bound, told by its status alone."""
    for key in candidate.keys:
        detail = found.known[key]
        if found.positions.get(key, 0) == candidate.status.st_size and candidate.as_in(detail):
            if detail["path"] != candidate.path:
                found.tell(key, {**detail, "path": candidate.path})
            return key
    return None


def _waiting(candidate: _Candidate, found: Survey) -> str | None:
    """Return the partition of a file that is as it was seen, when the epoch has no room for more of it."""
    for key in candidate.keys if found.full else ():
        detail = found.known[key]
        if detail.get("size") == candidate.status.st_size and candidate.as_in(detail):
            found.ends[key] = max(candidate.status.st_size, found.positions.get(key, 0))
            found.more = True
            return key
    return None


def _look(candidate: _Candidate, rules: Rules, found: Survey) -> str | None:
    """Open a file that is new or has changed, and admit what may be; return its partition when it is known."""
    status = candidate.status
    if status.st_size == 0 and not candidate.keys:
        return None
    if (waiting := _waiting(candidate, found)) is not None:
        return waiting
    if found.full and not candidate.keys:
        put_off(Seen.unopened(candidate.path, status), rules, found)
        found.more = True
        return None
    try:
        stream = opened(candidate.path)
    except FileNotFoundError:
        found.more = True  # renamed or removed since it was listed: the next probe sees which
        return next(iter(candidate.keys), None)
    with stream:
        seen = Seen.of(candidate.path, stream.fileno())
        if (seen.dev, seen.ino) != (status.st_dev, status.st_ino):
            found.more = True  # replaced since it was listed
            return next(iter(candidate.keys), None)
        key = _identify(stream, seen, candidate.keys, rules, found)
        if key is not None:
            grow(stream, seen, key, rules, found)
        elif candidate.named:
            enter(stream, seen, rules, found)
        return key


def _identify(stream: BinaryIO, seen: Seen, keys: tuple[str, ...], rules: Rules, found: Survey) -> str | None:
    rewritten: FileRewritten | None = None
    for key in keys:
        known = found.facts(key)
        digest = fingerprint(stream.fileno(), known.head, whole=bool(known.whole)) if known.digest else ""
        verdict = judge(known, seen, digest)
        position = found.positions.get(key, 0)
        shrunk = seen.size < position
        if verdict is Verdict.SAME and not shrunk:
            if seen.size < known.size:
                if rules.stop:
                    raise EndTakenBack(place=seen.path, seen=known.size, end=seen.size)
                found.taken_back[key] = (seen.size, known.size)
            return key
        if verdict is Verdict.REWRITTEN or (verdict is Verdict.SAME and shrunk):
            rewritten = FileRewritten(
                path=seen.path, bound=position, size=seen.size, expected=known.digest, found=digest
            )
    if rewritten is not None:
        raise rewritten
    return None
