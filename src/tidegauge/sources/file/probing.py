"""How far the files are: what may be bound now, given the disk and what is bound.

The probe keeps nothing between calls. It lists the files, pairs each with what is known of its inode number, and
opens only those whose size or modification time is not as it was bound. Let `p` be a file's bound position and `n`
its size:

    known, n = p, not modified since          nothing to do, not opened
    known, n >= p, still the same file        lines: up to the last record boundary; whole: nothing, it was touched
    known, shrunk or with other content       `FileRewritten`
    known, its inode number now another file  gone, and the other file is new
    not known, lines                          up to the last record boundary
    not known, whole                          all of it, when complete and not modified for the settling time

A known file that the pattern no longer names is looked for in its folder: a rotated log is read to its end.

Invariant: what is admitted lies at record boundaries, is at most `limit` bytes beyond what is bound (but at least one
record or one whole file, when there is one), and is taken in the order of the paths.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from tidegauge.errors.sources import FileRewritten
from tidegauge.remap.binding import Bound, Detail
from tidegauge.sources.file.columns import infer
from tidegauge.sources.file.identity import HEAD, FileFacts, Seen, Verdict, fingerprint, judge, partition_key
from tidegauge.sources.file.kinds import as_line, as_whole, is_whole
from tidegauge.sources.file.listing import listed, literally, printable
from tidegauge.sources.file.opening import opened, siblings
from tidegauge.sources.formats.protocol import Format, LineFormat

__all__ = ["Survey", "survey"]


@dataclass(slots=True)
class Survey:
    """What one probe found. `columns` is set when they were asked for and could be inferred."""

    positions: dict[str, int]
    ends: dict[str, int]
    gone: dict[str, int] = field(default_factory=dict)
    details: dict[str, Detail] = field(default_factory=dict)
    columns: pa.Schema | None = None
    more: bool = False
    notes: list[str] = field(default_factory=list)
    unfinished: list[tuple[str, int]] = field(default_factory=list)
    taken: int = 0
    full: bool = False

    def note(self) -> str:
        """Return one line for people about what the source is waiting for."""
        notes = list(self.notes[:3])
        if len(self.notes) > 3:
            notes.append(f"and {len(self.notes) - 3} more")
        if self.unfinished:
            path, size = self.unfinished[0]
            rest = f" (and in {len(self.unfinished) - 1} more files)" if len(self.unfinished) > 1 else ""
            notes.append(f"{size} bytes of an unfinished last line in {printable(path)}{rest}")
        return "; ".join(notes)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file on disk, with the keys of the partitions that are known under its inode number."""

    path: str
    status: os.stat_result
    keys: tuple[str, ...]
    named: bool


def survey(
    pattern: str, *, format: Format, settle: int, limit: int, now: int, bound: Bound, need_columns: bool
) -> Survey:
    """Look at the disk. `settle` and `now` are nanoseconds, `limit` bytes. Raises `FileRewritten` and `OSError`."""
    found = Survey(positions=dict(bound.frontier), ends=dict(bound.frontier))
    rules = _Rules(format, as_line(format), settle, limit, now, need_columns)
    seen: set[str] = set()
    for candidate in sorted(_candidates(pattern, bound, found), key=lambda c: c.path):
        key = _unchanged(candidate, bound, found) or _look(candidate, bound, rules, found)
        if key is not None:
            seen.add(key)
    found.gone = {key: position for key, position in bound.frontier.items() if key not in seen}
    return found


def _candidates(pattern: str, bound: Bound, found: Survey) -> Iterator[_Candidate]:
    """Yield each file once: those that the pattern names, then known ones under other names in their folders."""
    keys: defaultdict[int, list[str]] = defaultdict(list)
    for key, detail in bound.details.items():
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
    for detail in bound.details.values():
        if (detail["dev"], detail["ino"]) not in seen:
            lost[str(Path(str(detail["path"])).parent)].add(int(detail["ino"]))
    for folder in sorted(lost):
        for path, status in siblings(folder, lost[folder]):
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield _Candidate(path, status, tuple(keys[status.st_ino]), named=False)


def _unchanged(candidate: _Candidate, bound: Bound, found: Survey) -> str | None:
    """Return the partition of a file that is as it was bound, told by its status alone."""
    status = candidate.status
    for key in candidate.keys:
        detail = bound.details[key]
        if (
            bound.frontier[key] == status.st_size
            and detail["modified"] == status.st_mtime_ns
            and detail["dev"] == status.st_dev
        ):
            if detail["path"] != candidate.path:
                found.details[key] = {**detail, "path": candidate.path}
            return key
    return None


@dataclass(frozen=True, slots=True)
class _Rules:
    format: Format
    line: LineFormat | None
    settle: int
    limit: int
    now: int
    need_columns: bool


def _look(candidate: _Candidate, bound: Bound, rules: _Rules, found: Survey) -> str | None:
    """Open a file that is new or has changed, and admit what may be; return its partition when it is known."""
    if candidate.status.st_size == 0 and not candidate.keys:
        return None
    if found.full and not candidate.keys:
        found.ends[_provisional(candidate.status.st_dev, candidate.status.st_ino)] = candidate.status.st_size
        found.more = True
        return None
    try:
        stream = opened(candidate.path)
    except FileNotFoundError:
        found.more = True  # renamed or removed since it was listed: the next probe sees which
        return next(iter(candidate.keys), None)
    with stream:
        seen = Seen.of(candidate.path, stream.fileno())
        if (seen.dev, seen.ino) != (candidate.status.st_dev, candidate.status.st_ino):
            found.more = True  # replaced since it was listed
            return next(iter(candidate.keys), None)
        key = _identify(stream, seen, candidate.keys, bound)
        if key is not None:
            _grow(stream, seen, key, bound, rules, found)
        elif candidate.named:
            _enter(stream, seen, bound, rules, found)
        return key


