"""A file is known by what it is, not by its name: device, inode, birth time, and a fingerprint of its first bytes.

So a file that was renamed goes on where it was, and a new file under an old name, or on an old inode number, is new.
Let `k` be the durable facts of a file and `s` a file seen now on the same inode number. The verdict is

    fingerprint  birth times               verdict
    same         not known to differ       SAME, when device, birth time or path agrees as well; else OTHER
    same         known and different       OTHER
    other        known and equal           REWRITTEN
    other        known and different       OTHER
    other        not known                 REWRITTEN under the same path, else OTHER

Invariant: never SAME with another fingerprint. The device alone decides nothing: its number may change at a restart
of the machine. The fingerprint covers only bytes that are bound, and grows with them up to `HEAD`; that of a file
that is read whole covers its last bytes too (the checksum of gzip, the footer of Parquet), so any change of it shows.

An inode number is used again after its file was deleted; the birth time then differs. It stays the same when a file
is truncated, written or renamed. So it tells a new file on an old number from an old file with new content.

A known file is opened wherever it is now. It may be renamed or replaced between any two calls, so everything is
checked on the open file, never on its name: one that is returned has the inode number and the fingerprint that were
asked for, and at least the bytes that were asked for.

>>> log = FileFacts(path="/a", first="/a", dev=1, ino=7, born=5, modified=9, head=10, digest="d", whole=0)
>>> judge(log, Seen(path="/a.1", dev=1, ino=7, born=5, size=30, modified=9), "d").name
'SAME'
>>> judge(log, Seen(path="/a", dev=1, ino=7, born=6, size=30, modified=9), "e").name
'OTHER'
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Final

from tidegauge.errors.sources import FileGone, FileRewritten
from tidegauge.remap.binding import Detail
from tidegauge.sources.file.disk import DISK, Disk, FileStatus
from tidegauge.sources.file.listing import siblings
from tidegauge.sources.file.watching import Watch

__all__ = [
    "HEAD",
    "TAIL",
    "FileFacts",
    "Match",
    "Seen",
    "check",
    "digested",
    "fingerprint",
    "judge",
    "open_known",
    "partition_key",
    "tail",
]

HEAD: Final = 4096
"""The most bytes, at each end, that a fingerprint covers."""
TAIL: Final = 1024
"""How many of the last bytes that are bound are remembered, as a digest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """The durable facts of one file.

    path: where it was last seen. first: where it was first seen. born, modified: nanoseconds since 1970, 0 when not
    known. head, digest: the fingerprint and how many bytes it covers. whole: 1 when the file is read whole. size: how
    long it was when it was last seen, read or not; 0 where an older version has written the facts. tail: a digest of
    the last bytes that are bound, "" as well. packed: 1 for a log that has been compressed since; `size` and all
    positions are those of what it holds. final: 1 when nobody writes to it any more, so its last line ends with it. A
    log that began anew in its file has the inode number 0. etag: of an object in a store, which is known by its path
    and that, and by nothing else.
    """

    path: str
    first: str
    dev: int
    ino: int
    born: int
    modified: int
    head: int
    digest: str
    whole: int
    size: int = 0
    tail: str = ""
    tail_end: int = 0
    packed: int = 0
    final: int = 0
    etag: str = ""

    @classmethod
    def of(cls, detail: Detail) -> FileFacts:
        """Return the facts that `detail` wrote."""
        return cls(
            path=str(detail["path"]),
            first=str(detail.get("first", detail["path"])),
            dev=int(detail.get("dev", 0)),
            ino=int(detail.get("ino", 0)),
            born=int(detail.get("born", 0)),
            modified=int(detail["modified"]),
            head=int(detail.get("head", 0)),
            digest=str(detail.get("digest", "")),
            whole=int(detail["whole"]),
            size=int(detail.get("size", 0)),
            tail=str(detail.get("tail", "")),
            tail_end=int(detail.get("tail_end", 0)),
            packed=int(detail.get("packed", 0)),
            final=int(detail.get("final", 0)),
            etag=str(detail.get("etag", "")),
        )

    def detail(self) -> Detail:
        """Return the facts as plain values; of an object those alone that it has."""
        values: dict[str, str | int] = asdict(self)
        if not self.etag:
            del values["etag"]
            return values
        values["first"] = "" if self.first == self.path else self.first
        return {name: value for name, value in values.items() if value or name in ("size", "whole")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """The present state of a file."""

    path: str
    dev: int
    ino: int
    born: int
    size: int
    modified: int

    @classmethod
    def of(cls, path: str, fd: int, *, disk: Disk = DISK) -> Seen:
        """Look at an open file."""
        return replace(cls.unopened(path, disk.fstat(fd)), born=disk.birth(fd))

    @classmethod
    def unopened(cls, path: str, status: FileStatus) -> Seen:
        """Return the facts of a file that its status tells."""
        return cls(
            path=path,
            dev=status.st_dev,
            ino=status.st_ino,
            born=0,
            size=status.st_size,
            modified=status.st_mtime_ns,
        )


def fingerprint(fd: int, head: int, *, whole: bool, disk: Disk = DISK) -> str:
    """Return a digest of the first `head` bytes of an open file, and of as many at its end when it is read whole."""
    digest = hashlib.blake2b(disk.pread(fd, head, 0), digest_size=16)
    if whole:
        digest.update(disk.pread(fd, head, max(0, disk.fstat(fd).st_size - head)))
    return digest.hexdigest()


def digested(data: bytes) -> str:
    """Return the digest of some bytes, as in a fingerprint."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def tail(fd: int, position: int, *, disk: Disk = DISK) -> str:
    """Return a digest of the last bytes of an open file before a position."""
    size = min(TAIL, position)
    return digested(disk.pread(fd, size, position - size))


class Match(Enum):
    """Whether a file seen now is one that is known."""

    SAME = "same"
    OTHER = "other"
    REWRITTEN = "rewritten"


def judge(known: FileFacts, seen: Seen, digest: str) -> Match:
    """Compare a known file with one seen on its inode number, whose fingerprint over `known.head` is `digest`."""
    born_known = bool(known.born and seen.born)
    born_same = born_known and known.born == seen.born
    if born_known and not born_same:
        return Match.OTHER
    if digest == known.digest:
        agrees = known.dev == seen.dev or born_same or known.path == seen.path
        return Match.SAME if agrees else Match.OTHER
    return Match.REWRITTEN if born_same or known.path == seen.path else Match.OTHER


def partition_key(seen: Seen, digest: str, *, taken: Callable[[str], bool]) -> str:
    """Return a name for a new file: 16 hex digits that are not `taken`. It is kept, never computed again."""
    for salt in range(1_000_000):
        facts = f"{seen.dev}:{seen.ino}:{seen.born}:{digest}:{salt}"
        key = hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()
        if not taken(key):
            return key
    raise RuntimeError("a million files of one identity")  # only if blake2b were broken


def check(stream: BinaryIO, facts: FileFacts, *, path: str, upper: int, disk: Disk = DISK) -> None:
    """Raise `FileRewritten` unless the open file still begins as it did and has its first `upper` bytes."""
    found = fingerprint(stream.fileno(), facts.head, whole=bool(facts.whole), disk=disk)
    size = disk.fstat(stream.fileno()).st_size
    if found != facts.digest or (size < upper and not facts.packed):
        raise FileRewritten(path=path, bound=upper, size=size, expected=facts.digest, found=found)


def open_known(
    facts: FileFacts,
    *,
    lower: int,
    upper: int,
    elsewhere: Callable[[], Iterable[str]] = tuple,
    disk: Disk = DISK,
) -> tuple[str, BinaryIO]:
    """Return where a known file is now, and the file, opened.

    It is looked for under its last path, then under any name in that folder, then in the paths that `elsewhere`
    gives. Raises `FileGone` when it is in none of them, `FileRewritten` when it is there with other content, and
    `OSError`.
    """
    rewritten: FileRewritten | None = None
    for path in _places(facts, elsewhere, disk):
        try:
            stream = disk.open(path)
        except FileNotFoundError:
            continue
        try:
            if disk.fstat(stream.fileno()).st_ino != facts.ino:
                stream.close()
                continue
            check(stream, facts, path=path, upper=upper, disk=disk)
        except FileRewritten as error:
            stream.close()
            rewritten = rewritten or error
        except BaseException:
            stream.close()
            raise
        else:
            return path, stream
    raise rewritten or FileGone(path=facts.path, lower=lower, upper=upper)


def _places(facts: FileFacts, elsewhere: Callable[[], Iterable[str]], disk: Disk) -> Iterator[str]:
    yield facts.path
    here = siblings(str(Path(facts.path).parent), [facts.ino], watch=Watch(disk))
    yield from (path for path, _ in here if path != facts.path)
    yield from elsewhere()
