r"""A log that comes back as another file: compressed, copied before it was truncated, or saved anew by an editor.

Definition. Let a log be bound to `p`. A file *continues* it when it begins with the bytes of the log's fingerprint,
has the log's last bytes before `p` at the same place, and is at least `p` long; for a compressed one all this
concerns its content. A file that continues a log is the log, so its rows are those from `p` on. The copy of a log
that began anew may be shorter, as it lacks lines written between the copy and the cut: it continues the log with no
rows.

Two different logs may begin alike, so content alone does not tell. A file is asked whether it continues a log only if

    it has the log's path, and the log's own file is gone                 an editor's save
    it has a rotated name of the log, and the log's file began anew       the copy of `copytruncate`
    it has a rotated name that ends in `.gz`, and the log's file is gone  `compress`

>>> sorted(originals("app.log-20261122.gz")), sorted(originals("app.log.1")), sorted(originals("app-20261122.log"))
(['app.log', 'app.log-20261122'], ['app.log'], ['app.log'])
>>> sorted(originals("part-eu.csv")), sorted(originals("part1.csv"))
([], [])
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import BinaryIO, Final

from tidegauge.errors.base import Definite
from tidegauge.sources.file.identity import HEAD, TAIL, FileFacts, Seen, digested, fingerprint, tail
from tidegauge.sources.formats.boundaries import read_exactly
from tidegauge.sources.formats.gzip import gunzip

__all__ = ["begins_alike", "continued", "originals", "passed"]

_ROTATED: Final = re.compile(r"[-._]\d+(?:[-._:T]?\d+)*Z?(?=\.|$)")
_CHUNK: Final = 1 << 20


def originals(name: str) -> set[str]:
    """Return the names that a file may have had before it was rotated or compressed."""
    found = set()
    plain = name.removesuffix(".gz")
    for mark in _ROTATED.finditer(plain):
        if mark.start():
            found.add(plain[: mark.start()] + plain[mark.end() :])
    if plain != name:
        found.add(plain)
    return found


def continued(stream: BinaryIO, seen: Seen, log: FileFacts, position: int, *, cut: bool = False) -> FileFacts | None:
    """Return the present facts of the log if the open file continues it, None if it does not.

    cut: whether the log was found to begin anew by this very look, so that a copy is to be expected. It is then one
    by its name also if it is too short to be compared.
    """
    if seen.path.endswith(".gz"):
        return _unpacked(stream, seen, log, position, cut=cut)
    there = tail(stream.fileno(), position) if seen.size >= position else None
    head = os.pread(stream.fileno(), log.head, 0)
    if not seen.size or not _fits(log, head, there, cut=cut):
        return None
    here = replace(log, path=seen.path, dev=seen.dev, ino=seen.ino, born=seen.born, modified=seen.modified)
    return replace(here, size=max(seen.size, log.size) if seen.path == log.path else seen.size)


def _fits(log: FileFacts, head: bytes, there: str | None, *, cut: bool) -> bool:
    """Whether a file with this head, and with this digest of the bytes before the bound end, is the log."""
    if len(head) < log.head:
        return cut
    if log.head and digested(head) != log.digest:
        return False
    return log.tail in ("", there) if there is not None else not log.ino and bool(log.head)


def _unpacked(stream: BinaryIO, seen: Seen, log: FileFacts, position: int, *, cut: bool) -> FileFacts | None:
    stream.seek(0)
    try:
        with gunzip(stream) as text:
            head = read_exactly(text, log.head)
            if len(head) == log.head and log.head and digested(head) != log.digest:
                return None
            size, last = len(head), head[-TAIL:]
            while size < position and (chunk := text.read(min(_CHUNK, position - size))):
                size, last = size + len(chunk), (last + chunk)[-TAIL:]
            there = digested(last[-min(TAIL, position) :] if position else b"") if size >= position else None
            if not _fits(log, head, there, cut=cut):
                return None
            while chunk := text.read(_CHUNK):
                size += len(chunk)
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
        digest=fingerprint(stream.fileno(), head_size, whole=True),
        whole=1,
        size=size,
        packed=1,
        final=1,
    )


def passed(text: BinaryIO, position: int) -> None:
    """Read a stream that cannot seek up to a position. Raises `EOFError`."""
    while position > 0:
        chunk = text.read(min(_CHUNK, position))
        if not chunk:
            raise EOFError(f"{position} bytes more were to come")
        position -= len(chunk)


def begins_alike(stream: BinaryIO, size: int, other: BinaryIO) -> bool:
    """Whether the `size` bytes of a file, or the first ones that it packs, are those with which another one begins.

    Told by the bytes at both ends. Of a compressed file (`size` 0) only the first ones are compared.
    """
    if size == 0:
        try:
            with gunzip(stream) as text:
                head = read_exactly(text, HEAD)
        except Definite:  # it is still being written
            return True
        return os.pread(other.fileno(), len(head), 0) == head
    if os.fstat(other.fileno()).st_size < size:
        return False
    ends = (0, max(0, size - HEAD))
    width = min(HEAD, size)
    return all(os.pread(stream.fileno(), width, at) == os.pread(other.fileno(), width, at) for at in ends)
