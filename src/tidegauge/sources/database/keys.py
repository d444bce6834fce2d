"""Keys of rows that are left out of the files of a table, in a file of their own.

A key is told by the texts of its columns. A log has the old key of a change whenever a byte of it differs, so it is
the text, and not what the database takes to be equal, that is followed.

Invariant: rows with one of these keys are left out, and no others.

>>> key = pa.table({"id": ["1", "2"]})
>>> untouched(pa.table({"id": [b"2", b"3"], "who": [b"x", b"y"]}), key).to_pylist()
[False, True]
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidegauge.disk import synchronise
from tidegauge.errors.push import PieceUnreadable
from tidegauge.lazy import library

__all__ = ["kept_keys", "key_names", "untouched"]

pc: Final = library("pyarrow.compute")


def kept_keys(keys: pa.Table, path: Path) -> str:
    """Write keys to a file, durably, and return its path."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, keys.schema) as writer:
        writer.write_table(keys)
    synchronise(path)
    return str(path)


def key_names(path: str) -> list[str]:
    """Return the columns of the keys in a file. Raises `PieceUnreadable`."""
    return list(_read(path).column_names)


def untouched(rows: pa.Table, keys: str | pa.Table) -> Any:
    """Return which rows have a key that is not among some, which are in a file. Raises `PieceUnreadable`."""
    found = _read(keys) if isinstance(keys, str) else keys
    return pc.invert(pc.is_in(_joined(rows.select(found.column_names)), value_set=_joined(found)))


@lru_cache(maxsize=2)
def _read(path: str) -> pa.Table:
    try:
        with pa.OSFile(path) as file:
            return pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise PieceUnreadable(path=path, detail=str(error)) from error


def _joined(key: pa.Table) -> Any:
    """Return one value for each key, which no other key has.

    >>> _joined(pa.table({"a": ["1", "12"], "b": ["23", "3"]})).to_pylist()
    [b'1:1,2:23,', b'2:12,1:3,']
    """
    columns = [column.combine_chunks().cast(pa.binary()) for column in key.columns]
    if len(columns) == 1:
        return columns[0]
    lengths = [pc.binary_length(column).cast(pa.string()).cast(pa.binary()) for column in columns]
    marks = [pa.scalar(mark, pa.binary()) for mark in (b":", b",", b"")]
    parts = [
        part for length, column in zip(lengths, columns, strict=True) for part in (length, marks[0], column, marks[1])
    ]
    return pc.binary_join_element_wise(*parts, marks[2])
