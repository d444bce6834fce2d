"""Which objects a pattern names, by what their store lists.

The rules are those for files: `*`, `?` and `[...]` match within one part of a key, `**` any number of parts; parts
that begin with `.` or `_` are ignored unless the pattern says so. Empty objects, with which some tools mark folders,
are none.

Invariant: the answer is sorted by key. A store is asked by pages, below the parts with which the pattern begins;
where only the last part has a wildcard, objects in folders further down are not listed. An object that was there
before and after the listing is in it, whatever came and went meanwhile: a page goes on behind the last key of the one
before.

>>> fits("in/*/2026-*.jsonl", "in/eu/2026-11-20.jsonl"), fits("in/**", "in/_tmp/a"), fits("in/**/a", "in/a")
(True, False, True)
>>> beginning("s3://lake/in/day=*/*.csv"), beginning("s3://lake/in/*.csv"), beginning("s3://lake/a.csv")
(('s3://lake', 'in', True), ('s3://lake', 'in', False), None)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidegauge.errors.objects import ObjectStoreAway
from tidegauge.objects.address import parts
from tidegauge.objects.listing import Listed, one, pages
from tidegauge.remap.findings import Findings
from tidegauge.sources.file.listing import matcher, printable, segments

__all__ = ["ObjectListing", "beginning", "fits", "folder_of", "objects_of"]

_MAGIC: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class ObjectListing:
    """The objects that a pattern names now. note: a line for people where there are none."""

    objects: tuple[Listed, ...]
    note: str = ""


def beginning(pattern: str) -> tuple[str, str, bool] | None:
    """Return where to list what a pattern names: the bucket, the folder in it, and whether folders in that count.

    None where the pattern is the name of one object.
    """
    bucket, key = parts(pattern)
    steps = segments(key)
    plain = next((i for i, step in enumerate(steps) if _MAGIC.search(step)), None)
    if plain is None:
        return None
    return bucket, "/".join(steps[:plain]), plain + 1 < len(steps)


def folder_of(pattern: str) -> str:
    """Return the address with which a pattern begins, of what holds all that it names.

    >>> folder_of("s3://lake/in/*.csv"), folder_of("s3://lake/in/a.csv"), folder_of("s3://lake/*.csv")
    ('s3://lake/in', 's3://lake/in', 's3://lake')
    """
    if (found := beginning(pattern)) is None:
        return pattern.rpartition("/")[0]
    bucket, folder, _deep = found
    return f"{bucket}/{folder}" if folder else bucket


def objects_of(pattern: str, findings: Findings | None) -> ObjectListing:
    """Ask the store what a pattern names. findings: what sources share that are asked together.

    Raises `UnreadableKey`, `BucketMissing`, `CredentialsRefused`, `ObjectStoreAway`, `ObjectLibraryMissing`.
    """
    if (place := beginning(pattern)) is None:
        found = one(pattern)
        listed: Sequence[Listed] = [] if found is None else [found]
    else:
        listed = _below(place, findings)
    _bucket, key = parts(pattern)
    prefix = len(pattern) - len(key)
    named = tuple(each for each in listed if each.size and fits(key, each.path[prefix:]))
    if any(not each.etag for each in named):
        raise ObjectStoreAway(place=pattern, detail="it lists objects without an ETag")
    return ObjectListing(named, "" if named else _note(pattern, place is None))


def _below(place: tuple[str, str, bool], findings: Findings | None) -> Sequence[Listed]:
    bucket, folder, deep = place

    def find() -> list[Listed]:
        return [each for page in pages(bucket, folder, deep=deep) for each in page]

    return find() if findings is None else findings.once(("objects", *place), find)


def _note(pattern: str, single: bool) -> str:  # noqa: FBT001 - what the pattern is
    if single and any(pages(*parts(pattern), deep=True)):
        return f"{printable(pattern)} is a folder: write {printable(pattern)}/* for the objects in it"
    return f"waiting: no object matches {printable(pattern)!r}"


def fits(pattern: str, key: str) -> bool:
    """Whether a pattern names a key, both without their bucket."""
    return _fit(segments(pattern), tuple(key.split("/")))


def _fit(steps: tuple[str, ...], names: tuple[str, ...]) -> bool:
    for at, step in enumerate(steps):
        if step == "**":
            visible, rest = matcher("*"), steps[at + 1 :]
            for skipped in range(at, len(names)):
                if _fit(rest, names[skipped:]):
                    return True
                if not visible(names[skipped]):
                    return False
            return False
        if at >= len(names) or not (matcher(step)(names[at]) if _MAGIC.search(step) else step == names[at]):
            return False
    return len(steps) == len(names)
