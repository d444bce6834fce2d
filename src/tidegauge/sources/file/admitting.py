"""What may be bound of one open file.

Invariant: the admitted end lies at a record boundary, is at most the limit beyond the bound position (but at least
one record or one whole file, when there is one), and is kept with a fingerprint of bound bytes only.

The columns of a format that declares none are inferred from bytes that are bound together with them, so they stay
true of them.

A compressed file that is being written, or copied, ends in the middle of its data or has zeros in it. So does a
damaged one, and only time tells the two apart. Bound, it would fail its source, and a binding stays; so it is looked
through before, and waited for while it has a flaw and was modified less than `_PATIENCE` ago. That costs as much as
decompressing it, so older files are bound unchecked, and reading them reveals the flaw.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import BinaryIO, Final

import pyarrow as pa

from tidegauge.errors.sources import TruncatedFile, UnknownColumns
from tidegauge.sources.file.disk import Disk
from tidegauge.sources.file.found import Rules, Survey
from tidegauge.sources.file.identity import HEAD, FileFacts, Seen, fingerprint, partition_key, tail
from tidegauge.sources.file.listing import printable
from tidegauge.sources.file.reading import naming
from tidegauge.sources.formats.gzip import flaw, gunzip
from tidegauge.sources.formats.protocol import Format, LineFormat, as_line, as_whole, is_whole

__all__ = ["admit_lines", "columns_known", "enter", "grow", "put_off"]

_PATIENCE: Final = 3600 * 10**9
"""Nanoseconds for which a compressed file with a flaw is waited for."""
_SAMPLE: Final = 1 << 20
_LARGEST_SAMPLE: Final = 64 << 20
"""Bytes from which columns are inferred."""


def grow(stream: BinaryIO, seen: Seen, key: str, rules: Rules, found: Survey) -> None:
    """Admit what a known file has more."""
    known = replace(found.facts(key), path=seen.path, dev=seen.dev, born=seen.born)
    known = known if known.packed else replace(known, size=seen.size)
    lower = found.positions.get(key, 0)
    upper = lower
    found.ends[key] = max(known.size, lower)
    if known.packed:
        upper = _admit_packed(known, lower, rules, found)
    elif rules.line is not None and not known.whole and seen.size > lower:
        upper = admit_lines(stream, rules.line, seen, lower, rules, found, final=bool(known.final))
        if lower == 0 and upper and not columns_known(stream, seen, upper, rules, found):
            upper = 0
    _record(stream, seen, key, known, upper, found)


def enter(stream: BinaryIO, seen: Seen, rules: Rules, found: Survey) -> None:
    """Admit a file that is not known.

    One of lines is known from now on, with or without a full record. One that is read whole is not before it has
    settled: until then its writer may change his mind.
    """
    whole = is_whole(rules.format, seen.path)
    if whole or rules.line is None:
        upper = _admit_whole(stream, seen, rules, found)
    else:
        upper = admit_lines(stream, rules.line, seen, 0, rules, found, final=False)
    if upper and not columns_known(stream, seen, upper, rules, found):
        upper = 0
    if upper == 0 and whole:
        found.ends[f"{seen.dev:x}:{seen.ino:x}"] = seen.size
        return
    head = min(HEAD, upper)
    digest = fingerprint(stream.fileno(), head, whole=whole, disk=found.held.disk)
    known = _new(seen, head, digest, whole=whole)
    key = _key(seen, known, found)
    found.ends[key] = seen.size
    _record(stream, seen, key, known, upper, found)


def _admit_packed(known: FileFacts, lower: int, rules: Rules, found: Survey) -> int:
    """Return how far a compressed log is read: to its end, which is that of its last line, in one epoch."""
    if known.size > lower and (found.full or (found.taken > 0 and found.taken + known.size - lower > rules.limit)):
        found.full = found.more = True
        return lower
    return max(known.size, lower)


def put_off(seen: Seen, rules: Rules, found: Survey) -> None:
    """Remember a file for which the epoch has no room, unopened."""
    if is_whole(rules.format, seen.path):
        found.ends[f"{seen.dev:x}:{seen.ino:x}"] = seen.size
        return
    known = _new(seen, 0, "", whole=False)
    key = _key(seen, known, found)
    found.ends[key] = seen.size
    found.tell(key, known.detail())


def _new(seen: Seen, head: int, digest: str, *, whole: bool) -> FileFacts:
    return FileFacts(
        path=seen.path,
        first=seen.path,
        dev=seen.dev,
        ino=seen.ino,
        born=seen.born,
        modified=seen.modified,
        head=head,
        digest=digest,
        whole=int(whole),
        size=seen.size,
    )


def _key(seen: Seen, known: FileFacts, found: Survey) -> str:
    return partition_key(seen, known.digest, taken=lambda key: key in found.known or key in found.details)


def _record(stream: BinaryIO, seen: Seen, key: str, known: FileFacts, upper: int, found: Survey) -> None:
    """Admit a file up to `upper`, and keep its present facts. The fingerprint covers bound bytes only."""
    head, disk = min(HEAD, upper), found.held.disk
    if not known.packed:
        if head > known.head or not known.digest:
            digest = fingerprint(stream.fileno(), head, whole=bool(known.whole), disk=disk)
            known = replace(known, head=head, digest=digest)
        if seen.size >= upper:
            known = replace(known, tail=tail(stream.fileno(), upper, disk=disk), tail_end=upper)
        found.held.keep(key, stream)
    found.tell(key, replace(known, modified=seen.modified).detail())
    found.taken += upper - found.positions.get(key, 0)
    if upper:
        found.positions[key] = upper


def admit_lines(
    stream: BinaryIO, line: LineFormat, seen: Seen, lower: int, rules: Rules, found: Survey, *, final: bool
) -> int:
    """Return how far complete records reach from `lower`, within the rest of the epoch.

    final: whether a last line without an end is complete.
    """
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
    elif final:
        return seen.size
    elif upper < seen.size:
        found.unfinished.append((seen.path, seen.size - upper))
    return upper


def _admit_whole(stream: BinaryIO, seen: Seen, rules: Rules, found: Survey) -> int:
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
    if whole is None and (why := _awaited(seen, found.held.disk, now=rules.now)):
        found.notes.append(f"{printable(seen.path)} is not complete: {why}")
        return 0
    return seen.size


def columns_known(
    stream: BinaryIO, seen: Seen, upper: int, rules: Rules, found: Survey, *, final: bool = False
) -> bool:
    """Infer the columns from the first file that shows them; without them nothing is admitted.

    final: whether a last line without an end is complete.
    """
    if rules.need_columns and found.columns is None:
        found.columns = _inferred(stream, rules.format, path=seen.path, upper=upper, final=final)
        if found.columns is None:
            found.notes.append(f"waiting: {printable(seen.path)} has no full record yet to infer the columns from")
            return False
    return True


def _awaited(seen: Seen, disk: Disk, *, now: int) -> str:
    """Return why a compressed file is waited for; nothing when it is not."""
    return _flaw(seen, disk) if now - seen.modified < _PATIENCE else ""


@lru_cache(maxsize=1024)
def _flaw(seen: Seen, disk: Disk) -> str:
    """Return the flaw of a file as it was seen: kept, so that one which does not change is looked through once."""
    try:
        with disk.open(seen.path) as stream:
            now = Seen.of(seen.path, stream.fileno(), disk=disk)
            return flaw(stream) if now == seen else "it was replaced just now"
    except FileNotFoundError:
        return "it was moved just now"


def _inferred(stream: BinaryIO, format: Format, *, path: str, upper: int, final: bool) -> pa.Schema | None:
    """Return the columns that the first `upper` bytes of an open file show, or None when there is no full record.

    A mebibyte is enough for most files; more is read, up to 64, only for records that are larger. Raises
    `UnknownColumns` when even that does not do, and `UnreadableFile`.
    """
    whole = as_whole(format)
    with naming(path):
        if whole is not None:
            return whole.infer_whole(stream)
        line = as_line(format)
        size = _SAMPLE
        while line is not None:
            head = _head(stream, min(size, _LARGEST_SAMPLE), upper, compressed=is_whole(format, path))
            ended = final and len(head) == upper and not head.endswith(b"\n")
            columns = line.infer(head + b"\n" if ended else head)
            if columns is not None or len(head) < size:
                return columns
            if size >= _LARGEST_SAMPLE:
                raise UnknownColumns(path=path, size=size)
            size *= 8
    return None


def _head(stream: BinaryIO, size: int, upper: int, *, compressed: bool) -> bytes:
    stream.seek(0)
    if not compressed:
        return stream.read(min(size, upper))
    try:
        with gunzip(stream) as text:
            return text.read(size)
    except TruncatedFile:  # still being written: no record of it is to be trusted
        return b""
