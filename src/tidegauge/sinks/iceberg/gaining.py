"""The columns of a table of Iceberg, as one commit gives it others; and what others have made of them meanwhile.

Columns come with the snapshot that brings the first rows with them, in one commit of the catalog with the upper. So
there is nothing between the two for a crash to leave. If others alter the table in the meantime, the catalog refuses
the commit, and it is weighed anew.

Invariant: a column that the table has keeps its number, its place and its comment; a new one gets a number that no
column ever had, so no value of a file from before is taken for one of it.

>>> from pyiceberg.schema import Schema
>>> from pyiceberg.types import LongType, NestedField
>>> held = Schema(NestedField(1, "n", LongType(), doc="a count"), NestedField(2, "_epoch", LongType()))
>>> anew = with_columns(held, pa.schema([("n", pa.int64()), ("_epoch", pa.int64()), ("note", pa.string())]), last=7)
>>> [(one.field_id, one.name, one.doc) for one in anew.fields]
[(1, 'n', 'a count'), (2, '_epoch', None), (8, 'note', None)]
>>> altered(held, Schema(NestedField(1, "m", LongType()), NestedField(2, "_epoch", LongType())), ["m"])
"'n' (column 1) is called 'm' now"
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegauge.errors.iceberg import IcebergColumnsAltered
from tidegauge.evolution import kinds, listed
from tidegauge.sinks.iceberg.columns import columns_of, ids_in
from tidegauge.sinks.iceberg.fields import fresh_ids, numbered
from tidegauge.sinks.iceberg.look import IcebergLook
from tidegauge.sinks.protocol import OutputId

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as PyIcebergTable
    from pyiceberg.table.update import TableRequirement, TableUpdate

__all__ = ["altered", "as_current", "check_unaltered", "with_columns"]


def with_columns(held: Schema, after: pa.Schema, *, last: int) -> Schema:
    """Return the schema that a table has once it has these columns, which are all that it had and others.

    last: the last number that any column of the table ever had.
    """
    from pyiceberg.io.pyarrow import pyarrow_to_schema
    from pyiceberg.schema import Schema

    before = columns_of(held)
    if before.equals(after):
        return held
    known = ids_in(held, before)
    ids = {path: known[path] for path in fresh_ids(after) if path in known}
    ids |= {path: last + n for n, path in enumerate((one for one in fresh_ids(after) if one not in ids), 1)}
    fields = _said(pyarrow_to_schema(numbered(after, ids)).fields, held.fields)
    return Schema(*fields, schema_id=held.schema_id, identifier_field_ids=held.identifier_field_ids)


def as_current(
    table: PyIcebergTable, anew: Schema
) -> tuple[Schema, tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Return a schema with a number of its own, what makes it the table's, and on which condition.

    The condition: nobody has given the table other columns, or numbers, meanwhile. Nothing where it has the schema.
    """
    from pyiceberg.table.update import (
        AddSchemaUpdate,
        AssertCurrentSchemaId,
        AssertLastAssignedFieldId,
        SetCurrentSchemaUpdate,
    )

    metadata = table.metadata
    if anew == table.schema():
        return table.schema(), (), ()
    anew = anew.model_copy(update={"schema_id": 1 + max(one.schema_id for one in metadata.schemas)})
    updates = AddSchemaUpdate(schema=anew), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})
    current = AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id})
    numbers = AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id})
    return anew, updates, (current, numbers)


def altered(before: Schema, now: Schema, paths: Collection[str]) -> str:
    """Return in words which columns files from before have under other names, or numbers, "" if none.

    before: as the last commit of the output left them. paths: of the columns of rows that come, or are read.
    """
    found = list[str]()
    for number in sorted(before.field_ids):
        path, one = before.find_column_name(number) or "", before.find_field(number)
        if number not in now.field_ids:
            found += [f"{path!r} (column {number}) was dropped"] if path in paths else []
        elif (name := now.find_field(number).name) != one.name:
            found.append(f"{path!r} (column {number}) is called {name!r} now")
    return "; ".join(found)


def check_unaltered(look: IcebergLook, output: OutputId, columns: pa.Schema) -> None:
    """Raise `IcebergColumnsAltered` where others have renamed or dropped columns since the output's last commit.

    columns: of rows that come, or are read. It is not noticed once the snapshot of that commit has expired.
    """
    if look.table is None or not look.standing.snapshot:
        return
    snapshot, schemas = look.table.snapshot_by_id(int(look.standing.snapshot)), look.table.schemas()
    if snapshot is None or snapshot.schema_id not in schemas:
        return
    now = look.table.schema()
    if detail := altered(schemas[snapshot.schema_id], now, fresh_ids(columns).keys()):
        about = {"held": listed(kinds(columns_of(now))), "given": listed(kinds(columns))}
        raise IcebergColumnsAltered(table=".".join(look.table.name()), output=str(output), detail=detail, **about)


def _said(anew: Sequence[Any], held: Sequence[Any]) -> list[Any]:
    """Return fields with the comments that a table has of them, also within."""
    known = {one.field_id: one for one in held}
    return [_said_of(one, known[one.field_id]) if one.field_id in known else one for one in anew]


def _said_of(one: Any, known: Any) -> Any:
    return one.model_copy(update={"doc": known.doc, "field_type": _said_within(one.field_type, known.field_type)})


def _said_within(anew: Any, held: Any) -> Any:
    if anew.is_struct:
        return anew.model_copy(update={"fields": tuple(_said(anew.fields, held.fields))})
    for name in ("element_type", "value_type"):
        if hasattr(anew, name):
            return anew.model_copy(update={name: _said_within(getattr(anew, name), getattr(held, name))})
    return anew
