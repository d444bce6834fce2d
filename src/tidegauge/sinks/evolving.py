"""Tables that take on columns of rows: how they are told to, and what they have then (`tidegauge.evolution`).

Invariant: a table has the columns that its rows have with the very commit that brings the first of these.

>>> held, rows = pa.schema([("n", pa.int64())]), pa.schema([("n", pa.int64()), ("note", pa.string())])
>>> grown(held, rows, "add", place="lake/orders", output="shop:orders").names
['n', 'note']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.errors.columns import ColumnsRefused
from tidegauge.errors.sinks import TableSchemaChanged
from tidegauge.evolution import Evolution, evolved, kinds, listed, nested, never
from tidegauge.sinks.columns import differences

__all__ = ["Evolving", "gained", "grown"]


@runtime_checkable
class Evolving(Protocol):
    """A `Table` that can take on columns of rows, in the commit that brings the first rows with them."""

    def evolve(self, how: Evolution) -> None:
        """Take rows of other columns in this way from now on. Changes nothing."""
        ...

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that a commit of rows with this schema would add, or add fields within; none before the
        first commit.

        Raises what it would raise of the columns. Changes nothing.
        """
        ...


def grown(
    table: pa.Schema,
    rows: pa.Schema,
    how: Evolution,
    *,
    place: str,
    output: str,
    widens: Callable[[Any, Any], bool] = never,
    narrow: str = "",
    nests: bool = False,
) -> pa.Schema:
    """Return the columns of a table once it has taken rows with these; all in stored form.

    place: the table, for people. Raises `TableSchemaChanged` where it is to take no others, and `ColumnsRefused`.
    """
    if how == "strict":
        if detail := differences(table, rows):
            raise TableSchemaChanged(table=place, output=output, detail=detail)
        return table
    change = evolved(kinds(table), kinds(rows), how, widens=widens, narrow=narrow, nests=nests)
    if change.refused:
        said = {"held": listed(kinds(table)), "given": listed(kinds(rows)), "how": how}
        raise ColumnsRefused(table=place, output=output, detail=change.refused, **said)
    kept = [rows.field(field.name) if field.name in change.widened else field for field in table]
    kept = [field.with_type(change.within.get(field.name, field.type)) for field in kept]
    return pa.schema([*kept, *(rows.field(name) for name in change.added)])


def gained(before: pa.Schema, after: pa.Schema) -> tuple[str, ...]:
    """Return the columns that a table gets, or gets fields within.

    >>> gained(pa.schema([("n", pa.int64())]), pa.schema([("n", pa.int64()), ("note", pa.string())]))
    ('note',)
    """
    return tuple(field.name for field in after if field.name not in before.names or _gained(before, field))


def _gained(before: pa.Schema, column: pa.Field) -> bool:
    every, _ = nested(before.field(column.name).type, column.type)
    return every is not None and every != before.field(column.name).type
