"""From changes to rows, with the operation and the order of each.

    insert                         insert
    update                         update                  the key is as it was
    update, with the old key       delete, insert          the key was changed: the old one goes
    update, with the old row       delete, insert          replica identity FULL: any column may be somebody's key
    delete                         delete                  with the old key alone, or the old row

`_sequence` tells the order: the place of the commit, and the number of the change within its transaction.

An unchanged large value that the server did not send, and that no earlier change of the transaction has
(`unchanged`), is *left out*: the row has a mark (`tidegauge.leftout`), and the change is told as a bad record for
those who can do nothing with it. Where the key changes as well, the value is in the row of the old one, and both rows
have a mark. Where it is the key itself, there is no row.

Invariants. A change gives its rows together, or none: where one of its values is unfit, the change is a bad record.
Rows depend on the changes of their chunk alone, not on what they came with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.postgressource import UnchangedValueMissing, ValueUnfit
from tidegauge.lazy import library
from tidegauge.leftout import COMING, LEAVING, LEFT, translated
from tidegauge.leftout import texts as texts_of
from tidegauge.operations import DELETE, INSERT, OP, UPDATE
from tidegauge.sources.database.sequence import SEQUENCE, sequence
from tidegauge.sources.database.values import gathered, values
from tidegauge.sources.postgres import tuples
from tidegauge.sources.postgres.unchanged import DELETED, INSERTED, UPDATED, fill

__all__ = ["SEQUENCE_BITS", "Bad", "ChangePlaces", "changed"]

SEQUENCE_BITS: Final = 32
"""Bits for the number of a change within its transaction."""
pc: Final[Any] = library("pyarrow.compute")

_WORDS: Final = pa.array([INSERT, UPDATE, DELETE], pa.string())
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class ChangePlaces:
    """Where changes are: of each message, the place of its commit, and its number in its transaction."""

    lsns: Any
    numbers: Any


@dataclass(frozen=True, slots=True)
class Bad:
    """A change that makes no row. index: which of the messages. left_out: it makes one all the same, marked."""

    index: int
    code: str
    message: str
    left_out: bool = False


def changed(
    data: Any,
    starts: Any,
    ends: Any,
    places: ChangePlaces,
    columns: Sequence[str],
    keys: Sequence[str],
    wanted: Mapping[str, Any],
    table: str,
) -> tuple[dict[str, Any], Any, list[Bad]]:
    """Return the rows that messages of one table make: columns by name, of each row its message, and bad changes.

    There is a column of marks where some row has one.

    columns: those of the messages, in order. keys: those of the replica identity. wanted: the columns of the rows
    with their types; all are among them.
    """
    found = tuples.read(data, starts, ends, len(columns))
    rows = _ChangedRows.of(found)
    good = np.ones(len(starts), np.bool_)
    bad: dict[int, Bad] = {}
    made: dict[str, Any] = {}
    cells = {name: rows.column(columns.index(name)) for name in dict.fromkeys([*wanted, *keys])}
    fill(
        data,
        places.lsns[rows.message],
        rows.words,
        rows.second,
        [cells[name] for name in keys],
        [cells[name] for name in wanted],
    )
    left: dict[str, Any] = {}
    for name, kind in wanted.items():
        kinds, begin, size = cells[name].kinds, cells[name].starts, cells[name].sizes
        missing = kinds == tuples.UNCHANGED
        if missing.any():
            left[name] = missing
        texts = gathered(data, begin, size, kinds == tuples.TEXT)
        made[name], unfit = values(texts, kind)
        for row in unfit:
            shown = repr(texts[row].as_py()[:_SHOWN].decode(errors="backslashreplace"))
            wrong = ValueUnfit(column=name, table=table, value=shown, type=str(kind))
            bad.setdefault(int(rows.message[row]), Bad(int(rows.message[row]), wrong.code, wrong.summary))
    told = _left_out(left, rows, keys, table) if left else {}
    bad |= {index: one for index, one in told.items() if index not in bad and not one.left_out}
    if any(one.left_out for one in told.values()):
        made[LEFT] = _marks(left, rows, tuple(keys))
    made[OP] = _WORDS.take(pa.array(rows.words))
    message = rows.message
    made[SEQUENCE] = sequence(places.lsns[message], 2 * places.numbers[message] + rows.second, bits=SEQUENCE_BITS)
    if bad:
        good[list(bad)] = False
        keep = pa.array(good[message])
        made = {name: column.filter(keep) for name, column in made.items()}
        message = message[good[message]]
    bad |= {index: one for index, one in told.items() if index not in bad}
    return made, message, [bad[index] for index in sorted(bad)]


def _marks(left: Mapping[str, Any], rows: _ChangedRows, key: tuple[str, ...]) -> Any:
    """Return the marks of rows. left: the columns, with the rows that lack them."""
    plain, here = rows.second == 0, rows.second == 1

    def said(moves: str, missing: Mapping[str, Any]) -> Any:
        return translated(texts_of(missing), lambda mark: replace(mark, key=key, moves=moves))

    return pc.coalesce(
        said("", {name: missing & plain for name, missing in left.items()}),
        said(COMING, {name: missing & here for name, missing in left.items()}),
        said(LEAVING, {name: np.append((missing & here)[1:], [False]) for name, missing in left.items()}),
    )


def _left_out(left: Mapping[str, Any], rows: _ChangedRows, keys: Sequence[str], table: str) -> dict[int, Bad]:
    """Return the changes that leave values out. left: the columns, with the rows that lack them."""
    found: dict[int, Bad] = {}
    for name, missing in left.items():
        error = UnchangedValueMissing(column=name, table=table)
        for row in np.flatnonzero(missing).tolist():
            index = int(rows.message[row])
            elsewhere = name in keys or not keys or not (rows.words[row] == UPDATED or rows.second[row])
            before = found.get(index)
            if before is None:
                found[index] = Bad(index, error.code, error.summary, left_out=not elsewhere)
            elif before.left_out and elsewhere:
                found[index] = replace(before, left_out=False)
    return found


@dataclass(frozen=True, slots=True)
class _ChangedRows:
    """The rows of some changes. message: of each row. words: indices of `_WORDS`. second: 1 for the row after another
    of the same change. old, new: which rows are made of old and new tuples, in the order of `found`'s cells."""

    found: tuples.Changes
    message: Any
    words: Any
    second: Any
    old: Any
    new: Any

    @classmethod
    def of(cls, found: tuples.Changes) -> _ChangedRows:
        count = np.zeros(len(found.kinds), np.int64)
        count[found.with_old] += 1
        count[found.with_new] += 1
        first = np.cumsum(count) - count
        message = np.repeat(np.arange(len(count)), count)
        both = np.zeros(len(count), np.bool_)
        both[found.with_old] = True
        old, new = first[found.with_old], first[found.with_new] + both[found.with_new]
        words = np.empty(len(message), np.int8)
        words[old] = DELETED
        words[new] = np.where((found.kinds == tuples.UPDATED) & ~both, UPDATED, INSERTED)[found.with_new]
        second = np.zeros(len(message), np.int64)
        second[new] = both[found.with_new]
        return cls(found, message, words, second, old, new)

    def column(self, at: int) -> tuples.Cells:
        """Return a column's cells; an unchanged value is that of the old row, where that came along."""
        found = self.found
        kinds = np.empty(len(self.message), np.uint8)
        starts = np.empty(len(self.message), np.int64)
        sizes = np.empty(len(self.message), np.int64)
        for rows, cells in ((self.old, found.old), (self.new, found.new)):
            kinds[rows], starts[rows], sizes[rows] = cells.kinds[at], cells.starts[at], cells.sizes[at]
        whole = (kinds == tuples.UNCHANGED) & (found.marks[self.message] == tuples.OLD)
        gone = np.flatnonzero(whole & (self.second == 1))
        kinds[gone], starts[gone], sizes[gone] = kinds[gone - 1], starts[gone - 1], sizes[gone - 1]
        return tuples.Cells(kinds, starts, sizes)
