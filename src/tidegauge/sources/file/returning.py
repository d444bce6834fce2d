"""A log that comes back as another file: compressed, copied before it was truncated, or saved anew by an editor.

Definition. Let a log be bound to `p`. A file *continues* it when it begins with the bytes of the log's fingerprint,
has the log's last bytes before `p` at the same place, and is at least `p` long; for a compressed one all this
concerns its content. (A log that was gone is bound to its end, and its last bytes are those before.) If no byte of a
log was bound, its content tells nothing: a file continues it that is as long as the log was seen to be, or that was
not modified after it. A file that continues a log is the log, so its rows are those from `p`
on. The copy of a log that began anew may be shorter, as it lacks lines written between the copy and the cut: it
continues the log with no rows. It is the copy only if it was not modified after the log: what the log has become
since the cut, and copies of that, were.

Two different logs may begin alike, so content alone does not tell. A file is asked whether it continues a log only if

    it has the log's path, and the log's own file is gone                 an editor's save
    it has the log's path, the log's file began anew, and it is as long   somebody brings the log back
    it has a rotated name of the log, and the log's own file is gone      an editor's save, then a rename
    it has a rotated name of the log, and the log's file began anew       the copy of `copytruncate`
    it has a rotated name that ends in `.gz`, and the log's file is gone  `compress`

Invariant: each file that continues a log continues one log, the one whose bound end it fits best.

>>> sorted(originals("app.log-20261122.gz")), sorted(originals("app.log.1")), sorted(originals("app-20261122.log"))
(['app.log', 'app.log-20261122'], ['app.log'], ['app.log'])
>>> sorted(originals("worker-1-20261122.log"))
['worker-1.log', 'worker.log']
>>> sorted(originals("part-eu.csv")), sorted(originals("part1.csv"))
([], [])
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from tidegauge.errors.base import Definite
from tidegauge.errors.sources import EndTakenBack
from tidegauge.sources.file.admitting import grow
from tidegauge.sources.file.disk import DISK, Disk
from tidegauge.sources.file.found import Rules, Survey
from tidegauge.sources.file.identity import HEAD, TAIL, FileFacts, Seen, digested, fingerprint, tail
from tidegauge.sources.file.listing import printable
from tidegauge.sources.formats.boundaries import read_exactly
from tidegauge.sources.formats.gzip import gunzip

__all__ = ["Relations", "begins_alike", "continued", "lacking", "originals"]

_ROTATED: Final = re.compile(r"[-._]\d+(?:[-._:T]?\d+)*Z?(?=\.|$)")
_CHUNK: Final = 1 << 20


def originals(name: str) -> set[str]:
    """Return the names that a file may have had before it was rotated or compressed."""
    found = set()
    plain = name.removesuffix(".gz")
    for mark in _ROTATED.finditer(plain):
        for begins in (at for at in range(*mark.span()) if at and plain[at] in "-._"):  # worker-1-20261122.log
            found.add(plain[:begins] + plain[mark.end() :])
    if plain != name:
        found.add(plain)
    return found


def continued(
    stream: BinaryIO, seen: Seen, log: FileFacts, position: int, *, cut: bool = False, disk: Disk = DISK
) -> FileFacts | None:
    """Return the present facts of the log if the open file continues it, None if it does not.

    cut: whether the log was found to begin anew by this very look, so that a copy is to be expected. It is then one
    by its name and its age also if it is too short to be compared.
    """
    if not log.head and (log.ino or position):
        return None
    older = seen.modified <= log.modified
    if seen.path.endswith(".gz"):
        return _unpacked(stream, seen, log, position, cut=cut and older, older=older, disk=disk)
    if not _may_hold_all(log, seen.size, older=older):
        return None
    end = log.tail_end or position
    there = tail(stream.fileno(), end, disk=disk) if seen.size >= position else None
    head = disk.pread(stream.fileno(), log.head, 0)
    if not seen.size or not _fits(log, head, there, cut=cut and older, older=older):
        return None
    here = replace(log, path=seen.path, dev=seen.dev, ino=seen.ino, born=seen.born, modified=seen.modified)
    return replace(here, size=seen.size, final=0)


def _may_hold_all(log: FileFacts, size: int, *, older: bool) -> bool:
    """Whether a file of this size may have all that was seen of a log, or lacks only what came after it was copied.

    Of a log that was bound its content tells more, and what it lacks is a loss.
    """
    return bool(log.head) or older or size >= log.size


def _fits(log: FileFacts, head: bytes, there: str | None, *, cut: bool, older: bool) -> bool:
    """Whether a file with this head, and with this digest of the bytes before the bound end, is the log.

    there: None for a file that does not reach as far. older: whether it was not modified after the log.
    """
    if len(head) < log.head:
        return cut
    if log.head and digested(head) != log.digest:
        return False
    return log.tail in ("", there) if there is not None else older and not log.ino and bool(log.head)


def _unpacked(
    stream: BinaryIO, seen: Seen, log: FileFacts, position: int, *, cut: bool, older: bool, disk: Disk
) -> FileFacts | None:
    stream.seek(0)
    try:
        with gunzip(stream) as text:
            head = read_exactly(text, log.head)
            if len(head) == log.head and log.head and digested(head) != log.digest:
                return None
            size, last, end = len(head), head[-TAIL:], log.tail_end or position
            while size < end and (chunk := text.read(min(_CHUNK, end - size))):
                size, last = size + len(chunk), (last + chunk)[-TAIL:]
            while size < position and (chunk := text.read(min(_CHUNK, position - size))):
                size += len(chunk)
            there = digested(last[-min(TAIL, end) :] if end else b"") if size >= position else None
            if not _fits(log, head, there, cut=cut, older=older):
                return None
            while chunk := text.read(_CHUNK):
                size += len(chunk)
            if not _may_hold_all(log, size, older=older):
                return None
    except Definite:  # cut off or damaged: it is for its reader to say so
        return None
    finally:
        stream.seek(0)
    head_size = min(HEAD, seen.size)
    return replace(
        log,
        path=seen.path,
        dev=seen.dev,
        ino=seen.ino,
        born=seen.born,
        modified=seen.modified,
        head=head_size,
        digest=fingerprint(stream.fileno(), head_size, whole=True, disk=disk),
        whole=1,
        size=size,
        packed=1,
        final=1,
    )


def begins_alike(stream: BinaryIO, size: int, other: BinaryIO, *, disk: Disk = DISK) -> bool:
    """Whether the `size` bytes of a file, or the first ones that it packs, are those with which another one begins.

    Told by the bytes at both ends. Of a compressed file (`size` 0) only the first ones are compared.
    """
    if size == 0:
        try:
            with gunzip(stream) as text:
                head = read_exactly(text, HEAD)
        except Definite:  # it is still being written
            return True
        return disk.pread(other.fileno(), len(head), 0) == head
    if disk.fstat(other.fileno()).st_size < size:
        return False
    ends = (0, max(0, size - HEAD))
    width = min(HEAD, size)
    return all(disk.pread(stream.fileno(), width, at) == disk.pread(other.fileno(), width, at) for at in ends)


@dataclass(frozen=True, slots=True)
class Relations:
    """The known logs by their paths, and by the names under which they were first and last seen.

    wholes: the known files that are read whole, by their paths.
    """

    paths: dict[str, list[str]]
    names: dict[str, list[str]]
    wholes: dict[str, list[str]]

    @classmethod
    def of(cls, found: Survey) -> Relations:
        """Return those of a look."""
        paths: defaultdict[str, list[str]] = defaultdict(list)
        names: defaultdict[str, list[str]] = defaultdict(list)
        wholes: defaultdict[str, list[str]] = defaultdict(list)
        for key, detail in found.known.items():
            if detail["whole"]:
                wholes[str(detail["path"])].append(key)
            else:
                paths[str(detail["path"])].append(key)
                for path in {str(detail["first"]), str(detail["path"])}:
                    names[Path(path).name].append(key)
        return cls(paths, names, wholes)

    def logs(self, path: str) -> list[str]:
        """Return the logs that a file may be, by its path."""
        related = [key for name in originals(Path(path).name) for key in self.names.get(name, ())]
        return list(dict.fromkeys([*self.paths.get(path, ()), *related]))

    def resolved(self, stream: BinaryIO, seen: Seen, logs: Sequence[str], rules: Rules, found: Survey) -> bool:
        """Whether an open file is one of these logs, or a copy of one, so that it is no new file."""
        if not logs or rules.line is None:
            return False
        compressed = seen.path.endswith(".gz")
        absent = [key for key in logs if _absent(key, seen, found, compressed=compressed)]
        if compressed and absent and rules.now - seen.modified < rules.settle:
            found.awaited.update(absent)
            return False
        fits: list[tuple[bool, int, str, FileFacts]] = []
        for key in absent:
            known, position = found.facts(key), found.positions.get(key, 0)
            facts = continued(stream, seen, known, position, cut=key in found.anew, disk=found.held.disk)
            if facts is None and not compressed and not position:
                facts = _saved(stream, seen, key, found)
            if facts is not None:
                fits.append((facts.size == position, position, key, facts))
        if fits:
            _end, position, key, facts = max(fits, key=lambda fit: fit[:3])
            began_anew = not found.facts(key).ino
            lacking(facts, found.facts(key), key, position, rules, found)
            # Nobody writes to the copy of a log that began anew.
            found.tell(key, (replace(facts, final=1) if began_anew else facts).detail())
            found.here[key] = seen.path
            found.anew.pop(key, None)
            grow(stream, seen, key, rules, found)
            return True
        return any(_copies(stream, seen, key, found, compressed=compressed) for key in logs)


def _saved(stream: BinaryIO, seen: Seen, key: str, found: Survey) -> FileFacts | None:
    """Return the facts of a log that was never bound, if an open file begins with all of its held one.

    An editor that saves puts such a file in its place. Its last line may have had no end, so it was not to be read.
    """
    log, path = found.facts(key), found.held.path(key)
    if log.head or not log.ino or path is None:
        return None
    try:
        held = found.held.disk.open(path)
    except FileNotFoundError:
        return None
    with held:
        size = found.held.disk.fstat(held.fileno()).st_size
        if not 0 < size <= seen.size or not begins_alike(held, size, stream, disk=found.held.disk):
            return None
    here = replace(log, path=seen.path, dev=seen.dev, ino=seen.ino, born=seen.born, modified=seen.modified)
    return replace(here, size=seen.size, final=0)


def _absent(key: str, seen: Seen, found: Survey, *, compressed: bool) -> bool:
    """Whether a log is without its file, in the way that a file of this path may continue it."""
    known = found.facts(key)
    here = found.here.get(key)
    if known.whole or (here is not None and here != found.held.path(key)):
        return False
    if compressed:
        return known.path != seen.path
    if not known.ino:  # under the path of a log that began anew is what it began anew as, or all of it again
        return known.path != seen.path or (bool(known.head) and seen.size >= found.positions.get(key, 0))
    return known.ino != seen.ino


def lacking(copy: FileFacts, log: FileFacts, key: str, position: int, rules: Rules, found: Survey) -> None:
    """Report the part of a log that had been seen, and is not in the file that continues it: it was written after a
    copy was made of the rest."""
    end = max(copy.size, position)
    if log.size > end:
        if rules.stop:
            raise EndTakenBack(place=copy.path, seen=log.size, end=end)
        found.taken_back[key] = (end, log.size)


def _copies(stream: BinaryIO, seen: Seen, key: str, found: Survey, *, compressed: bool) -> bool:
    """Whether a file is so far a copy of a log whose file is here, and may be about to be truncated or removed."""
    path = found.here.get(key)
    if path is None or found.facts(key).whole or path == seen.path or (compressed and f"{path}.gz" != seen.path):
        return False
    try:
        log = found.held.disk.open(path)
    except FileNotFoundError:
        return False
    with log:
        alike = begins_alike(stream, 0 if compressed else seen.size, log, disk=found.held.disk)
    stream.seek(0)
    if alike:
        found.notes.append(f"{printable(seen.path)} is so far a copy of {printable(path)}, and is not read twice")
    return alike
