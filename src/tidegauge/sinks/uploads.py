"""Staging in an object store: a file is written beside the task, and put there in one step once it is whole.

Until then it lies in a file of this machine without a name, so a task that is killed leaves nothing. A large one goes
up in parts, which the store makes one object of at the end.

Invariant: an object is there whole or not at all, and of one attempt: its name has a part that no other attempt at
the task has, so two that run at once, as Spark's speculation has them, never write over each other.

>>> place = ObjectFiles("s3://lake/orders")
>>> place.own("part-0") == place.own("part-0"), place.own("part-0")[:7]
(False, 'part-0-')
"""

from __future__ import annotations

import os
import tempfile
import uuid
from dataclasses import dataclass, field
from typing import IO, Any, Final

import pyarrow as pa

from tidegauge.objects.client import asking, client, obstore
from tidegauge.objects.path import ObjectPath
from tidegauge.sinks.location import inside

__all__ = ["ObjectFiles"]

_WHOLE: Final = 16 << 20
"""Up to this many bytes go up in one request."""
_PART: Final = 8 << 20
_AT_ONCE: Final = 4
"""Of a larger file this many parts of this size are under way, so it takes no more memory than a few row groups."""


@dataclass(frozen=True, slots=True)
class ObjectFiles:
    """The `StagingFiles` at an address. It is sent to tasks before anything is written."""

    root: str
    _written: dict[str, IO[bytes]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def own(self, stem: str) -> str:
        """Return a name that no other attempt has."""
        return f"{stem}-{uuid.uuid4().hex[:12]}"

    def create(self, path: str) -> Any:
        """Begin a file."""
        if path in self._written:
            raise FileExistsError(path)
        self._written[path] = written = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `keep` or `remove`
        return pa.PythonFile(_Open(written), mode="w")

    def keep(self, path: str) -> int:
        """Put a file there."""
        place = self._at(path)
        with self._written.pop(path) as written:
            size = written.seek(0, os.SEEK_END)
            written.seek(0)
            large = size > _WHOLE
            with asking(str(place)):
                obstore.put(
                    client(place.bucket),
                    place.key,
                    written,
                    use_multipart=large,
                    chunk_size=_PART,
                    max_concurrency=_AT_ONCE,
                )
        return size

    def keep_names(self, folder: str) -> None:
        """Do nothing: a name is there with its object."""

    def remove(self, path: str) -> None:
        """Let go of a file, or remove its object."""
        if path in self._written:
            self._written.pop(path).close()
        else:
            self._at(path).unlink(missing_ok=True)

    def prune(self, folder: str) -> None:
        """Do nothing: there are no empty folders."""

    def folders(self, folder: str) -> list[str]:
        """List the folders in a folder."""
        return self._at(folder).folders()

    def clear(self, folder: str) -> None:
        """Remove all objects in a folder."""
        self._at(folder).clear()

    def _at(self, path: str) -> ObjectPath:
        found = inside(self.root, path)
        assert isinstance(found, ObjectPath)  # noqa: S101 - it is an address
        return found


class _Open:
    """The stream into a file that stays open when the stream is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.closed = False

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True
