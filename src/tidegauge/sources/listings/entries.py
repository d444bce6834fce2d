"""An entry of a listing: a file, and what tells one version of it from the next; and the set of those that are known.

A file is known by its path, its version by its ETag or, on a disk, by its size and the time of its last change. Both
are kept as digests beside the entry, so that a million known files are two columns of a few megabytes.

Invariant: an entry is `NEW` if and only if no known one has its path, and `CHANGED` if and only if the newest known
one with its path has another version.

>>> first, later = Listed("/in/a", 3, 1, ""), Listed("/in/a", 4, 2, "")
>>> known = Known()
>>> known.judge([first])
[<Novelty.NEW: 'new'>]
>>> known.add(*digests(table_of([first])))
>>> known.judge([first, later, Listed("/in/b", 3, 1, "")])
[<Novelty.KNOWN: 'known'>, <Novelty.CHANGED: 'changed'>, <Novelty.NEW: 'new'>]
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.objects.listing import Listed

__all__ = ["ENTRIES", "Known", "Novelty", "digests", "listed_of", "said", "table_of"]

_KEY: Final = 16
_VERSION: Final = 8

ENTRIES: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modified", pa.int64(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("version", pa.binary(), nullable=False),
    ]
)
"""The columns of a manifest's file. modified: nanoseconds since 1970. etag: "" on a disk."""

_LATELY: Final = 1 << 16
"""How many entries are kept beside the sorted ones before these are sorted anew."""


class Novelty(Enum):
    """Whether a listed file is known."""

    NEW = "new"
    KNOWN = "known"
    CHANGED = "changed"


def _key(entry: Listed) -> bytes:
    return blake2b(entry.path.encode(), digest_size=_KEY).digest()


def _version(entry: Listed) -> bytes:
    said = f"etag {entry.etag}" if entry.etag else f"{entry.size} {entry.modified}"
    return blake2b(said.encode(), digest_size=_VERSION).digest()


def table_of(entries: Sequence[Listed]) -> pa.Table:
    """Return entries as the rows of a manifest's file."""
    paths, sizes, modified, etags = (list(one) for one in zip(*entries, strict=True)) if entries else ([], [], [], [])
    keys, versions = [_key(entry) for entry in entries], [_version(entry) for entry in entries]
    return pa.table([paths, sizes, modified, etags, keys, versions], schema=ENTRIES)


def listed_of(table: Any) -> list[Listed]:
    """Return the entries that rows are of."""
    columns = [table.column(name).to_pylist() for name in ("path", "size", "modified", "etag")]
    return [Listed(*row) for row in zip(*columns, strict=True)]


def said(entry: Listed) -> str:
    """Return the version of a file in words."""
    return f"{entry.size} bytes" + (
        f" with the ETag {entry.etag}" if entry.etag else f", last changed {entry.modified} ns after 1970"
    )


def digests(rows: Any) -> tuple[Any, Any]:
    """Return the keys and the versions of a manifest's rows, as arrays of bytes."""
    return _fixed(rows.column("key"), _KEY), _fixed(rows.column("version"), _VERSION)


def _fixed(column: Any, size: int) -> Any:
    """Return digests as an array of bytes. Raises `ValueError` for any of another size."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not len(array):
        return np.empty(0, dtype=f"S{size}")
    ends = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    if array.null_count or (np.diff(ends) != size).any():
        raise ValueError(f"a digest that has not {size} bytes")
    return np.frombuffer(array.buffers()[2], dtype=f"S{size}", offset=int(ends[0]), count=len(array)).copy()


class Known:
    """The digests of all files that are known: the bulk of them sorted, the latest ones beside them."""

    def __init__(self) -> None:
        self._keys: Any = np.empty(0, dtype=f"S{_KEY}")
        self._versions: Any = np.empty(0, dtype=f"S{_VERSION}")
        self._lately: dict[bytes, bytes] = {}

    def add(self, keys: Any, versions: Any) -> None:
        """Know entries, which come after all before: of a path the newest counts."""
        if len(keys) < _LATELY:
            # An array of bytes gives its elements without the zeros that they end with.
            self._lately.update(zip(keys.tolist(), versions.tolist(), strict=True))
            keys, versions = keys[:0], versions[:0]
        if len(keys) or len(self._lately) >= _LATELY:
            self._sort(keys, versions)

    def _sort(self, keys: Any, versions: Any) -> None:
        late_keys = np.array(list(self._lately), dtype=f"S{_KEY}")
        late_versions = np.array(list(self._lately.values()), dtype=f"S{_VERSION}")
        self._lately = {}
        every = np.concatenate([self._keys, late_keys, keys])
        versions = np.concatenate([self._versions, late_versions, versions])
        order = np.argsort(every, kind="stable")
        every, versions = every[order], versions[order]
        last = np.append(every[1:] != every[:-1], True) if len(every) else np.empty(0, dtype=bool)
        self._keys, self._versions = every[last], versions[last]

    def sorted(self) -> tuple[Any, Any]:
        """Return the keys and the versions of all entries, as arrays of bytes in the order of the keys."""
        if self._lately:
            self._sort(self._keys[:0], self._versions[:0])
        return self._keys, self._versions

    def judge(self, entries: Sequence[Listed]) -> list[Novelty]:
        """Return for each of some entries whether it is known."""
        keys = np.array([_key(entry) for entry in entries], dtype=f"S{_KEY}")
        at = np.searchsorted(self._keys, keys)
        inside = np.minimum(at, max(0, len(self._keys) - 1))
        found = (self._keys[inside] == keys) if len(self._keys) else np.zeros(len(keys), dtype=bool)
        before = self._versions[inside].tolist() if len(self._keys) else [b""] * len(keys)
        novelty: list[Novelty] = []
        for entry, key, known, version in zip(entries, keys.tolist(), found.tolist(), before, strict=True):
            newest = self._lately.get(key, version if known else None)
            if newest is None:
                novelty.append(Novelty.NEW)
            else:
                same = newest == _version(entry).rstrip(b"\0")
                novelty.append(Novelty.KNOWN if same else Novelty.CHANGED)
        return novelty

    def __len__(self) -> int:
        return len(self._keys) + len(self._lately)
