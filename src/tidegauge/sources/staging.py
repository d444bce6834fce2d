"""Where a source stages what it was told once: a folder on a disk that all tasks see, or one in an object store.

    staging="/lake/polls"        files that are synchronised, and linked to their names
    staging="s3://lake/polls"    objects, which a store keeps whole, for ever, once their put was answered

Invariant: what `write_rows` and `create` have returned from is durable and whole. `create` makes a file if and only
if nobody else's has the name, however many try at once, and those who lose can read what the winner has made.

>>> folder_in("s3://lake/polls", "shop", "", "0"), staging_place("S3://lake//polls/", elsewhere=ValueError)
(ObjectPath(bucket='s3://lake', key='polls/shop/0'), 's3://lake/polls')
>>> import tempfile
>>> with tempfile.TemporaryDirectory() as root:
...     folder = folder_in(root, "orders")
...     make_folder(folder)
...     create(folder / "0.json", b"mine"), create(folder / "0.json", b"yours"), names_in(folder)
(True, False, ['0.json'])
"""

from __future__ import annotations

import io
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tidegauge import disk
from tidegauge.dictionaries import worth_a_dictionary
from tidegauge.objects.address import address, is_address
from tidegauge.objects.client import asking, at_once, client, obstore
from tidegauge.objects.path import ObjectPath

__all__ = [
    "StagingPath",
    "check_there",
    "create",
    "each",
    "folder_in",
    "is_there",
    "make_folder",
    "names_in",
    "opened",
    "path_of",
    "put_file",
    "replace_whole",
    "staging_place",
    "write_rows",
]

StagingPath: TypeAlias = Path | ObjectPath

_WHOLE: Final = 16 << 20
"""Up to this many bytes go up, or come, in one request."""
_PART: Final = 8 << 20
_AT_ONCE: Final = 4

T = TypeVar("T")
R = TypeVar("R")


def staging_place(path: str | os.PathLike[str], *, elsewhere: Callable[[str], Exception]) -> str:
    """Return an absolute path, or an address in its one form. Raises as `address` and `local_path` do."""
    text = os.fspath(path)
    if isinstance(text, str) and is_address(text):
        return address(text)
    return disk.local_path(path, parameter="staging", elsewhere=elsewhere)


def path_of(place: str) -> StagingPath:
    """Return the path that a text is of, which `str` of a path gives."""
    return ObjectPath.of(place) if is_address(place) else Path(place)


def folder_in(place: str, *names: str) -> StagingPath:
    """Return the folder with these names in a place; empty ones are left out."""
    found = path_of(place)
    for name in filter(None, names):
        found = found / name
    return found


def make_folder(folder: StagingPath) -> None:
    """Create a folder durably where it is missing. A store needs none."""
    if isinstance(folder, Path):
        disk.make_folder(folder)


def check_there(folder: StagingPath) -> None:
    """Raise `OSError` where a folder is away, as a disk that is not mounted is.

    A store says of itself when a bucket is away, whatever it is asked for.
    """
    if isinstance(folder, Path):
        folder.stat()


def is_there(folder: StagingPath) -> bool:
    """Whether something can be kept in a folder."""
    return not isinstance(folder, Path) or folder.is_dir()


def names_in(folder: StagingPath) -> list[str]:
    """Return the names of the files in a folder. Raises FileNotFoundError where a disk has no such folder."""
    return folder.names() if isinstance(folder, ObjectPath) else os.listdir(folder)


def write_rows(path: StagingPath, schema: pa.Schema, groups: Iterable[pa.Table]) -> int:
    """Write a Parquet file with a row group of each of some tables; return its size in bytes."""
    if isinstance(path, Path):
        _write(path, schema, groups)
        disk.synchronise(path)
        return path.stat().st_size
    with tempfile.TemporaryFile() as written:
        _write(written, schema, groups)
        return _put(path, written)


def put_file(path: ObjectPath, file: Path) -> None:
    """Make an object with what a file of a disk holds."""
    with file.open("rb") as opened:
        _put(path, opened)


def _put(path: ObjectPath, file: IO[bytes]) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    with asking(str(path)):
        obstore.put(
            client(path.bucket),
            path.key,
            file,
            use_multipart=size > _WHOLE,
            chunk_size=_PART,
            max_concurrency=_AT_ONCE,
        )
    return size


def _write(where: Any, schema: pa.Schema, groups: Iterable[pa.Table]) -> None:
    coming = iter(groups)
    first = next(coming, schema.empty_table())
    with pq.ParquetWriter(where, schema, store_schema=False, use_dictionary=worth_a_dictionary(first)) as out:
        for group in chain([first], coming):
            out.write_table(group, row_group_size=max(1, group.num_rows))


def create(path: StagingPath, data: bytes) -> bool:
    """Make a file where there is none of its name; False where there is one.

    In a store that one may have these bytes: a client repeats a put whose answer was lost.
    """
    if isinstance(path, ObjectPath):
        return path.put_new(data)
    return disk.put_new(path, data, beside=f"_manifest-{uuid.uuid4().hex}")


def replace_whole(path: StagingPath, data: bytes) -> None:
    """Make a file in the place of the one that may be there, of something that can be found out again."""
    if isinstance(path, ObjectPath):
        path.put(data)
    else:
        path.write_bytes(data)


@contextmanager
def opened(path: StagingPath, *, expected: int) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file for reading, and say how many bytes it has. Of a store, it is fetched as a whole first.

    expected: its size, by its manifest. Where the real one is another, the bytes are of no use, and are not fetched.

    Raises FileNotFoundError, `OSError`, and what asking a store does.
    """
    if isinstance(path, Path):
        with open(path, "rb") as file:
            yield file, os.fstat(file.fileno()).st_size
        return
    if expected <= _WHOLE:
        data = path.read_bytes()
        yield io.BytesIO(data), len(data)
        return
    size = path.stat().st_size
    with tempfile.TemporaryFile() as file:
        if size == expected:
            for start in range(0, size, _PART):
                file.write(path.read_range(start, min(_PART, size - start)))
            file.seek(0)
        yield file, size


def each(folder: StagingPath, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield what a function that looks into a folder returns of each item; in a store several look at once."""
    return at_once(function, items) if isinstance(folder, ObjectPath) else map(function, items)
