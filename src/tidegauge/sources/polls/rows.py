"""The rows of a poll in the declared columns: found by name, each without loss, or not at all.

Rows are a pyarrow Table or RecordBatch, or a list of dicts, as `json` gives them. A column that is missing is null,
and one that is not declared is left out; rows that have none of the declared columns are none of ours.

Invariant: no value is changed. A row that does not fit has the whole poll refused, and nothing of it staged.

>>> columns = pa.schema([("id", pa.int64()), ("name", pa.string())])
>>> as_rows("users", [{"id": 1, "age": 7}, {"name": "Ann"}], columns).to_pylist()
[{'id': 1, 'name': None}, {'id': None, 'name': 'Ann'}]
>>> as_rows("users", [{"id": "1"}], columns)
Traceback (most recent call last):
tidegauge.errors.polls.PollUnfit: TG-0383: source 'users': the rows do not fit the declared columns: ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from tidegauge.errors.polls import NotFetched, PollUnfit
from tidegauge.sources.formats.fitted import fitted, misfit

__all__ = ["as_rows"]

_SHOWN: Final = 200


def as_rows(source: str, rows: Any, columns: pa.Schema, *, plain: bool = False) -> pa.Table:
    """Return rows in these columns. plain: whether they are known to be a list of dicts, and of no subclass.

    Raises `NotFetched` for anything else, `PollUnfit` for rows that do not fit.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        found = rows
    elif isinstance(rows, list | tuple):
        found = _of_dicts(source, rows, columns, plain=plain)
    else:
        raise NotFetched(source=source, problem=f"rows of type {type(rows).__name__}, which are no table")
    if not found.num_rows:
        return columns.empty_table()
    if twice := sorted({name for name in columns.names if found.column_names.count(name) > 1}):
        raise PollUnfit(source=source, problem=f"it has the column {twice[0]!r} twice")
    if not set(columns.names) & set(found.column_names):
        raise PollUnfit(source=source, problem=f"none of its columns is declared: {found.column_names[:20]}")
    if problem := misfit(found.schema, columns):
        raise PollUnfit(source=source, problem=problem)
    return pa.Table.from_batches(
        [_fitted(source, batch, columns) for batch in found.combine_chunks().to_batches()], columns
    )


def _fitted(source: str, batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    there = {name: batch.column(name) for name in columns.names if name in batch.schema.names}
    rows, wrong = fitted(there, batch.num_rows, columns)
    for row, problem in sorted(wrong.items())[:1]:
        raise PollUnfit(source=source, problem=f"row {row}, {problem}")
    return rows


def _of_dicts(source: str, rows: Sequence[Any], columns: pa.Schema, *, plain: bool) -> pa.Table:
    """Return the declared columns of dicts, those of them that any has."""
    kinds = {dict} if plain else set(map(type, rows))
    if not all(issubclass(kind, Mapping) for kind in kinds):
        at, odd = next((at, row) for at, row in enumerate(rows) if not isinstance(row, Mapping))
        raise NotFetched(source=source, problem=f"a list whose item {at} is of type {type(odd).__name__}, no dict")
    arrays = [
        _column(source, _values(rows, name, plain=kinds == {dict}), column)  # `column.name` takes longer than `get`
        for name, column in zip(columns.names, columns, strict=True)
    ]
    if rows and all(array.null_count == len(rows) for array in arrays):
        names = set[Any]().union(*rows)
        if not names & set(columns.names):
            shown = sorted(map(str, names))[:20]
            raise PollUnfit(source=source, problem=f"none of its columns is declared: {shown}")
    return pa.Table.from_arrays(arrays, columns.names)


def _values(rows: Sequence[Any], name: str, *, plain: bool) -> list[Any]:
    """Return the values of a column; None where a row has none. Most often all have one, and no row is a subclass.

    >>> _values([{"a": 1}, {}], "a", plain=True)
    [1, None]
    """
    if plain:
        with suppress(KeyError):
            return list(map(itemgetter(name), rows))
    return [row.get(name) for row in rows]


def _column(source: str, values: list[Any], column: pa.Field) -> pa.Array:
    """Return values as a column. What Arrow would take in silence for another value is refused first."""
    of = column.type
    strict = types.is_string(of) or types.is_binary(of)  # Arrow takes nothing else for one of these
    suspects = values if not strict and _may_be_refused(set(map(type, values)), of) else ()
    for at, value in enumerate(suspects):
        if refused := _refused(value, column.type):
            raise PollUnfit(source=source, problem=f"row {at}, column {column.name}: {refused}")
    try:
        return pa.array(values, column.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = f"column {column.name}, {column.type}: {str(error)[:_SHOWN]}"
        raise PollUnfit(source=source, problem=problem) from error


def _may_be_refused(kinds: set[type], of: Any) -> bool:
    """Whether a value of one of these classes may be refused: a look at each value takes most of the time of a row.

    >>> _may_be_refused({int, type(None)}, pa.int64()), _may_be_refused({int}, pa.date32())
    (False, True)
    """
    cut, timed = types.is_integer(of), types.is_temporal(of)
    harmful = (bool, *([float] if cut or timed else []), *([int] if timed else []))
    return bool(types.is_nested(of)) or any(issubclass(kind, harmful) for kind in kinds)


def _refused(value: Any, of: Any) -> str:
    """Say which value Arrow would change: it cuts off fractions, counts booleans, and takes numbers for times.

    >>> _refused([1, 2.5], pa.list_(pa.int64())), _refused({"a": True}, pa.struct([("a", pa.float64())]))
    ('2.5 is no int64', 'True is no double')
    """
    if value is None:
        return ""
    if types.is_list(of) and isinstance(value, list | tuple):
        return next((found for one in value if (found := _refused(one, of.value_type))), "")
    if types.is_struct(of) and isinstance(value, Mapping):
        return next((found for field in of if (found := _refused(value.get(field.name), field.type))), "")
    if types.is_map(of):
        pairs = value.items() if isinstance(value, Mapping) else value
        return next((found for _, one in pairs if (found := _refused(one, of.item_type))), "")
    cut = types.is_integer(of) and isinstance(value, float) and not value.is_integer()
    counted = isinstance(value, bool) and not types.is_boolean(of)
    timed = types.is_temporal(of) and isinstance(value, int | float)
    return f"{value!r:.80} is no {of}" if cut or counted or timed else ""
