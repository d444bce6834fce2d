"""A place in an object store that is used as a `pathlib.Path` is, as far as tables need one.

A disk renames and synchronises, and a store does both at once: an object is there whole, and for ever, when its put
was answered. So an error leaves nothing half done.

Invariants. `put_new` makes an object if and only if there is none of its name, however many try at once. False means
that there is one, which may be our own: a client repeats a put whose answer was lost. A caller who cares reads it.

>>> log = ObjectPath.of("s3://lake/orders") / "_delta_log"
>>> str(log / "7.json"), log.parent.name, (log / "7.json").name
('s3://lake/orders/_delta_log/7.json', 'orders', '7.json')
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegauge.errors.objects import ConditionalPutIgnored, ObjectStoreAway
from tidegauge.objects.address import parts
from tidegauge.objects.client import asking, at_once, client, obstore

__all__ = ["ObjectPath", "ObjectStatus"]


class ObjectStatus(NamedTuple):
    """The status of an object, under the names that a file's status has. st_ino: tells it from its successors."""

    st_size: int
    st_mtime_ns: int
    st_ino: int


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """An object, or the beginning of the names of objects. bucket: with its scheme. key: the path in the bucket."""

    bucket: str
    key: str

    @staticmethod
    def of(address: str) -> ObjectPath:
        """Return the place of an address."""
        return ObjectPath(*parts(address))

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.bucket, f"{self.key}/{name}")

    def __str__(self) -> str:
        return f"{self.bucket}/{self.key}"

    @property
    def name(self) -> str:
        """The last part of its key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The place that its key is in."""
        return ObjectPath(self.bucket, self.key.rpartition("/")[0])

    # -- one object

    def read_bytes(self) -> bytes:
        """Return what an object holds. Raises FileNotFoundError."""
        with asking(str(self)):
            return bytes(obstore.get(client(self.bucket), self.key).bytes())

    def read_range(self, start: int, length: int) -> Any:
        """Return some of what an object holds, as a buffer. Raises FileNotFoundError."""
        with asking(str(self)):
            return obstore.get_range(client(self.bucket), self.key, start=start, length=length)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return what an object holds as text. Raises FileNotFoundError."""
        return self.read_bytes().decode(encoding)

    def stat(self) -> ObjectStatus:
        """Return its status. Raises FileNotFoundError."""
        found = self.meta()
        tag = hashlib.blake2b(str(found["e_tag"]).encode(), digest_size=8).digest()
        seconds = found["last_modified"].timestamp()
        return ObjectStatus(int(found["size"]), int(seconds * 1000) * 1_000_000, int.from_bytes(tag))

    def meta(self) -> Any:
        """Return what the store says of it, as a listing does. Raises FileNotFoundError."""
        try:
            with asking(str(self)):
                return obstore.head(client(self.bucket), self.key)
        except FileNotFoundError:
            self._tells()
            raise
        except ObjectStoreAway as error:
            if "400" in error.evidence["detail"]:
                self._tells()
            raise

    def exists(self) -> bool:
        """Whether there is an object of this very key."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def put(self, data: bytes) -> None:
        """Make an object, in the place of the one that may be there."""
        with asking(str(self)):
            obstore.put(client(self.bucket), self.key, data, use_multipart=False)

    def put_new(self, data: bytes) -> bool:
        """Make an object where there is none; False where there is one."""
        try:
            with asking(str(self)):
                obstore.put(client(self.bucket), self.key, data, mode="create", use_multipart=False)
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            return False
        return True

    def prove(self) -> None:
        """Raise `ConditionalPutIgnored` unless this object, which nobody has, is made once where two try.

        A server that passes for S3 may write over it, and what somebody else has made would be lost in silence.
        """
        try:
            made = [self.put_new(b""), self.put_new(b"")]
        except ObjectStoreAway as error:
            if "NotImplemented" in error.evidence["detail"]:
                raise ConditionalPutIgnored(place=str(self.parent), detail=error.evidence["detail"]) from None
            raise
        self.unlink(missing_ok=True)
        if made[1]:
            raise ConditionalPutIgnored(place=str(self.parent), detail="it made one object twice")

    def copy_to(self, other: ObjectPath) -> None:
        """Copy an object within its bucket, in the place of the one that may be there. Raises FileNotFoundError."""
        with asking(str(self)):
            obstore.copy(client(self.bucket), self.key, other.key)

    def unlink(self, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - as of a path
        """Remove an object. A store does not tell whether it was there."""
        try:
            with asking(str(self)):
                obstore.delete(client(self.bucket), self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    # -- what is below

    def below(self, start: str = "") -> Iterator[str]:
        """Yield the relative paths of all objects below this one, in the order of their keys, from `start` on."""
        with asking(str(self)):
            offset = f"{self.key}/{start}" if start else None
            for found in obstore.list(client(self.bucket), self.key, offset=offset, chunk_size=1000):
                yield from (one["path"].removeprefix(f"{self.key}/") for one in found)

    def has(self, path: str) -> bool:
        """Whether an object that was listed is there under that very path.

        One whose key ends with a slash is listed without it. Hadoop's and Arrow's clients put those, as folders.
        """
        return (self / path).exists()

    def names(self, start: str = "") -> list[str]:
        """Return the names of the objects right below that begin with `start`. No object: none."""
        found = list[str]()
        for path in self.below(start):
            if not path.startswith(start):
                break
            if "/" not in path:
                found.append(path)
        return found

    def folders(self) -> list[str]:
        """Return the next parts of the keys below that go on after them."""
        with asking(str(self)):
            found = obstore.list_with_delimiter(client(self.bucket), self.key)
        return [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    def empty(self) -> bool:
        """Whether there is nothing below."""
        return next(self.below(), None) is None

    def clear(self) -> None:
        """Remove all objects below."""
        self.remove(list(self.below()))

    def remove(self, paths: list[str]) -> None:
        """Remove objects below, in this order by the thousand. Those that are gone already are no error."""
        for first in range(0, len(paths), 1000):
            some = paths[first : first + 1000]
            try:
                with asking(str(self)):
                    obstore.delete(client(self.bucket), [f"{self.key}/{path}" for path in some])
            except (FileNotFoundError, ObjectStoreAway):
                # for many, Azure's client asks once where a connection is lost, and minds one that is gone
                list(at_once(lambda path: (self / path).unlink(missing_ok=True), some))

    def _tells(self) -> None:
        """Raise what keeps the store from telling: the answer to a question for a status alone has no words."""
        with asking(str(self)):
            next(iter(obstore.list(client(self.bucket), f"{self.key}/", chunk_size=1)), None)
