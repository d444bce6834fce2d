"""Errors of values that a change leaves out."""

from __future__ import annotations

from tidegauge.errors.base import Definite

__all__ = ["LeftOutHere", "LeftOutNull", "LeftOutUnknown", "MovedUnknown"]


class LeftOutHere(Definite):
    """A change that leaves out a value, for an output that cannot take it from a table."""

    code = "TG-0971"
    what = (
        "epoch {epoch} has a change that leaves out the value of {columns}, and output {output!r} cannot fill it in: "
        "{why}"
    )
    cause = (
        "PostgreSQL sends a large value only when it changes, and this one did not. A table by key has it in the row "
        "from before; other outputs do not, and it is never taken for a null"
    )
    remedy = (
        "the output ends before this epoch, and others go on. Let it do without the column: select(...); or keep a "
        "table by the database's own key, with order='_sequence' and no other steps than select(...) of columns; or "
        "ALTER TABLE ... REPLICA IDENTITY FULL in the database, which counts for later changes, and begin with "
        "another source"
    )


class LeftOutNull(Definite):
    """A change that leaves out a value where the table has null, which no change leaves out."""

    code = "TG-0973"
    what = (
        "epoch {epoch} leaves out the value of {column!r} for the key {key} of {table!r}, and the table has null in "
        "its place"
    )
    cause = (
        "the output took the column on, with schema='add' or 'evolve', when the row was there already; or somebody "
        "else wrote the null. In the database there is a large value, which it sends only when it changes"
    )
    remedy = (
        "the output ends before this epoch, and others go on. Keep the table under another name, from a source of "
        "another name, so that all its rows begin with the column; or ALTER TABLE ... REPLICA IDENTITY FULL in the "
        "database, which counts for later changes"
    )


class LeftOutUnknown(Definite):
    """A change that leaves out a value that the table does not have either."""

    code = "TG-0972"
    what = (
        "epoch {epoch} leaves out the value of {column!r} for the key {key} of {table!r}, and the table has no row "
        "with it"
    )
    cause = (
        "somebody deleted the row from the table, or the output began without the rows that were there: start='now'"
    )
    remedy = (
        "the output ends before this epoch, and others go on. Keep the table under another name, from a source of "
        "another name, so that it begins with all rows; or ALTER TABLE ... REPLICA IDENTITY FULL in the database, "
        "which counts for later changes"
    )


class MovedUnknown(Definite):
    """A row that left its key, with a value that a change leaves out, where the key has got another row at once."""

    code = "TG-0974"
    what = (
        "epoch {epoch} gives the row of the key {key} of {table!r} another key, and leaves out the value of "
        "{column!r}. It has another row for the old key, and several tasks read it, so the value from before is lost"
    )
    cause = (
        "each task keeps the last change of a key, and the one that had the value may be among those that it dropped"
    )
    remedy = (
        "the output ends before this epoch, and others go on. ALTER TABLE ... REPLICA IDENTITY FULL in the database, "
        "which counts for later changes, and keep the table under another name, from a source of another name"
    )
