"""Reading Parquet in an object store as Arrow does on a disk: a file of ranges, and a dataset of such files.

Invariant: a read asks for the bytes that Arrow wants and no others, so what a file holds is never in memory twice.
What a store refuses is the error of ours that says so, also through Arrow.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.fs

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


def parquet_rows(uris: Sequence[str], schema: pa.Schema, constants: Sequence[Mapping[str, Any]] = ()) -> Any:
    """Return Parquet files, on disks or in object stores, as a dataset of rows with these columns.

    constants: for each file the values, as Arrow scalars, of columns that all its rows have, and it may lack itself.
    """
    import pyarrow.dataset as ds  # here, for it loads pandas

    remote = any(map(is_address, uris))
    if not remote and not any(constants):
        return ds.dataset(list(uris), format="parquet", schema=schema, partitioning=None)
    kind = ds.ParquetFileFormat()
    local = pyarrow.fs.LocalFileSystem()
    pieces = []
    for uri, values in zip(uris, constants or [{}] * len(uris), strict=True):
        place = {"file": readable(ObjectPath.of(uri))} if remote else {"file": uri, "filesystem": local}
        pieces.append(kind.make_fragment(**place, partition_expression=_all_equal(ds, values)))
    return ds.FileSystemDataset(pieces, schema, kind, filesystem=None if remote else local)


def _all_equal(ds: Any, values: Mapping[str, Any]) -> Any:
    """Return the expression that says which value each column has, None where there are none."""
    each = [
        ds.field(name).is_null() if not value.is_valid else ds.field(name) == value for name, value in values.items()
    ]
    return reduce(and_, each) if each else None
