"""The columns of a table of Iceberg in a catalog, as the rows of an output have them; and what it has that rows lack.

Invariant: a table without an `unfit` feature holds whatever rows of `columns_of` its schema hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.iceberg import IcebergTableUnfit
from tidegauge.sinks.columns import stored
from tidegauge.sinks.iceberg.fields import fresh_ids, widened

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as PyIcebergTable

__all__ = ["check_fit", "columns_of", "ids_in"]

_FORMAT: Final = 2
_PLAIN: Final = frozenset(
    {"boolean", "int", "long", "float", "double", "string", "binary", "date", "timestamp", "timestamptz"}
)


def columns_of(schema: Schema) -> pa.Schema:
    """Return the columns of a table. Raises `UnsupportedColumn` for those that rows cannot have."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return widened(stored(schema_to_pyarrow(schema)))


def ids_in(schema: Schema, columns: pa.Schema) -> dict[str, int]:
    """Return the numbers of columns that a table has."""
    return {path: schema.find_field(path).field_id for path in fresh_ids(columns)}


def check_fit(table: PyIcebergTable) -> None:
    """Raise `IcebergTableUnfit` for a table with what commits of our files cannot honour."""
    feature = _unfit(table)
    if feature is not None:
        raise IcebergTableUnfit(table=".".join(table.name()), feature=feature)


def _unfit(table: PyIcebergTable) -> str | None:
    metadata, schema = table.metadata, table.schema()
    if metadata.format_version != _FORMAT:
        return f"the format version {metadata.format_version}, not {_FORMAT},"
    for one in schema.fields:
        if one.required:
            return f"the column {one.name!r}, which must not be null"
    try:
        columns_of(schema)
    except TidegaugeError as error:
        return f"a column of another kind ({error.summary})"
    strange = next((text for one in schema.fields for text in _strange(one.field_type)), None)
    return None if strange is None else f"a column of the type {strange}"


def _strange(kind: Any) -> list[str]:
    """Return what within a type rows do not have: of the same Arrow type, but another one to Iceberg."""
    if kind.is_struct:
        return [text for one in kind.fields for text in _within(one.field_type, required=one.required)]
    if hasattr(kind, "element_type"):
        return _within(kind.element_type, required=kind.element_required)
    if hasattr(kind, "value_type"):
        return [*_within(kind.key_type), *_within(kind.value_type, required=kind.value_required)]
    return [] if str(kind) in _PLAIN or str(kind).startswith("decimal") else [str(kind)]


def _within(kind: Any, *, required: bool = False) -> list[str]:
    return [f"{kind}, required within another"] if required else _strange(kind)
