"""Values that a change leaves out: those that the row of its key had before, which only a table of these rows has.

PostgreSQL logs a large value only where it changes. A row that such a change makes is *incomplete*: it has a null in
place of the value, and a mark that says so. The mark is in the column `left=`, beside the columns of the rows: a
text that names the columns that were left out, and the key that tells the row before. Null: nothing was.

Where a change gives a row another key, it makes a deletion of the old key, and right behind it in the order the row
of the new one. What that leaves out is in the row which the deletion takes away. Then both have a mark that says so.

Invariant: no null of an incomplete row is taken for a value. A step or sink with such a batch carries the marks to
the table, or refuses the rows that have one.

>>> marks = pa.array([None, Mark(("doc",), ("id",)).encode()])
>>> batch = pa.record_batch({"id": [1, 2], "doc": ["a", None], "left=": marks})
>>> rows, marks = taken(batch)
>>> rows.schema.names, {name: mask.tolist() for name, mask in masks(marks).items()}
(['id', 'doc'], {'doc': [False, True]})
>>> Mark.decode(marks[1].as_py())
Mark(columns=('doc',), key=('id',), moves='')
>>> texts({"doc": np.array([True, False])}).to_pylist()
['{"columns":["doc"],"key":[]}', None]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from tidegauge.lazy import library

__all__ = [
    "COMING",
    "LEAVING",
    "LEFT",
    "FillingIn",
    "KeptByKey",
    "Mark",
    "masks",
    "moving",
    "taken",
    "texts",
    "translated",
]

pc: Final[Any] = library("pyarrow.compute")

LEFT: Final = "left="
"""The column of marks. No column of rows has such a name."""
LEAVING: Final = "leaving"
"""Of a deletion: the values of its row go on, under the key of the change right behind it."""
COMING: Final = "coming"
"""Of a row: its values are those of the row that the change right before it takes away."""


@dataclass(frozen=True, slots=True)
class KeptByKey:
    """How a table keeps its rows: one of each key, the last by `order`."""

    key: tuple[str, ...]
    order: str | None


@runtime_checkable
class FillingIn(Protocol):
    """A `Sink` that may have a table which fills in what changes leave out. Its stagers take the column of marks."""

    @property
    def keeps(self) -> KeptByKey | None:
        """How, None where its table does not do so."""
        ...


@dataclass(frozen=True, slots=True)
class Mark:
    """What a row lacks. columns: those that were left out. key: those that tell the row before. moves: `LEAVING`,
    `COMING`, or "" where the row before has the same key."""

    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    moves: str = ""

    def encode(self) -> str:
        """Return it as text."""
        moves = {"moves": self.moves} if self.moves else {}
        return json.dumps({"columns": self.columns, "key": self.key, **moves}, separators=(",", ":"))

    @staticmethod
    def decode(text: str) -> Mark:
        """Return the mark that a text is."""
        said = json.loads(text)
        return Mark(tuple(said["columns"]), tuple(said["key"]), said.get("moves", ""))


def taken(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
    """Return a batch without its marks, and the marks; None where no row has one."""
    at = batch.schema.get_field_index(LEFT)
    if at < 0:
        return batch, None
    marks = batch.column(at)
    return batch.drop_columns([LEFT]), None if marks.null_count == len(marks) else marks


def masks(marks: Any) -> dict[str, Any]:
    """Return for each column that is left out by some row, which rows leave it out."""
    codes, words = _coded(marks)
    found: dict[str, Any] = {}
    for code, text in enumerate(words):
        for name in Mark.decode(text).columns:
            mask = codes == code
            found[name] = found[name] | mask if name in found else mask
    return found


def moving(marks: Any, how: str) -> Any:
    """Return which rows have a mark that moves in this way.

    >>> moving(pa.array([None, Mark(("doc",), moves=LEAVING).encode()]), LEAVING).tolist()
    [False, True]
    """
    codes, words = _coded(marks)
    return np.isin(codes, [code for code, text in enumerate(words) if Mark.decode(text).moves == how])


def texts(left: Mapping[str, Any]) -> Any:
    """Return marks that say by column which rows leave it out. There is one at least."""
    names = list(left)
    rows = np.stack([left[name] for name in names], axis=1)
    kinds, which = np.unique(rows, axis=0, return_inverse=True)
    said = [Mark(tuple(name for name, is_left in zip(names, kind, strict=True) if is_left)) for kind in kinds]
    return pa.array([one.encode() if one.columns else None for one in said], pa.string()).take(
        pa.array(which.ravel())
    )


def translated(marks: Any, by: Callable[[Mark], Mark]) -> Any:
    """Return marks that say something else, null where that is of no column."""
    codes, words = _coded(marks)
    said = [by(Mark.decode(text)) for text in words]
    made = pa.array([one.encode() if one.columns else None for one in said], pa.string())
    return made.take(pa.array(codes, mask=codes < 0))


def _coded(marks: Any) -> tuple[Any, list[str]]:
    """Return of each mark its number among the different ones, -1 for none; and these."""
    coded = marks.dictionary_encode()
    return coded.indices.fill_null(-1).to_numpy(zero_copy_only=False), coded.dictionary.to_pylist()
