"""The columns of a Delta table, and whether rows may be written to it as it is.

Invariant: what is written to a table has its columns, and the table uses nothing that this cannot honour.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
from deltalake import Schema

from tidegauge.errors.sinks import TableSchemaChanged, UnsupportedTable
from tidegauge.sinks.columns import differences, stored
from tidegauge.sinks.deltahead import DeltaHead, unsupported
from tidegauge.sinks.protocol import OutputId

__all__ = ["check_columns", "columns_of"]


@lru_cache(maxsize=64)
def columns_of(schema: str) -> pa.Schema:
    """Return columns that are given in Delta's JSON."""
    return stored(pa.schema(Schema.from_json(schema).to_arrow()))


def check_columns(folder: str, output: OutputId, head: DeltaHead, columns: pa.Schema) -> None:
    """Raise `UnsupportedTable`, or `TableSchemaChanged` for rows with other columns than the table."""
    feature = unsupported(head)
    if feature is not None:
        raise UnsupportedTable(table=folder, feature=feature)
    detail = differences(columns_of(head.schema), columns)
    if detail:
        raise TableSchemaChanged(table=folder, output=str(output), detail=detail)
