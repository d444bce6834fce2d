"""The columns of a frame: those of the table, and `_diff` where changes are asked for.

Invariant: a frame has the columns that it was declared with, of the same types, or there is an error.

>>> view = View(0, [], pa.schema([("_epoch", pa.int64()), ("id", pa.int32())]))
>>> columns_of(view, "orders", changes=True).simpleString()
'struct<_epoch:bigint,_diff:bigint,id:int>'
>>> check_columns(view, "orders", StructType().add("id", "string"), changes=False)
Traceback (most recent call last):
tidegauge.errors.readers.ColumnsUnlike: TG-0668: the query reads the column 'id' of output 'orders' as string, and ...
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from tidegauge.engine.arrowtypes import spark_schema
from tidegauge.errors.readers import ColumnsUnlike
from tidegauge.looking.changes import DIFF
from tidegauge.looking.view import View
from tidegauge.sinks.columns import EPOCH

__all__ = ["arrow_columns", "check_columns", "columns_of"]


def arrow_columns(schema: StructType) -> pa.Schema:
    """Return the columns that Spark wants of a task, in Arrow's types."""
    from pyspark.sql.pandas.types import to_arrow_schema

    zoned = "timezone" in signature(to_arrow_schema).parameters  # before Spark 4.2 there is no other than UTC
    in_utc: dict[str, Any] = {"timezone": "UTC"} if zoned else {}
    return to_arrow_schema(schema, **in_utc)


def columns_of(view: View, output: str, *, changes: bool) -> StructType:
    """Return the columns that a frame has. Raises `ColumnsUnlike` for a table with a `_diff` of its own."""
    found = spark_schema(view.schema)
    if not changes:
        return found
    if DIFF in found.names:
        raise ColumnsUnlike(output=output, column=DIFF, wanted="what changes=true adds", found="one of its own")
    others = [field for field in found.fields if field.name != EPOCH]
    return StructType([found[EPOCH], StructField(DIFF, LongType()), *others])  # as `subscribe` has them


def check_columns(view: View, output: str, schema: StructType, *, changes: bool) -> None:
    """Raise `ColumnsUnlike` unless a table has all columns that a frame is to have, of the same types."""
    known = {field.name: field.dataType.simpleString() for field in columns_of(view, output, changes=changes)}
    for field in schema:
        wanted, found = field.dataType.simpleString(), known.get(field.name, "none of this name")
        if wanted != found:
            raise ColumnsUnlike(output=output, column=field.name, wanted=wanted, found=found)