def _provisional(dev: int, ino: int) -> str:
    """Name a file that has no partition yet, for counting what lies ahead."""
    return f"{dev:x}:{ino:x}"


def _identify(stream: BinaryIO, seen: Seen, keys: tuple[str, ...], bound: Bound) -> str | None:
    rewritten: FileRewritten | None = None
    for key in keys:
        known = FileFacts.of(bound.details[key])
        digest = fingerprint(stream.fileno(), known.head, whole=bool(known.whole))
        verdict = judge(known, seen, digest)
        position = bound.frontier[key]
        shrunk = seen.size < position
        if verdict is Verdict.SAME and not shrunk:
            return key
        if verdict is Verdict.REWRITTEN or (verdict is Verdict.SAME and shrunk):
            rewritten = FileRewritten(
                path=seen.path, bound=position, size=seen.size, expected=known.digest, found=digest
            )
    if rewritten is not None:
        raise rewritten
    return None


def _grow(stream: BinaryIO, seen: Seen, key: str, bound: Bound, rules: _Rules, found: Survey) -> None:
    known = replace(FileFacts.of(bound.details[key]), path=seen.path, dev=seen.dev)
    upper = bound.frontier[key]
    found.ends[key] = seen.size
    if rules.line is not None and not known.whole and seen.size > upper:
        upper = _admit_lines(stream, rules.line, seen, upper, rules, found)
    _record(stream, seen, key, known, upper, found, before=bound.details[key])


def _enter(stream: BinaryIO, seen: Seen, bound: Bound, rules: _Rules, found: Survey) -> None:
    provisional = _provisional(seen.dev, seen.ino)
    found.ends[provisional] = seen.size
    whole = is_whole(rules.format, seen.path)
    if whole or rules.line is None:
        upper = _admit_whole(stream, seen, rules, found)
    else:
        upper = _admit_lines(stream, rules.line, seen, 0, rules, found)
    if upper == 0 or not _columns_known(stream, seen, upper, rules, found):
        return
    head = min(HEAD, upper)
    digest = fingerprint(stream.fileno(), head, whole=whole)
    key = partition_key(seen, digest, taken=lambda key: key in bound.details or key in found.details)
    known = FileFacts(
        path=seen.path,
        first=seen.path,
        dev=seen.dev,
        ino=seen.ino,
        born=seen.born,
        modified=seen.modified,
        head=head,
        digest=digest,
        whole=int(whole),
    )
    found.ends[key] = found.ends.pop(provisional)
    _record(stream, seen, key, known, upper, found)


def _record(
    stream: BinaryIO, seen: Seen, key: str, known: FileFacts, upper: int, found: Survey, before: Detail | None = None
) -> None:
    """Admit a file up to `upper`, and keep what is now known of it. The fingerprint covers bound bytes only."""
    head = min(HEAD, upper)
    if head > known.head:
        known = replace(known, head=head, digest=fingerprint(stream.fileno(), head, whole=bool(known.whole)))
    detail = replace(known, modified=seen.modified).detail()
    if detail != before:
        found.details[key] = detail
    found.taken += upper - found.positions.get(key, 0)
    found.positions[key] = upper


def _admit_lines(stream: BinaryIO, line: LineFormat, seen: Seen, lower: int, rules: _Rules, found: Survey) -> int:
    """Return how far complete records reach from `lower`, within what is left of the epoch."""
    if found.full:
        found.more = True
        return lower
    top = min(seen.size, lower + rules.limit - found.taken)
    try:
        upper = line.last_boundary(stream, lower, top)
        while upper == lower and top < seen.size and found.taken == 0:  # a record larger than an epoch
            top = min(seen.size, 2 * top - lower)
            upper = line.last_boundary(stream, lower, top)
    except EOFError:  # it shrank under our eyes: the next probe says so
        found.more = True
        return lower
    if top < seen.size:
        found.full = found.more = True
    elif upper < seen.size:
        found.unfinished.append((seen.path, seen.size - upper))
    return upper


def _admit_whole(stream: BinaryIO, seen: Seen, rules: _Rules, found: Survey) -> int:
    """Return the size of a file that can be read whole now, 0 for any other."""
    if seen.size == 0:
        return 0
    if rules.now - seen.modified < rules.settle:
        found.notes.append(f"{printable(seen.path)} was modified only just now: it enters when it no longer changes")
        found.more = True
        return 0
    whole = as_whole(rules.format)
    if whole is not None and not whole.complete(stream):
        found.notes.append(f"{printable(seen.path)} is not complete")
        return 0
    if found.full or (found.taken > 0 and found.taken + seen.size > rules.limit):
        found.full = found.more = True
        return 0
    return seen.size


def _columns_known(stream: BinaryIO, seen: Seen, upper: int, rules: _Rules, found: Survey) -> bool:
    """Infer the columns from the first file that shows them; without them nothing is admitted."""
    if rules.need_columns and found.columns is None:
        found.columns = infer(stream, rules.format, path=seen.path, upper=upper)
        if found.columns is None:
            found.notes.append(f"waiting: {printable(seen.path)} has no full record yet to infer the columns from")
            return False
    return True
