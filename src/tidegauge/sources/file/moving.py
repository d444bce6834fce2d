"""Files that were copied to another place with their folder, or put back from a backup, are the files that they were.

A copy has an inode number of its own, so only its path and its content tell. A file is *at the place* of a known one
if it has its path; or if the known one is outside of the folder with which the pattern begins, and its path ends as
that of the file does below this folder: then the pattern has moved, to another machine, say. A file at the place of a
known one with all its bound bytes is the known one. A log goes on from there (`returning`); a file that is read whole
is not read again.

Invariant: a file is taken for one that is in another folder only where the pattern has moved away from that one. Two
files that one pattern names side by side are two, however alike.

>>> moved("/old/in/eu/a.csv", "/new/eu/a.csv", "/new"), moved("/new/us/a.csv", "/new/eu/a.csv", "/new")
(True, False)
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from typing import BinaryIO

from tidegauge.sources.file.disk import DISK, Disk
from tidegauge.sources.file.found import Rules, Survey
from tidegauge.sources.file.identity import FileFacts, Seen, fingerprint
from tidegauge.sources.file.listing import Listing, printable, root
from tidegauge.sources.file.returning import continued, lacking

__all__ = ["follow", "moved", "outside", "put_back", "same"]


def moved(known: str, path: str, folder: str) -> bool:
    """Whether a path is that of a known file, in the folder with which the pattern begins by now."""
    return outside(known, folder) and known.endswith(path.removeprefix(folder.rstrip("/")))


def outside(path: str, folder: str) -> bool:
    """Whether a path is not in a folder, nor below it."""
    return not path.startswith(f"{folder.rstrip('/')}/")


def same(stream: BinaryIO, seen: Seen, known: FileFacts, position: int, *, disk: Disk = DISK) -> FileFacts | None:
    """Return the present facts of a known file if the open one has all that was bound of it, None if it has not."""
    if not known.whole:
        return continued(stream, seen, known, position, disk=disk)
    if not known.packed and seen.size != position:
        return None
    if fingerprint(stream.fileno(), known.head, whole=True, disk=disk) != known.digest:
        return None
    return replace(known, path=seen.path, dev=seen.dev, ino=seen.ino, born=seen.born, modified=seen.modified)


def follow(pattern: str, listing: Listing, rules: Rules, found: Survey) -> None:
    """Take the files that the pattern names for those that it named elsewhere, where they are the same.

    Raises `EndTakenBack`.
    """
    folder = root(pattern)
    left: defaultdict[str, list[str]] = defaultdict(list)
    for key, detail in found.known.items():
        if detail["ino"] and outside(str(detail["path"]), folder):
            left[os.path.basename(str(detail["path"]))].append(key)  # noqa: PTH119 - of ten thousand files
    if not left:
        return
    numbers = {(detail["dev"], detail["ino"]) for detail in found.known.values()}
    for path, status in listing.files:
        keys = left.get(os.path.basename(path), [])  # noqa: PTH119
        if (status.st_dev, status.st_ino) not in numbers:
            for key in [key for key in keys if moved(str(found.known[key]["path"]), path, folder)]:
                if _followed(path, key, rules, found):
                    keys.remove(key)
                    break


def _followed(path: str, key: str, rules: Rules, found: Survey) -> bool:
    disk = found.held.disk
    try:
        stream = disk.open(path)
    except FileNotFoundError:
        return False
    with stream:
        seen = Seen.of(path, stream.fileno(), disk=disk)
        facts = same(stream, seen, found.facts(key), found.positions.get(key, 0), disk=disk)
    if facts is None:
        return False
    lacking(facts, found.facts(key), key, found.positions.get(key, 0), rules, found)
    found.notes.append(f"{printable(path)} is what {printable(str(found.known[key]['path']))} was")
    found.known[key] = facts.detail()
    found.tell(key, facts.detail())
    found.at_rest = False
    return True


def put_back(stream: BinaryIO, seen: Seen, keys: Collection[str], found: Survey) -> str | None:
    """Return the known file, read whole, that an open one at its path is, as its own file is gone."""
    for key in keys:
        if key not in found.here:
            facts = same(stream, seen, found.facts(key), found.positions.get(key, 0), disk=found.held.disk)
            if facts is not None:
                found.tell(key, facts.detail())
                found.here[key] = seen.path
                return key
    return None
