"""Reading Parquet in an object store as Arrow does on a disk: a file of ranges, and a dataset of such files.

Invariant: a read asks for the bytes that Arrow wants and no others, so what a file holds is never in memory twice.
What a store refuses is the error of ours that says so, also through Arrow.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidegauge.objects.address import is_address
from tidegauge.objects.path import ObjectPath

__all__ = ["ObjectReader", "parquet_rows", "readable"]


class ObjectReader:
    """A file of an object, for `pyarrow.PythonFile`. It keeps nothing open."""

    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        self._size = path.stat().st_size
        self._at = 0
        self.closed = False

    def read(self, size: int = -1) -> Any:
        """Return the next bytes."""
        left = max(0, self._size - self._at)
        length = left if size < 0 else min(size, left)
        if not length:
            return b""
        found = self._path.read_range(self._at, length)
        self._at += length
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go elsewhere."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """Return where it is."""
        return self._at

    def size(self) -> int:
        """Return how many bytes there are."""
        return self._size

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def seekable(self) -> bool:
        """Whether it can be read anywhere."""
        return True

    def close(self) -> None:
        """Be done with it."""
        self.closed = True


def readable(path: Any) -> Any:
    """Return what Arrow reads a file from: the path itself, or a file of an object. Raises FileNotFoundError."""
    return pa.PythonFile(ObjectReader(path), mode="r") if isinstance(path, ObjectPath) else path


def parquet_rows(uris: Sequence[str], schema: pa.Schema) -> Any:
    """Return Parquet files, on disks or in object stores, as a dataset of rows with these columns."""
    import pyarrow.dataset as ds  # here, for it loads pandas

    if not any(map(is_address, uris)):
        return ds.dataset(list(uris), format="parquet", schema=schema, partitioning=None)
    kind = ds.ParquetFileFormat()
    pieces = [kind.make_fragment(readable(ObjectPath.of(uri))) for uri in uris]
    return ds.FileSystemDataset(pieces, schema, kind)
