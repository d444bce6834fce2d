"""What objects a bucket lists, page by page, and one version of an object, read by ranges.

An object is known by its key and its ETag, which names its content: a store that overwrites an object gives it
another one. So a read says which ETag it wants (If-Match), and gets bytes of that object or none.

Invariant: objects that followed each other under one key are never mixed: `read_version` returns all the bytes that
it was asked for, of the object with the ETag that it was given, or raises.

>>> bare('"9b2cf535"'), bare("W/x"), bare(None)
('9b2cf535', 'x', '')
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from tidegauge.errors.objects import ObjectStoreAway, UnreadableKey
from tidegauge.objects.client import asking, client, obstore
from tidegauge.objects.path import ObjectPath

__all__ = ["Listed", "Overwritten", "bare", "one", "pages", "read_version"]

_PAGE = 1000


class Overwritten(Exception):
    """The object of a key is another one by now. found: its ETag, "" where the store does not say."""

    def __init__(self, found: str = "") -> None:
        super().__init__(found)
        self.found = found


class Listed(NamedTuple):
    """An object as a store lists it. path: its address. modified: nanoseconds since 1970. etag: without quotes."""

    path: str
    size: int
    modified: int
    etag: str


def bare(tag: str | None) -> str:
    """Return an ETag without what stores write around it, each in its own way."""
    return (tag or "").removeprefix("W/").strip('"')


def pages(bucket: str, folder: str, *, deep: bool, after: str = "") -> Iterator[list[Listed]]:
    """Yield the objects whose keys begin with a folder, in the order of the keys; deep: those in folders in it too.

    after: of a deep listing, the key behind which it begins.

    Raises `UnreadableKey`, and what `asking` does.
    """
    place = f"{bucket}/{folder}"
    try:
        with asking(place):
            if not deep:
                found = obstore.list_with_delimiter(client(bucket), folder or None)
                yield sorted(_listed(bucket, one) for one in found["objects"])
                return
            for page in obstore.list(client(bucket), folder or None, offset=after or None, chunk_size=_PAGE):
                yield [_listed(bucket, one) for one in page]
    except ObjectStoreAway as error:
        if "invalid path" in error.evidence["detail"]:
            raise UnreadableKey(place=place, detail=error.evidence["detail"]) from None
        raise


def one(path: str) -> Listed | None:
    """Return the object of this very key, None where there is none."""
    place = ObjectPath.of(path)
    try:
        return _listed(place.bucket, place.meta())
    except FileNotFoundError:
        return None


def _listed(bucket: str, found: Any) -> Listed:
    modified: datetime = found["last_modified"]
    return Listed(
        f"{bucket}/{found['path']}",
        int(found["size"]),
        round(modified.timestamp() * 1_000_000) * 1000,
        bare(found["e_tag"]),
    )


def read_version(path: str, etag: str, start: int, length: int) -> Any:
    """Return bytes of the object with this ETag, as a buffer. Raises `Overwritten` and FileNotFoundError."""
    place = ObjectPath.of(path)
    wanted = {"range": (start, start + length), "if_match": f'"{etag}"'}
    try:
        with asking(path):
            answer = obstore.get(client(place.bucket), place.key, options=wanted)
            found = bare(answer.meta["e_tag"])
            if found and found != etag:  # a server that does not know If-Match
                raise Overwritten(found)
            data = answer.bytes()
    except obstore.exceptions.PreconditionError:
        raise Overwritten from None
    if len(data) != length:
        raise ObjectStoreAway(place=path, detail=f"{len(data)} bytes came of {length} that were asked for")
    return data
