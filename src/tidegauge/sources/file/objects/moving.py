"""Files that were copied into a store, or objects from one place to another: which object is which known file.

The pattern has moved where a known path is outside of the folder with which it begins, and what stands *at the place*
of a known file has the same path below that folder (`file.moving`). It is the known one

    from a store    if it has the same ETag
    from a disk     if it has the bytes of its fingerprint, and has at least its bound bytes

Invariant: no row is read a second time because its file was moved. Where an object of a store has the same size and
another ETag, nobody can tell, and the source fails with both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import BinaryIO

from tidegauge.errors.objects import ObjectMovedUnclear
from tidegauge.objects.listing import Listed
from tidegauge.remap.binding import Detail
from tidegauge.sources.file.found import Rules, Survey
from tidegauge.sources.file.identity import TAIL, FileFacts, digested
from tidegauge.sources.file.listing import printable
from tidegauge.sources.file.moving import moved, outside
from tidegauge.sources.file.objects.listing import ObjectListing, folder_of
from tidegauge.sources.file.objects.opening import object_facts, open_object
from tidegauge.sources.file.returning import lacking

__all__ = ["follow", "stands_for"]


def follow(pattern: str, listing: ObjectListing, rules: Rules, found: Survey) -> None:
    """Take the objects that the pattern names for the files that it named elsewhere, where they are the same.

    Raises `ObjectMovedUnclear`, `EndTakenBack`, and what reading an object does.
    """
    folder = folder_of(pattern)
    left = _outside(found.known, folder)
    if not left:
        return
    for each in listing.objects:
        keys = left.get(each.path.rpartition("/")[2], [])
        for key in [key for key in keys if moved(str(found.known[key]["path"]), each.path, folder)]:
            known, position = found.facts(key), found.positions.get(key, 0)
            if (facts := stands_for(each, known, position)) is not None:
                keys.remove(key)
                lacking(facts, known, key, position, rules, found)
                found.notes.append(f"{printable(each.path)} is what {printable(known.path)} was")
                found.known[key] = facts.detail()
                found.tell(key, facts.detail())
                found.at_rest = False
                break


def _outside(known: Mapping[str, Detail], folder: str) -> Mapping[str, list[str]]:
    left: defaultdict[str, list[str]] = defaultdict(list)
    for key, detail in known.items():
        if outside(str(detail["path"]), folder):
            left[str(detail["path"]).rpartition("/")[2]].append(key)
    return left


def stands_for(each: Listed, known: FileFacts, position: int) -> FileFacts | None:
    """Return the present facts of a known file if an object at its place is the same, None if it is another one."""
    facts = object_facts(each, whole=bool(known.whole), first=known.first, packed=known.packed)
    facts = replace(facts, size=known.size) if known.packed else facts
    if known.etag:
        if each.etag == known.etag or not position:
            return facts
        if each.size == known.size:
            raise ObjectMovedUnclear(
                path=each.path, known=known.path, size=each.size, found=each.etag, expected=known.etag
            )
        return None
    if not position:
        return facts
    with open_object(object_facts(each, whole=bool(known.whole))) as stream:
        return facts if _alike(stream, each, known, position) else None


def _alike(stream: BinaryIO, each: Listed, known: FileFacts, position: int) -> bool:
    """Whether an object has the bytes of the fingerprint of a file on a disk."""
    if not known.head or (each.size != position if known.whole and not known.packed else each.size < known.head):
        return False
    head = _at(stream, 0, known.head)
    if known.whole:
        return digested(head + _at(stream, max(0, each.size - known.head), known.head)) == known.digest
    end = known.tail_end or position
    size = min(TAIL, end)
    return (
        each.size >= position
        and digested(head) == known.digest
        and known.tail in ("", digested(_at(stream, end - size, size)))
    )


def _at(stream: BinaryIO, start: int, size: int) -> bytes:
    stream.seek(start)
    return stream.read(size)
