"""What a writer's schema says becomes what the table's says: columns by name, each without loss.

Definition: `widens(a, b)` iff casting from `a` to `b` keeps every value, or fails on one that it cannot keep (a
timestamp finer than the unit). `nearest_type(a)` is a type `b` that Spark has a name for and that `a` widens to, the
narrowest. A column fits iff its type widens to the one asked for; inside a struct members are found by name, too. One
that is missing is its default, or null.

Invariant: a message whose schema does not fit is bad, as a whole, and so is one with a null where there must be none;
no value is changed.

>>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.int32()), widens(pa.int64(), pa.float64())
(True, False, False)
>>> nearest_type(pa.list_(pa.uint32()), "x")
ListType(list<item: int64>)
>>> wanted = pa.schema([("n", pa.int64()), ("new", pa.string())])
>>> misfit(pa.schema([("n", pa.int32())]), wanted), misfit(pa.schema([("n", pa.string())]), wanted)
('', 'column n: string was written, int64 is declared')
>>> rows, wrong = fitted({"n": pa.array([1, 2], pa.int32())}, 2, wanted)
>>> rows.to_pylist(), wrong
([{'n': 1, 'new': None}, {'n': 2, 'new': None}], {})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from tidegauge.errors.sources import UnsupportedType
from tidegauge.sources.formats.convert import cast_each, converted

__all__ = ["fitted", "misfit", "nearest_type", "widens"]

_EXACT: Final[dict[Any, int]] = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}
"""How many bits of an integer a floating type holds exactly."""
_UNSIGNED: Final[dict[Any, Any]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def widens(found: Any, wanted: Any) -> bool:
    """Whether every value of `found` is one of `wanted`, or is refused by the cast."""
    if found == wanted or types.is_null(found):
        return True
    if types.is_dictionary(found):
        return widens(found.value_type, wanted)
    if types.is_integer(found):
        return _integer_widens(found, wanted)
    if found in _EXACT:
        return wanted in _EXACT and _EXACT[wanted] >= _EXACT[found]
    if _is_text(found):
        return bool(types.is_string(wanted))
    if _is_bytes(found):
        return bool(types.is_binary(wanted))
    if types.is_timestamp(found):
        return bool(types.is_timestamp(wanted)) and (wanted.tz is not None or found.tz is None)
    if types.is_date(found):
        return bool(types.is_date(wanted))
    if types.is_decimal(found):
        return bool(types.is_decimal(wanted)) and (
            wanted.scale >= found.scale and wanted.precision - wanted.scale >= found.precision - found.scale
        )
    if _is_list(found):
        return bool(types.is_list(wanted)) and widens(found.value_type, wanted.value_type)
    if types.is_map(found):
        return bool(types.is_map(wanted)) and (
            widens(found.key_type, wanted.key_type) and widens(found.item_type, wanted.item_type)
        )
    if types.is_struct(found) and types.is_struct(wanted):
        inner = {field.name: field.type for field in found}
        return all(widens(inner[field.name], field.type) for field in wanted if field.name in inner)
    return False


def _integer_widens(found: Any, wanted: Any) -> bool:
    signed = types.is_signed_integer(found)
    bits = found.bit_width - signed
    if types.is_integer(wanted):
        room = wanted.bit_width - types.is_signed_integer(wanted)
        return bool(room >= bits and (types.is_signed_integer(wanted) or not signed))
    if types.is_decimal(wanted):
        return bool(10 ** (wanted.precision - wanted.scale) >= 2**bits + signed)
    return wanted in _EXACT and _EXACT[wanted] >= bits


def nearest_type(found: Any, column: str) -> Any:
    """Return the narrowest type of Spark's that holds what `found` holds. Raises `UnsupportedType`."""
    if types.is_dictionary(found):
        return nearest_type(found.value_type, column)
    if found in _UNSIGNED:
        return _UNSIGNED[found]
    if types.is_float16(found):
        return pa.float32()
    if _is_text(found) or types.is_null(found):
        return pa.string()
    if _is_bytes(found):
        return pa.binary()
    if types.is_timestamp(found):
        return pa.timestamp("us", None if found.tz is None else "UTC")
    if types.is_date(found):
        return pa.date32()
    if types.is_decimal(found) and 0 <= found.scale <= found.precision <= 38:
        return pa.decimal128(found.precision, found.scale)
    if _is_list(found):
        return pa.list_(nearest_type(found.value_type, f"{column}[]"))
    if types.is_map(found):
        return pa.map_(
            nearest_type(found.key_type, f"{column}.key"), nearest_type(found.item_type, f"{column}.value")
        )
    if types.is_struct(found):
        return pa.struct([(field.name, nearest_type(field.type, f"{column}.{field.name}")) for field in found])
    if types.is_boolean(found) or types.is_signed_integer(found) or types.is_floating(found):
        return found
    raise UnsupportedType(column=column, type=str(found))


def _is_text(of: Any) -> bool:
    return bool(types.is_string(of) or types.is_large_string(of) or types.is_string_view(of))


def _is_bytes(of: Any) -> bool:
    return bool(
        types.is_binary(of) or types.is_large_binary(of) or types.is_fixed_size_binary(of) or types.is_binary_view(of)
    )


def _is_list(of: Any) -> bool:
    return bool(types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of))


def misfit(written: pa.Schema, wanted: pa.Schema) -> str:
    """Say which column of a writer's schema does not fit; nothing when all do."""
    for column in wanted:
        i = written.get_field_index(column.name)
        if i >= 0 and not widens(written.field(i).type, column.type):
            found = written.field(i).type
            return f"column {column.name}: {found} was written, {column.type} is declared"
    return ""


def fitted(
    found: Mapping[str, Any], count: int, wanted: pa.Schema, *, defaults: Mapping[str, Any] | None = None
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return arrays as rows of `wanted`, and the faults of those that are no such row.

    defaults: scalars for columns that are missing.
    """
    arrays: list[Any] = []
    wrong: dict[int, str] = {}
    for column in wanted:
        if column.name in found:
            array, bad = converted(found[column.name], column.type, cast_each)
        elif defaults and column.name in defaults:
            array, bad = converted(pa.repeat(defaults[column.name], count), column.type, cast_each)
        else:
            array, bad = pa.nulls(count, column.type), np.zeros(count, np.bool_)
        problem = f"column {column.name}: a value that is no {column.type}"
        if not column.nullable and array.null_count and not bad.any():
            bad, problem = array.is_null().to_numpy(zero_copy_only=False), f"column {column.name}: null, and NOT NULL"
        for i in np.flatnonzero(bad).tolist():
            wrong.setdefault(i, problem)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=wanted), wrong
