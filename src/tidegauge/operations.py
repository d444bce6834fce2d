"""Rows with an operation: a stream whose rows say in the column `_op` what became of the row of their key.

    insert    this is the row of its key now; there was none
    update    this is the row of its key now; there was another
    before    the row that the `update` or `delete` right after it takes the place of; it changes nothing
    delete    its key has no row any more; the columns beside the key may be null

Definition: a stream carries operations from where its columns have `_op`, a string, and every step keeps that column.
The *view* of such a stream is a table by key: each operation puts its row there or takes it away, in order, epoch by
epoch.

Law: **the view of `stream.filter(c)` is the view of `stream`, filtered by `c`.** So a filter cannot treat operations
as rows that stay or go:

    c is true    `insert`, `update` and `before` pass unchanged
    otherwise    an `update` becomes a `delete`, since its row has left the view; `insert` and `before` go
    always       a `delete` passes; `c` is not asked, since it cannot judge a row whose columns may be null

The argument, by the last operation of a key. An `insert` or `update` for which `c` is true puts its row into both. An
`update` for which it is not takes the row out of the filtered view, if it was there. An `insert` comes where there is
no row, so one that goes leaves none. A `delete` leaves no row in either; where there was none it does no harm. A
`before` changes nothing, and stands before its `update` or `delete` as far as its own row was in the view.

By the same table `filter(a)` and then `filter(b)` is `filter(a AND b)`: a row that `a` turns into a `delete` passes
`b`, whatever that says.

A row whose `_op` is none of the four words is never dropped by a filter, so that the check of rows finds it.

>>> column = pa.array(["insert", "update", "update", "before", "delete"])
>>> filtered(column, pa.array([False, True, None, False, None])).to_pylist()
[None, 'update', 'delete', None, 'delete']
>>> unknown(column) is None, unknown(pa.array(["insert", "upsert", None])).to_pylist()
(True, [False, True, True])
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.flow import OperationColumnUnfit
from tidegauge.lazy import library

__all__ = [
    "BEFORE",
    "DELETE",
    "INSERT",
    "OP",
    "UPDATE",
    "WORDS",
    "carries",
    "check",
    "filtered",
    "filtered_sql",
    "said_of",
    "unknown",
]

pc: Final = library("pyarrow.compute")

OP: Final = "_op"
"""The column that holds a row's operation."""

_SHOWN: Final = 80

INSERT: Final = "insert"
UPDATE: Final = "update"
BEFORE: Final = "before"
DELETE: Final = "delete"
WORDS: Final = (INSERT, UPDATE, BEFORE, DELETE)


def carries(schema: pa.Schema) -> bool:
    """Whether rows of these columns have an operation."""
    return OP in schema.names


def check(schema: pa.Schema, where: str) -> None:
    """Raise `OperationColumnUnfit` where a column is called like the one for operations, and cannot be it.

    >>> check(pa.schema([("id", pa.int64()), ("_op", pa.string())]), "the source")
    """
    for field in schema:
        text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        if field.name.lower() == OP and not (field.name == OP and text):
            raise OperationColumnUnfit(where=where, column=field.name, type=str(field.type))


def unknown(column: Any) -> Any:
    """Return for each row whether its operation is none; None where every row has one."""
    known = pc.is_in(column, value_set=pa.array(WORDS, column.type))
    return None if known.true_count == len(known) else pc.invert(known)


def said_of(found: Any) -> str:
    """Return, for people, the fault of a value that is no operation.

    >>> print(said_of("upsert"))
    column _op: 'upsert' is none of insert, update, before and delete
    """
    shown = repr(found if found is None else str(found)[:_SHOWN])
    return f"column {OP}: {shown} is none of {', '.join(WORDS[:-1])} and {WORDS[-1]}"


def filtered(column: Any, truth: Any) -> Any:
    """Return operations after a filter, null for a row that goes. truth: what the condition says of each row."""
    word = pc.fill_null(column, "")  # no word either, and told from a row that goes
    gone = pc.is_in(word, value_set=pa.array([INSERT, BEFORE], word.type))
    other = pc.if_else(pc.equal(word, UPDATE), DELETE, pc.if_else(gone, pa.scalar(None, word.type), word))
    return pc.if_else(pc.or_(pc.fill_null(truth, fill_value=False), pc.equal(word, DELETE)), word, other)


def filtered_sql(condition: str) -> str:
    """Return what `filtered` says as SQL. The condition is not asked of a `delete`; the line break ends its comments.

    >>> filtered_sql("amount > 10").splitlines()[0]
    "CASE WHEN _op = 'delete' THEN _op WHEN (amount > 10"
    """
    return (
        f"CASE WHEN {OP} = '{DELETE}' THEN {OP} WHEN ({condition}\n) THEN coalesce({OP}, '') "
        f"WHEN {OP} = '{UPDATE}' THEN '{DELETE}' "
        f"WHEN {OP} IN ('{INSERT}', '{BEFORE}') THEN NULL ELSE coalesce({OP}, '') END AS {OP}"
    )
