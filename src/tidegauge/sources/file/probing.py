"""How far the files are: the positions to bind now, given the disk and the bindings.

The probe lists the files, pairs each with the known facts of its inode number, and opens only those whose size or
modification time differs from the bound one. Let `p` be a file's bound position, `s` the size at which it was last
seen, and `n` its size:

    known, n = p, not modified since          nothing to do, not opened
    known, n >= p, still the same file        lines: up to the last record boundary; whole: nothing, it was touched
    known, the same, p <= n < s               bytes that were seen beyond `n` are gone: `EndTakenBack`, or a gap
    known, n < p                              it began anew: its content is new, and its copy may be the old one
    known, n >= p, with other content         the same where there is a copy; else `FileRewritten`
    known, its inode number now another file  gone, and the other file is new
    known, gone, but held open                lines: up to the last record boundary, or all that is left of it
    not known, continues a known log          that log, from where it was: see `returning`
    not known, at the place of a known one    that one, if it has its bound bytes: see `moving`
    known, gone, p < s                        bound up to `s`, and then found lost: see `found`
    not known, lines                          up to the last record boundary
    not known, whole                          all of it, when complete and not modified for the settling time

A known file that the pattern no longer names is looked for in its folder: a rotated log is read to its end.

Invariant: a probe admits at most `limit` bytes beyond the bound positions (see `admitting`), in the order of the
paths. Nothing is lost because a file was renamed under our eyes: a loss is looked for again before it is reported,
by the source alone, whatever others have listed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from tidegauge.errors.sources import EndTakenBack, FileRewritten
from tidegauge.remap.binding import Bound, Detail
from tidegauge.sources.file.admitting import enter, grow, put_off
from tidegauge.sources.file.disk import FileStatus
from tidegauge.sources.file.found import Rules, Survey, give_up, refuse_all_away, unread
from tidegauge.sources.file.identity import Match, Seen, fingerprint, judge
from tidegauge.sources.file.listing import Listing, listed, literally, printable, siblings
from tidegauge.sources.file.memory import OpenFiles
from tidegauge.sources.file.moving import follow, put_back
from tidegauge.sources.file.returning import Relations
from tidegauge.sources.file.watching import entries

__all__ = ["survey"]

LOOKS: Final = 3
"""How often a file is looked for before it is reported gone: a folder that is listed while files in it are renamed
may show one of them under no name."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file on disk, with the keys of the partitions that are known under its inode number."""

    path: str
    status: FileStatus
    keys: tuple[str, ...]
    named: bool

    def as_in(self, detail: Detail) -> bool:
        """Whether its status is the one that is known."""
        status = self.status
        return detail["modified"] == status.st_mtime_ns and detail["dev"] == status.st_dev


def survey(pattern: str, listing: Listing, rules: Rules, bound: Bound, held: OpenFiles) -> Survey:
    """Look at the disk, where the pattern was listed just now.

    Raises `FileRewritten`, `EndTakenBack`, `FolderAway`, `UnknownColumns` and `OSError`.
    """
    found = _once(pattern, listing, rules, Survey.of(bound, held))
    for _again in range(LOOKS - 1):
        if not unread(found):
            break
        found = _once(pattern, listed(pattern, disk=held.disk), rules, Survey.of(bound, held))
        found.at_rest = False
    if rules.stop and (rewritten := next(filter(None, found.anew.values()), None)) is not None:
        raise rewritten
    missing = {key: detail for key, detail in unread(found).items() if key not in found.awaited}
    if missing:
        refuse_all_away(missing, found)
    give_up(missing, rules, found)
    found.gone = {key: position for key, position in bound.frontier.items() if key not in found.here}
    return found


