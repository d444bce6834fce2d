"""Envelopes: what the changes of an epoch did to the row of each key.

    changes of a key in one epoch     upsert                   debezium
    +v1                               upsert v1                insert -, v1
    -v1 +v2                           upsert v2                upsert v1, v2
    -v1                               delete                   delete v1, -
    -v1 +v2 +v3                       upsert v2, upsert v3     upsert v1, v2; insert -, v3
    -v1 -v2 +v3                       upsert v3                upsert v1, v3; delete v2, -
    -v1 -v2                           delete                   delete v1, -; delete v2, -

That is Materialize's table (SUBSCRIBE, `ENVELOPE UPSERT` and `ENVELOPE DEBEZIUM`). Where a key has several rows,
which of them are paired is not specified.

Invariant. Of each key in each epoch there are as many rows as the table says, in the order of epochs. Applied to the
rows by key before the epoch, they give those after it.

>>> one = pa.table({"_epoch": [3, 3, 3], "_diff": [-1, 1, 1], "id": [1, 1, 2], "name": ["ada", "eve", "bob"]})
>>> for row in upserts(one, ["id"]).to_pylist():
...     print(row)
{'_epoch': 3, '_state': 'upsert', 'id': 1, 'name': 'eve'}
{'_epoch': 3, '_state': 'upsert', 'id': 2, 'name': 'bob'}
>>> for row in befores_and_afters(one, ["id"]).to_pylist():
...     print(row)
{'_epoch': 3, '_state': 'upsert', 'id': 1, '_before': {'name': 'ada'}, '_after': {'name': 'eve'}}
{'_epoch': 3, '_state': 'insert', 'id': 2, '_before': None, '_after': {'name': 'bob'}}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegauge.looking.changes import DIFF, codes
from tidegauge.sinks.columns import EPOCH

__all__ = ["STATE", "Enveloping", "befores_and_afters", "upserts"]

Enveloping: TypeAlias = Literal["upsert", "debezium"]

STATE: Final = "_state"

_Places: TypeAlias = npt.NDArray[np.int64]


def upserts(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return `_epoch`, `_state` (`upsert` or `delete`), the key, and the values, which are null where it is deleted.

    changes: consolidated, with `_epoch`, `_diff` and the other columns, `key` among them.
    """
    groups, gone, come = _sides(changes, key)
    last = np.flatnonzero(~np.isin(groups[gone], groups[come]))
    deleted = gone[last[np.unique(groups[gone][last], return_index=True)[1]]]
    places = np.concatenate((come, deleted))
    order = np.argsort(places, kind="stable")
    rows = changes.take(pa.array(places[order]))
    alive = pa.array(order < len(come))
    values = [name for name in changes.column_names if name not in (EPOCH, DIFF, *key)]
    columns = {name: rows.column(name) for name in (EPOCH, *key)}
    return pa.table(
        {
            EPOCH: columns[EPOCH],
            STATE: _states(alive, pa.array([True] * len(places), pa.bool_()), ("upsert", "upsert", "delete")),
            **{name: columns[name] for name in key},
            **{name: _where(alive, rows.column(name)) for name in values},
        }
    )


def befores_and_afters(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return `_epoch`, `_state` (`insert`, `upsert` or `delete`), the key, and the values as structs of two columns.

    `_before` are the values that went, null for an insert; `_after` are those that came, null for a delete.
    """
    groups, gone, come = _sides(changes, key)
    count = max(1, len(gone), len(come))
    theirs, ours = groups[gone] * count + _ranks(groups[gone]), groups[come] * count + _ranks(groups[come])
    pairs = np.unique(np.concatenate((theirs, ours)))
    before, after = _at(pairs, theirs, gone), _at(pairs, ours, come)
    order = np.argsort(np.where(before < 0, after, before), kind="stable")
    before, after = before[order], after[order]
    rows = changes.take(pa.array(np.where(after < 0, before, after)))
    values = [name for name in changes.column_names if name not in (EPOCH, DIFF, *key)]
    return pa.table(
        {
            EPOCH: rows.column(EPOCH),
            STATE: _states(pa.array(after >= 0), pa.array(before >= 0), ("insert", "upsert", "delete")),
            **{name: rows.column(name) for name in key},
            "_before": _structs(changes, values, before),
            "_after": _structs(changes, values, after),
        }
    )


def _sides(changes: pa.Table, key: Sequence[str]) -> tuple[_Places, _Places, _Places]:
    """Return the number of each row's epoch and key, the places of rows that went, and of those that came.

    A place is there as often as its row counts.
    """
    groups, _ = codes(changes, [EPOCH, *key])
    diffs = changes.column(DIFF).to_numpy()
    places = np.arange(changes.num_rows)
    return groups, np.repeat(places, np.maximum(-diffs, 0)), np.repeat(places, np.maximum(diffs, 0))


def _ranks(groups: _Places) -> _Places:
    """Return of each the number of those before it that are of its group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(ordered) else order
    sizes = np.diff(np.concatenate((starts, [len(ordered)])))
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(ordered)) - np.repeat(starts, sizes)
    return ranks


def _at(pairs: _Places, mine: _Places, places: _Places) -> _Places:
    """Return the place that each pair has on one side, -1 where it has none."""
    found = np.full(len(pairs), -1, np.int64)
    found[np.searchsorted(pairs, mine)] = places
    return found


def _states(alive: Any, lived: Any, words: tuple[str, str, str]) -> pa.Array[Any]:
    """Return the first word for rows that came, the second for those that changed, the third for those that went."""
    inserted, changed, deleted = words
    after, before = np.asarray(alive), np.asarray(lived)
    return pa.array(np.where(after & before, changed, np.where(after, inserted, deleted)), pa.string())


def _where(alive: pa.Array[Any], column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """Return a column with nulls where rows are not alive."""
    return column.take(pa.array(np.arange(len(column)), mask=~np.asarray(alive)))


def _structs(changes: pa.Table, values: Sequence[str], places: _Places) -> Any:
    """Return the values of rows at some places as structs, null where a place is -1."""
    taken = changes.select(values).take(pa.array(np.maximum(places, 0), mask=places < 0))
    columns = [column.combine_chunks() for column in taken.columns]
    fields = [pa.field(name, column.type) for name, column in zip(values, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(places < 0))
