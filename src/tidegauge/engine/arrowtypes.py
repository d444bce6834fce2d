"""Columns on both sides of the JVM: what Spark makes of an Arrow type, and what comes back.

Invariant: `carried(s)` is a fixed point: rows of `carried(s)` come back from Spark with the same types and values.
Instants have the time zone UTC on our side, whatever zone a session shows them in.

>>> import pyarrow as pa
>>> carried(pa.schema([("at", pa.timestamp("ns", "Europe/Oslo")), ("n", pa.uint32())]), where="orders")
at: timestamp[us, tz=UTC]
n: int64
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.engine import NoSparkType

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["arrow_schema", "carried", "relaxed", "spark_schema"]

_PLAIN: Final = (
    pt.is_boolean,
    pt.is_int8,
    pt.is_int16,
    pt.is_int32,
    pt.is_int64,
    pt.is_float32,
    pt.is_float64,
    pt.is_string,
    pt.is_binary,
    pt.is_date32,
    pt.is_decimal128,
)
_WIDENED: Final = (
    (pt.is_uint8, pa.int16()),
    (pt.is_uint16, pa.int32()),
    (pt.is_uint32, pa.int64()),
    (pt.is_uint64, pa.decimal128(20, 0)),
    (pt.is_float16, pa.float32()),
    (pt.is_large_string, pa.string()),
    (pt.is_string_view, pa.string()),
    (pt.is_large_binary, pa.binary()),
    (pt.is_fixed_size_binary, pa.binary()),
    (pt.is_binary_view, pa.binary()),
    (pt.is_date64, pa.date32()),
    (pt.is_duration, pa.duration("us")),
)


def _carried(kind: Any) -> Any:
    """Return the type as Spark has it, or None where it has none."""
    if any(same(kind) for same in _PLAIN):
        return kind
    for matches, wider in _WIDENED:
        if matches(kind):
            return wider
    if pt.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pt.is_dictionary(kind):
        return _carried(kind.value_type)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        inner = _carried(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pt.is_map(kind):
        key, item = _carried(kind.key_type), _carried(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if pt.is_struct(kind):
        fields = [(field.name, _carried(field.type)) for field in kind]
        return None if any(inner is None for _, inner in fields) else pa.struct(fields)
    return None


def carried(schema: pa.Schema, *, where: str) -> pa.Schema:
    """Return the columns after crossing to Spark, or raise `NoSparkType`, which names `where`."""
    fields = []
    for field in schema:
        kind = _carried(field.type)
        if kind is None:
            raise NoSparkType(column=field.name, where=where, type=str(field.type))
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def relaxed(kind: Any) -> Any:
    """Return the type with every nested field nullable."""
    if pt.is_list(kind):
        return pa.list_(relaxed(kind.value_type))
    if pt.is_map(kind):
        return pa.map_(relaxed(kind.key_type), relaxed(kind.item_type))
    if pt.is_struct(kind):
        return pa.struct([(field.name, relaxed(field.type)) for field in kind])
    return kind


def spark_schema(schema: pa.Schema) -> StructType:
    """Return Spark's columns for carried ones."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType, *, where: str) -> pa.Schema:
    """Return the columns that tasks get from Spark for these, all nullable, instants in UTC."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_type

    zoned = "timezone" in signature(to_arrow_type).parameters  # before Spark 4.2 there is no other than UTC
    in_utc: dict[str, Any] = {"timezone": "UTC"} if zoned else {}
    fields = []
    for field in schema:
        try:
            kind = to_arrow_type(field.dataType, **in_utc)
        except PySparkTypeError as error:
            kind = field.dataType.simpleString()
            raise NoSparkType(column=field.name, where=where, type=kind) from error
        fields.append(pa.field(field.name, relaxed(kind)))
    return pa.schema(fields)