def _once(pattern: str, listing: Listing, rules: Rules, found: Survey) -> Survey:
    """Look once: at the files that are known, then at those that are held, then at those that are neither."""
    follow(pattern, listing, rules, found)
    strangers: list[_Candidate] = []
    for candidate in sorted(_candidates(pattern, listing, found), key=lambda c: c.path):
        key = _unchanged(candidate, found)
        if key is None:
            found.at_rest = False
            key = _look(candidate, rules, found)
        if key is not None:
            found.here[key] = candidate.path
        elif candidate.status.st_size:
            strangers.append(candidate)
    held = [*unread(found)]
    for key in held:
        found.at_rest = False
        _look_at_held(key, rules, found)
    if strangers or unread(found) or found.anew:
        relations = Relations.of(found)
        for candidate in (*strangers, *_others(relations, strangers, found)):
            _look_at_stranger(candidate, relations, rules, found)
    for key in held:
        if found.here.get(key) == found.held.path(key):
            _look_at_held(key, rules, found, alone=True)
    return found


def _candidates(pattern: str, listing: Listing, found: Survey) -> Iterator[_Candidate]:
    """Yield each file once: those that the pattern names, then known ones under other names in their folders."""
    keys: defaultdict[int, list[str]] = defaultdict(list)
    for key, detail in found.known.items():
        keys[int(detail["ino"])].append(key)
    found.notes += listing.passed_over
    if not listing.files and not listing.passed_over:
        found.at_rest = False
        hint = literally(pattern, disk=found.held.disk)
        found.notes.append(f"waiting: no file matches {printable(pattern)!r}{hint}")
    seen: set[tuple[int, int]] = set()
    for path, status in listing.files:
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            yield _Candidate(path, status, tuple(keys.get(status.st_ino, ())), named=True)
    lost: defaultdict[str, set[int]] = defaultdict(set)
    for detail in found.known.values():
        if detail["ino"] and (detail["dev"], detail["ino"]) not in seen:
            lost[os.path.dirname(str(detail["path"]))].add(int(detail["ino"]))  # noqa: PTH120 - of ten thousand files
    if lost or listing.passed_over:
        found.at_rest = False
    for folder in sorted(lost):
        for path, status in siblings(folder, lost[folder], watch=listing.watch):
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield _Candidate(path, status, tuple(keys[status.st_ino]), named=False)


def _unchanged(candidate: _Candidate, found: Survey) -> str | None:
    """Return the partition of a file that is as it was bound, told by its status alone."""
    for key in candidate.keys:
        detail = found.known[key]
        over = bool(detail.get("final")) and found.positions.get(key, 0) >= int(detail["size"])
        if (over or found.positions.get(key, 0) == candidate.status.st_size) and candidate.as_in(detail):
            if detail["path"] != candidate.path:
                found.tell(key, {**detail, "path": candidate.path})
            return key
    return None


def _waiting(candidate: _Candidate, found: Survey) -> str | None:
    """Return the partition of a file that is as it was seen, when the epoch has no room for more of it."""
    for key in candidate.keys if found.full else ():
        detail = found.known[key]
        end = detail["size"] if detail.get("packed") else candidate.status.st_size
        if detail.get("size") == end and candidate.as_in(detail):
            found.ends[key] = max(int(end), found.positions.get(key, 0))
            found.more = True
            return key
    return None


def _look(candidate: _Candidate, rules: Rules, found: Survey) -> str | None:
    """Open a known file that has changed, and admit what may be; return its partition if it is still the file."""
    if not candidate.keys:
        return None
    if (waiting := _waiting(candidate, found)) is not None:
        return waiting
    with _opened(candidate, found) as stream:
        if stream is None:
            return next(iter(candidate.keys))
        seen = Seen.of(candidate.path, stream.fileno(), disk=found.held.disk)
        key = _identify(stream, seen, candidate.keys, rules, found)
        if key is not None:
            grow(stream, seen, key, rules, found)
        return key


def _look_at_held(key: str, rules: Rules, found: Survey, *, alone: bool = False) -> None:
    """Admit the rest of a file that has no name here any more, but is held open.

    alone: whether no other file continues it. If it was deleted, its last line then ends with it, once nobody has
    written to it for the settling time.
    """
    path, known = found.held.path(key), found.facts(key)
    if path is None or not known.ino:
        return
    try:
        stream = found.held.disk.open(path)
    except FileNotFoundError:
        return
    with stream:
        seen = Seen.of(known.path, stream.fileno(), disk=found.held.disk)
        digest = fingerprint(stream.fileno(), known.head, whole=bool(known.whole), disk=found.held.disk)
        if (
            (seen.dev, seen.ino) != (known.dev, known.ino)
            or seen.size < known.size
            or (known.head and digest != known.digest)
        ):
            return
        deleted = found.held.disk.fstat(stream.fileno()).st_nlink == 0
        if alone and not (deleted and rules.now - seen.modified >= rules.settle):
            return
        if alone:
            found.unfinished = [(place, size) for place, size in found.unfinished if place != known.path]
            found.tell(key, replace(known, final=1).detail())
        found.here[key] = path
        grow(stream, seen, key, rules, found)


