"""What a change leaves out, from the changes before it: columns of sorted changes, each by itself.

Definition. The value of a column that a change leaves out is that of the change of its key right before it; if that
one leaves it out, too, of the one before that, and so on. The row that the table has is the first of them all. A
deletion has no values: behind one, nothing is left to be taken. Nor is a null taken: no change leaves one out, so
the row is from before its table had the column, or somebody else wrote it.

Law: **`needed` keeps every change that has such a value, whatever joins the part.** Argument, for a column that the
last change of a group leaves out. Let R be the latest change before it that has the value, in the whole. In the part
that R is of, no later change before the last one has it either, so R is the latest one with it there, and the last
one of that part is either R or leaves it out; `needed` keeps it in both cases. A deletion counts as having it.

>>> rows = pa.table({"k": [1, 1, 1], "n": [5, 6, 7], "doc": ["a", None, None], "gone=": [False] * 3})
>>> left = [None, Mark(("doc",)).encode(), Mark(("doc",)).encode()]
>>> rows = rows.append_column("left=", pa.array(left, pa.string()))
>>> last = np.array([False, False, True])
>>> needed(rows, last).tolist()
[True, False, False]
>>> rows = rows.append_column("at=", pa.array([3, 3, 3]))
>>> filled_in(rows, last, ("k",), table="t").to_pylist()[2]
{'k': 1, 'n': 7, 'doc': 'a', 'gone=': False, 'left=': None, 'at=': 3}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.leftout import LeftOutNull, LeftOutUnknown, MovedUnknown
from tidegauge.lazy import library
from tidegauge.leftout import COMING, LEAVING, LEFT, Mark, masks, moving, texts
from tidegauge.sinks.keyed.layout import AT, GONE

__all__ = ["check_whole", "filled_in", "needed", "sources", "unknown"]

pc: Final[Any] = library("pyarrow.compute")

_SHOWN: Final = 100


def needed(rows: pa.Table, last: Any) -> Any:
    """Return which of sorted changes have values that the last one of their group leaves out.

    last: which changes are the last of a group.
    """
    kept = np.zeros(rows.num_rows, np.bool_)
    marks = rows.column(LEFT).combine_chunks()
    if marks.null_count == len(marks):
        return kept
    away = moving(marks, LEAVING)
    kept |= away | moving(marks, COMING)
    for _, lacking, source, found in sources(rows, last, last | away):
        kept[source[lacking & found]] = True
    return kept


def filled_in(rows: pa.Table, last: Any, key: Sequence[str], *, table: str) -> pa.Table:
    """Return sorted changes, the last one of each key with the values that it leaves out, where others have them.

    None waits for the value of another key (`keyed.moved`). Raises `LeftOutUnknown` where the one before takes the
    row away, `LeftOutNull` where it has null there.
    """
    marks = rows.column(LEFT).combine_chunks()
    if marks.null_count == len(marks):
        return rows
    if moving(marks, COMING).any():
        raise ValueError("a row waits for the values of another key")
    at = rows.schema.get_field_index(LEFT)
    rows = rows.set_column(at, LEFT, pc.if_else(rows.column(GONE), pa.scalar(None, pa.string()), rows.column(LEFT)))
    gone = rows.column(GONE).combine_chunks().to_numpy(zero_copy_only=False)
    still: dict[str, Any] = {}
    for name, lacking, source, found in sources(rows, last, last):
        taken = lacking & found
        if (lost := np.flatnonzero(taken)[gone[source[taken]]]).size:
            raise unknown(rows, int(lost[0]), name, key, table)
        given = rows.column(name).combine_chunks()
        if given.null_count and (empty := np.flatnonzero(taken)[_null(given)[source[taken]]]).size:
            raise unknown(rows, int(empty[0]), name, key, table, error=LeftOutNull)
        places = np.where(taken, source, np.arange(rows.num_rows))
        at = rows.schema.get_field_index(name)
        values = given.take(pa.array(places))
        rows = rows.set_column(at, rows.schema.field(at), values)
        still[name] = lacking & ~found
    if still:
        rows = rows.set_column(rows.schema.get_field_index(LEFT), pa.field(LEFT, pa.string()), texts(still))
    return rows


def check_whole(rows: pa.Table, key: Sequence[str], *, table: str) -> None:
    """Raise `LeftOutUnknown` for a change that still leaves something out."""
    marks = rows.column(LEFT)
    if marks.null_count < len(marks):
        row = int(np.flatnonzero(marks.is_valid().to_numpy())[0])
        raise unknown(rows, row, Mark.decode(marks[row].as_py()).columns[0], key, table)


def sources(rows: pa.Table, last: Any, asked: Any) -> list[tuple[str, Any, Any, Any]]:
    """Return of each column that changes leave out: which do, of each the latest change before with it, and if any.

    last: which changes are the last of a group. asked: those that it is to be known of. A deletion counts as one that
    has it, and so does a row whose value is that of another key.
    """
    marks = rows.column(LEFT).combine_chunks()
    if marks.null_count == len(marks):
        return []
    places = np.arange(rows.num_rows)
    starts = np.maximum.accumulate(np.where(np.append(True, last[:-1]), places, 0))
    has = rows.column(GONE).combine_chunks().to_numpy(zero_copy_only=False) | moving(marks, COMING)
    found = list[tuple[str, Any, Any, Any]]()
    for name, left in masks(marks).items():
        source = np.append(-1, np.maximum.accumulate(np.where(left & ~has, -1, places))[:-1])
        if (lacking := left & asked).any():
            found.append((name, lacking, source, source >= starts))
    return found


def _null(values: Any) -> Any:
    return values.is_null().to_numpy(zero_copy_only=False)


def unknown(
    rows: pa.Table,
    row: int,
    column: str,
    key: Sequence[str],
    table: str,
    error: type[LeftOutNull | LeftOutUnknown | MovedUnknown] = LeftOutUnknown,
) -> LeftOutNull | LeftOutUnknown | MovedUnknown:
    """Return the error of a change that leaves out a value which is not known."""
    found = tuple(rows.column(name)[row].as_py() for name in key)
    said = repr(found[0] if len(found) == 1 else found)[:_SHOWN]
    return error(epoch=rows.column(AT)[row].as_py(), column=column, key=said, table=table)
