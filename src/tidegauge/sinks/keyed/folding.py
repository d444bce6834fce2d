"""Which change of a key is the last: of the epoch that comes last, the one with the greatest `order`.

Null is less than any `order`. Two changes of one key in one epoch, and nothing that says which is behind the other,
are refused (`LastUndecided`): else the answer would depend on which task came first. That holds for every epoch, also
where a later one changes the key again; so it does not depend on how epochs are gathered in commits.

Definitions. A *group* is the changes of one key in one epoch, by `order`. The pair of two neighbours in a group is
*undecided* if they come from two places, or if the second is the group's last one and its order is not greater.
Changes without an `order` are all undecided.

Law: **`folded` may be applied to any parts of the changes, in any order, before `merged`.** It keeps of each group in
its part the last change, and both of an undecided pair. Argument: what it drops is decided to be before another one
of its group and of one place with it, and stays so whatever joins the group. Were it one of an undecided pair in the
whole, then either the last, which no dropped change is; or of another place than its neighbour, and then the change
that it was dropped for is of another place than some neighbour, too, as both are of one.

A change may leave columns out (`tidegauge.leftout`): their values are those of the change before it, of whatever
epoch, and at last those of the table's row (`keyed.filling`). `folded` keeps the changes that have them.

>>> ordering = Ordering(("k",), "n")
>>> rows = pa.table({"k": [1, 1, 2], "n": [5, 7, None], "at=": [3, 3, 3], "gone=": [False, True, False]})
>>> rows = rows.append_column("left=", pa.nulls(3, pa.string()))
>>> folded(rows, ordering).select(["k", "n", "gone="]).to_pylist()
[{'k': 1, 'n': 7, 'gone=': True}, {'k': 2, 'n': None, 'gone=': False}]
>>> merged(rows, ordering, table="t").column("k").to_pylist()
[2]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.errors.kafkasink import LastUndecided
from tidegauge.lazy import library
from tidegauge.sinks.keyed.filling import check_whole, filled_in, needed
from tidegauge.sinks.keyed.layout import AT, GONE, Ordering

__all__ = ["folded", "lasts", "merged", "ordered", "same", "sort"]

pc: Final[Any] = library("pyarrow.compute")

_VALID: Final = "valid="
_SHOWN: Final = 100


def folded(changes: pa.Table, ordering: Ordering) -> pa.Table:
    """Return changes sorted by key, epoch and order, without those that another one of their group is behind."""
    rows = ordered(changes, ordering)
    pair = same(rows, ordering.key) & same(rows, [AT])
    last = np.append(~pair, True)[: rows.num_rows]
    undecided = _undecided(rows, pair, last, ordering)
    kept = last.copy()
    kept[:-1] |= undecided
    kept[1:] |= undecided
    kept |= needed(rows, last)
    return rows if kept.all() else rows.filter(pa.array(kept))


def merged(changes: pa.Table, ordering: Ordering, *, table: str) -> pa.Table:
    """Return the rows that are left of a table's rows and changes, by their key.

    changes: with a row of the table as a change of an epoch before 0. Raises `LastUndecided`, `LeftOutUnknown`,
    `LeftOutNull`.
    """
    rows = lasts(changes, ordering, table=table)
    check_whole(rows, ordering.key, table=table)
    gone = rows.column(GONE).combine_chunks().to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(~gone)) if gone.any() else rows


def lasts(changes: pa.Table, ordering: Ordering, *, table: str) -> pa.Table:
    """Return the last change of each key, deletions too, by their key, as far as others have what it leaves out.

    Raises `LastUndecided`, `LeftOutUnknown`, `LeftOutNull`.
    """
    rows = ordered(changes, ordering)
    key = same(rows, ordering.key)
    at = rows.column(AT).to_numpy()
    pair = key & (at[1:] == at[:-1]) & (at[1:] >= 0)
    undecided = _undecided(rows, pair, np.append(~pair, True)[: rows.num_rows], ordering)
    if undecided.any():
        places = np.flatnonzero(undecided)
        first = int(places[np.argmin(at[places])])
        found = tuple(rows.column(name)[first].as_py() for name in ordering.key)
        said = repr(found[0] if len(found) == 1 else found)[:_SHOWN]
        raise LastUndecided(epoch=int(at[first]), key=said, topic=table)
    kept = np.append(~key, True)[: rows.num_rows]
    rows = filled_in(rows, kept, ordering.key, table=table)
    return rows if kept.all() else rows.filter(pa.array(kept))


def sort(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows in the order of some of their columns. No copy where they are in it."""
    places = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
    array = places.to_numpy()
    if len(array) < 2 or bool((array[1:] > array[:-1]).all()):
        return rows
    return rows.take(places)


def ordered(rows: pa.Table, ordering: Ordering) -> pa.Table:
    """Return changes sorted by key, epoch and order."""
    rows = rows.combine_chunks()
    by = [*ordering.key, AT]
    if ordering.order is None:
        return sort(rows, by)
    valued = rows.append_column(_VALID, pc.is_valid(rows.column(ordering.order)))
    return sort(valued, [*by, _VALID, ordering.order]).drop_columns([_VALID])


def _pairs(rows: pa.Table, name: str) -> tuple[Any, Any]:
    column = rows.column(name).combine_chunks()
    return column.slice(0, max(0, len(column) - 1)), column.slice(1)


def same(rows: pa.Table, names: Sequence[str]) -> Any:
    """Return for each of sorted rows but the last whether the next one has the same values."""
    found = np.ones(max(0, rows.num_rows - 1), dtype=bool)
    for name in names:
        found &= pc.equal(*_pairs(rows, name)).to_numpy(zero_copy_only=False)
    return found


def _undecided(rows: pa.Table, pair: Any, last: Any, ordering: Ordering) -> Any:
    """Return for each of sorted rows but the last whether it and the next one are an undecided pair.

    pair: whether both are of one group. last: whether a row is the last of its group.
    """
    if ordering.order is None or not pair.any():
        return pair
    first, second = _pairs(rows, ordering.order)
    null = pc.and_(first.is_null(), second.is_valid())
    behind = pc.or_(pc.fill_null(pc.less(first, second), fill_value=False), null).to_numpy(zero_copy_only=False)
    found = pair & last[1:] & ~behind
    if ordering.place is not None:
        one = pc.fill_null(pc.equal(*_pairs(rows, ordering.place)), fill_value=False)
        found |= pair & ~one.to_numpy(zero_copy_only=False)
    return found