def _look_at_stranger(candidate: _Candidate, relations: Relations, rules: Rules, found: Survey) -> None:
    """Open a file that is not known by its number: it is a known one that was put back, or continues a known log, or
    is a copy of one, or is new."""
    logs, wholes = relations.logs(candidate.path), relations.wholes.get(candidate.path, ())
    seen = Seen.unopened(candidate.path, candidate.status)
    if found.full and not logs and not wholes and candidate.named:
        put_off(seen, rules, found)
        found.more = True
    elif not logs and not candidate.named:
        return
    else:
        with _opened(candidate, found) as stream:
            if stream is None:
                return
            seen = Seen.of(candidate.path, stream.fileno(), disk=found.held.disk)
            if (key := put_back(stream, seen, wholes, found)) is not None:
                grow(stream, seen, key, rules, found)
            elif not relations.resolved(stream, seen, logs, rules, found) and candidate.named:
                enter(stream, seen, rules, found)


def _others(relations: Relations, strangers: Sequence[_Candidate], found: Survey) -> Iterator[_Candidate]:
    """Yield files that the pattern does not name and that may continue a log that is not read, or was rewritten.

    The newest first: a log that began anew was copied just then, and earlier copies may be too short to tell apart.
    """
    known = {candidate.path for candidate in strangers} | set(found.here.values())
    wanted = unread(found).keys() | {key for key, error in found.anew.items() if error is not None}
    for folder in sorted({str(Path(str(found.known[key]["path"])).parent) for key in wanted}):
        others: list[_Candidate] = []
        for entry in entries(folder, disk=found.held.disk):
            if entry.path not in known and entry.is_file(follow_symlinks=False) and relations.logs(entry.path):
                with suppress(FileNotFoundError):
                    others.append(_Candidate(entry.path, entry.stat(follow_symlinks=False), (), named=False))
        yield from sorted(others, key=lambda other: (-other.status.st_mtime_ns, other.path))


@contextmanager
def _opened(candidate: _Candidate, found: Survey) -> Iterator[BinaryIO | None]:
    """Open a file, or give None when it was renamed, removed or replaced since it was listed."""
    try:
        stream = found.held.disk.open(candidate.path)
    except FileNotFoundError:
        found.more = True  # the next probe sees what became of it
        yield None
        return
    with stream:
        status = found.held.disk.fstat(stream.fileno())
        if (status.st_dev, status.st_ino) == (candidate.status.st_dev, candidate.status.st_ino):
            yield stream
        else:
            found.more = True
            yield None


def _identify(stream: BinaryIO, seen: Seen, keys: tuple[str, ...], rules: Rules, found: Survey) -> str | None:
    """Return the partition that this is still the file of, None when it is another; see `anew`."""
    for key in keys:
        known, position = found.facts(key), found.positions.get(key, 0)
        digest = ""
        if known.digest:
            digest = fingerprint(stream.fileno(), known.head, whole=bool(known.whole), disk=found.held.disk)
        verdict = judge(known, seen, digest)
        shrunk = not known.final and seen.size < position
        if verdict is Match.SAME and not shrunk:
            if known.packed or seen.size >= known.size:
                return key
            if position:
                if rules.stop:
                    raise EndTakenBack(place=seen.path, seen=known.size, end=seen.size)
                found.taken_back[key] = (seen.size, known.size)
                return key
            shrunk = True
        if verdict is Match.OTHER:
            continue
        error = FileRewritten(path=seen.path, bound=position, size=seen.size, expected=known.digest, found=digest)
        if known.whole:
            raise error
        found.anew[key] = None if shrunk else error
        found.tell(key, replace(known, ino=0).detail())
    return None
