"""Deletion vectors as Delta has them: which rows of a data file are deleted, by their places in it.

    vector       the number 1681511377, and a 64-bit Roaring bitmap in its portable form
    file         a byte 1, and of each vector its size, itself, and its CRC-32
    descriptor   the vector in the log: as text ("i"), or where it is: in a file of the table ("u"), anywhere ("p")

Our files are in a folder whose name begins with "_": what clears a table up leaves such folders alone, and the VACUUM
of delta-rs takes a vector beside the data files for something that nobody needs.

Invariant: `deleted` gives the places that `VectorFile.add` was given, or an error; never others.

>>> inline = described(np.array([0, 3], np.uint64))
>>> inline["storageType"], inline["cardinality"], deleted(text_of("/lake/t", inline)).tolist()
('i', 2, [0, 3])
>>> in_a_file = {"storageType": "u", "pathOrInlineDv": "_v" + "HQ/F?Ye8-xS/i>S-*Zt["}
>>> path_of(in_a_file)
'_v/deletion_vector_87b93b20-bb33-4146-aa8c-a801c69b5fe0.bin'
"""

from __future__ import annotations

import base64
import json
import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from tidegauge.errors.sinks import DeletedRows
from tidegauge.lazy import library
from tidegauge.objects.address import is_address
from tidegauge.objects.path import ObjectPath
from tidegauge.objects.reading import parquet_rows
from tidegauge.sinks.location import StagingFiles, TablePath, at, inside, writing

__all__ = [
    "FOLDER",
    "Descriptor",
    "VectorFile",
    "count_of",
    "deleted",
    "described",
    "descriptor_of",
    "identity",
    "live_rows",
    "path_of",
    "places_of",
    "text_of",
]

roaring: Final[Any] = library("pyroaring")  # for those whose tables have any

Descriptor: TypeAlias = Mapping[str, Any]
"""What the log has of a vector, with its names."""

FOLDER: Final = "_vectors"
_MAGIC: Final = 1681511377
_VERSION: Final = b"\x01"
_INLINE: Final = 512
"""A vector of at most 512 bytes is in the log itself."""
_UUID: Final = 20
"""How many signs a UUID takes as text."""
_ROWS: Final = 65_536
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85: Final = str.maketrans(_B85, _Z85)
_FROM_Z85: Final = str.maketrans(_Z85, _B85)


# -- what the log says


def identity(descriptor: Descriptor | None) -> str:
    """Return what tells a vector from others of its data file, as Delta has it; "" for none."""
    if descriptor is None:
        return ""
    offset = descriptor.get("offset")
    return f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}{'' if offset is None else f'@{offset}'}"


def text_of(folder: str, descriptor: Descriptor | None) -> str:
    """Return a vector of a table as text that says all that it takes to read it; "" for none."""
    if descriptor is None:
        return ""
    said = {name: value for name, value in sorted(descriptor.items()) if value is not None}
    return json.dumps({"table": folder, **said}, separators=(",", ":"))


def descriptor_of(text: str) -> dict[str, Any]:
    """Return what the log has of a vector."""
    return {name: value for name, value in json.loads(text).items() if name != "table"}


def count_of(text: str) -> int:
    """Return how many rows are deleted; 0 for "", none."""
    return int(json.loads(text)["cardinality"]) if text else 0


def path_of(descriptor: Descriptor) -> str | None:
    """Return the file in the table's folder that a vector is in, None where it is in no such file."""
    if descriptor["storageType"] != "u":
        return None
    said = str(descriptor["pathOrInlineDv"])
    name = f"deletion_vector_{uuid.UUID(bytes=_unspelled(said[-_UUID:]))}.bin"
    return f"{said[:-_UUID]}/{name}" if len(said) > _UUID else name


# -- the vectors


def deleted(text: str) -> Any:
    """Return the places of the deleted rows, in order, as a NumPy array; none for "". Raises `DeletedRows`."""
    if not text:
        return np.empty(0, np.int64)
    descriptor = json.loads(text)
    folder = str(descriptor.pop("table"))
    try:
        data = _data(folder, descriptor)
        if len(data) < 4 or struct.unpack_from("<I", data)[0] != _MAGIC:
            raise ValueError("it has no Roaring bitmap in its portable form")
        found = np.asarray(roaring.BitMap64.deserialize(data[4:]).to_array(), np.int64)
        if len(found) != descriptor["cardinality"]:
            raise ValueError(f"it has {len(found)} rows, and {descriptor['cardinality']} are said of it")
    except OSError as error:
        if error.errno and not isinstance(error, FileNotFoundError):
            raise  # the disk, which may be back
        raise DeletedRows(vector=_name(descriptor), table=folder, detail="it is not there") from error
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, struct.error) as error:
        raise DeletedRows(vector=_name(descriptor), table=folder, detail=str(error)) from error
    return found


