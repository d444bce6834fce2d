"""The columns of a table: the Arrow types that it can hold, and the form that it stores them in.

Arrow has several types for one kind of value; Parquet, Delta and Spark have one in common. `stored` maps each schema
to that form: strings and binaries of one layout, instants in microseconds as UTC, local times in microseconds without
a zone, lists of one layout, dictionaries decoded, every column nullable. It refuses what would lose information.

Invariant: `stored(stored(s)) == stored(s)`; two schemas that are stored alike are the same columns, in any order.

>>> stored(pa.schema([("at", pa.timestamp("ms", tz="Europe/Paris")), ("_epoch", pa.int64())])).field("at").type
TimestampType(timestamp[us, tz=UTC])
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge import reclock
from tidegauge.errors.base import nearest
from tidegauge.errors.sinks import BatchDoesNotFit, EpochColumnMissing, InvalidColumnName, UnsupportedColumn

__all__ = ["EPOCH", "differences", "fit", "rows_schema", "stored"]

EPOCH: Final = reclock.EPOCH.name

_FORBIDDEN: Final = frozenset(" ,;{}()\n\t=")
_WIDER: Final = {pa.uint8(): "int16", pa.uint16(): "int32", pa.uint32(): "int64", pa.uint64(): "decimal128(20, 0)"}
_SAME: Final = frozenset(
    [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()]
)


@lru_cache(maxsize=1024)
def rows_schema(schema: pa.Schema) -> pa.Schema:
    """Return the stored form of an output's rows, which must have `_epoch`, a column of int64."""
    names = schema.names
    if names.count(EPOCH) != 1 or schema.field(EPOCH).type != pa.int64():
        raise EpochColumnMissing(known=[f"{field.name} {field.type}" for field in schema])
    return stored(schema)


def stored(schema: pa.Schema) -> pa.Schema:
    """Return the schema in the form that tables hold it in.

    Raises `UnsupportedColumn` for a type, `InvalidColumnName` for a name, that a table cannot hold.
    """
    _check_names(schema.names, within="")
    return pa.schema([pa.field(field.name, _stored(field.type, field.name)) for field in schema])


def differences(table: pa.Schema, rows: pa.Schema) -> str:
    """Say how the columns of `rows` differ from those of `table`, both in stored form; "" when they do not.

    >>> differences(pa.schema([("amount", pa.int64())]), pa.schema([("amout", pa.int64())]))
    "the rows have no column 'amount' (int64); the table has no column 'amout' (int64), the nearest is 'amount'"
    """
    theirs, ours = ({field.name: field.type for field in schema} for schema in (table, rows))
    found = [f"the rows have no column {name!r} ({theirs[name]})" for name in theirs if name not in ours]
    for name, kind in ours.items():
        if name not in theirs:
            near = nearest(name, theirs)
            found.append(
                f"the table has no column {name!r} ({kind})" + (f", the nearest is {near!r}" if near else "")
            )
        elif theirs[name] != kind:
            found.append(f"{name!r} is {theirs[name]} in the table and {kind} in the rows")
    return "; ".join(found)


def fit(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return the batch in stored form with exactly these columns; no copy where it has it already."""
    if batch.schema.equals(columns):
        return batch
    detail = differences(columns, stored(batch.schema))
    if detail:
        raise BatchDoesNotFit(detail=detail)
    try:
        arrays = [batch.column(field.name).cast(field.type) for field in columns]
    except pa.ArrowInvalid as error:  # an instant that has no microseconds, for one
        raise BatchDoesNotFit(detail=str(error)) from error
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _check_names(names: Iterable[str], *, within: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        full = f"{within}{name}"
        if not name:
            raise InvalidColumnName(column=full, reason="it is empty")
        bad = sorted(_FORBIDDEN.intersection(name))
        if bad:
            raise InvalidColumnName(column=full, reason=f"it holds {bad[0]!r}")
        if name.lower() in seen:
            raise InvalidColumnName(
                column=full, reason=f"{seen[name.lower()]!r} is there too, and upper and lower case are the same name"
            )
        seen[name.lower()] = name


def _stored(kind: Any, path: str) -> Any:
    """Return the stored form of one type. The order of the questions follows Arrow's families of types."""
    if kind in _SAME:
        return kind
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_date(kind):
        return pa.date32()
    if pt.is_timestamp(kind) and kind.unit != "ns":
        return pa.timestamp("us", tz="UTC" if kind.tz is not None else None)
    if pt.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if pt.is_dictionary(kind):
        return _stored(kind.value_type, path)
    if pt.is_struct(kind) and kind.num_fields:
        fields = [kind.field(i) for i in range(kind.num_fields)]
        _check_names([field.name for field in fields], within=f"{path}.")
        return pa.struct([pa.field(field.name, _stored(field.type, f"{path}.{field.name}")) for field in fields])
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind) or _is_list_view(kind):
        return pa.list_(pa.field("element", _stored(kind.value_type, f"{path}.element")))
    if pt.is_map(kind):
        return pa.map_(_stored(kind.key_type, f"{path}.key"), _stored(kind.item_type, f"{path}.value"))
    raise UnsupportedColumn(column=path, type=str(kind), cast=_cast(kind))


def _is_list_view(kind: Any) -> bool:
    return bool(pt.is_list_view(kind) or pt.is_large_list_view(kind))


def _cast(kind: Any) -> str:
    """Return what to cast an unsupported type to."""
    if kind in _WIDER:
        return _WIDER[kind]
    if pt.is_timestamp(kind):
        return "timestamp[us]" if kind.tz is None else "timestamp[us, tz=UTC]"
    if pt.is_float16(kind):
        return "float"
    if pt.is_decimal(kind):
        return "decimal128 with a precision of at most 38 and a scale between 0 and the precision, or to string"
    if pt.is_duration(kind):
        return f"int64, the number of {kind.unit}"
    if isinstance(kind, pa.BaseExtensionType):
        return f"its storage type, {kind.storage_type}"
    if pt.is_struct(kind):
        return "a struct with at least one field"
    return "string"