def described(places: Any) -> dict[str, Any]:
    """Return a vector of these places as the log has it inline."""
    data = _encoded(places)
    padded = data + bytes(-len(data) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": _spelled(padded),
        "sizeInBytes": len(data),
        "cardinality": len(places),
    }


class VectorFile:
    """The vectors that one task writes: in one file, but for short ones, which are in the log alone."""

    def __init__(self, place: StagingFiles) -> None:
        self._place: Final = place
        self._name: Final = uuid.uuid4()
        self._path: Final = f"{FOLDER}/deletion_vector_{self._name}.bin"
        self._out: Any = None
        self._size = 0

    def add(self, places: Any) -> dict[str, Any]:
        """Write a vector of places, in order, and return what the log is to say of it."""
        data = _encoded(places)
        if len(data) <= _INLINE:
            return described(places)
        with writing(self._place.root):
            if self._out is None:
                self._out = self._place.create(self._path)
                self._write(_VERSION)
            offset = self._size
            self._write(struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
        return {
            "storageType": "u",
            "pathOrInlineDv": FOLDER + _spelled(self._name.bytes),
            "offset": offset,
            "sizeInBytes": len(data),
            "cardinality": len(places),
        }

    def close(self) -> None:
        """Make it durable, with its name."""
        if self._out is not None:
            with writing(self._place.root):
                self._out.close()
            self._place.keep(self._path)
            self._place.keep_names(FOLDER)

    def abort(self) -> None:
        """Remove the file."""
        if self._out is not None:
            self._out.close()
            self._place.remove(self._path)

    def _write(self, data: bytes) -> None:
        self._out.write(data)
        self._size += len(data)


# -- the rows that are left


def places_of(dead: Any, start: int, count: int) -> Any:
    """Return for each of `count` rows from a place on whether it is left; None where all are.

    >>> places_of(np.array([1, 5]), 4, 3).to_pylist(), places_of(np.array([1, 5]), 2, 3)
    ([True, False, True], None)
    """
    low, high = np.searchsorted(dead, [start, start + count])
    if low == high:
        return None
    left = np.ones(count, np.bool_)
    left[dead[low:high] - start] = False
    return pa.array(left)


def live_rows(uri: str, columns: pa.Schema, constants: Mapping[str, Any], deletions: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file that are left; see `parquet_rows`. Raises `DeletedRows`."""
    dead, start = deleted(deletions), 0
    rows = parquet_rows([uri], columns, [constants])
    # Without a filter, and with the columns of a schema, a file's rows come one after the other, and all of them.
    for batch in rows.to_batches(batch_size=_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False):
        left = places_of(dead, start, batch.num_rows)
        start += batch.num_rows
        yield batch if left is None else batch.filter(left)


# -- their form


def _encoded(places: Any) -> bytes:
    bitmap: bytes = roaring.BitMap64(np.asarray(places, np.uint64)).serialize()
    return struct.pack("<I", _MAGIC) + bitmap


def _data(folder: str, descriptor: Descriptor) -> bytes:
    """Return a vector's bytes."""
    size, storage = int(descriptor["sizeInBytes"]), descriptor["storageType"]
    if storage == "i":
        return _unspelled(descriptor["pathOrInlineDv"])[:size]
    begin = int(descriptor.get("offset") or 0)
    found = _range(_file(folder, descriptor), begin, size + 8)
    if len(found) < size + 8 or struct.unpack_from(">i", found)[0] != size:
        raise ValueError("it has another size")
    data = found[4 : 4 + size]
    if struct.unpack_from(">I", found, 4 + size)[0] != zlib.crc32(data):
        raise ValueError("its checksum is another one")
    return data


def _file(folder: str, descriptor: Descriptor) -> TablePath:
    if (beside := path_of(descriptor)) is not None:
        return inside(folder, beside)
    said = str(descriptor["pathOrInlineDv"])
    return at(said) if is_address(said) else at(unquote(urlsplit(said).path) if said.startswith("file:") else said)


def _range(path: TablePath, begin: int, size: int) -> bytes:
    if isinstance(path, ObjectPath):
        return bytes(path.read_range(begin, size))
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(size)


def _name(descriptor: Descriptor) -> str:
    said = identity(descriptor)
    if descriptor["storageType"] != "u":
        return said[:60]
    try:
        return path_of(descriptor) or said
    except ValueError:
        return said[:60]


def _spelled(data: bytes) -> str:
    return base64.b85encode(data).decode().translate(_TO_Z85)


def _unspelled(text: str) -> bytes:
    return base64.b85decode(text.translate(_FROM_Z85))
