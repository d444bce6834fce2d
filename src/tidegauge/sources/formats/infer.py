r"""Columns that were found, not declared: in the first records of data, or in a message's schema.

Definition: values have the kinds long, double, boolean, string, list and struct; null is every kind. Two kinds agree
when they are equal, when they are long and double (giving double), or when their contents agree. Where values of one
column do not agree, the first kind stays, and the records with another are bad records. As in Spark, text that looks
like a time stays text. Every column may be null.

>>> print(infer_json(b'{"id": 1, "at": "2026-11-20"}\n{"id": 2.5, "tags": [null, "a"], "x": null}\n{"id'))
id: double
at: string
tags: list<item: string>
  child 0, item: string
x: string
>>> print(infer_text({"a": pa.array(["1", None]), "b": pa.array(["1", "x"])}))
a: int64
b: string

JSON, CSV, Parquet, Avro and Protobuf tell `id` from `ID`; Spark and tables do not. Names are alike when they differ
in case at most. Invariant: what `as_table` returns has no two names alike side by side, at any depth, and no type
without a name of Spark's.

>>> as_table(pa.schema([("id", pa.int64()), ("at", pa.struct([("x", pa.int8())]))]), "the data").names
['id', 'at']
>>> as_table(pa.schema([("at", pa.list_(pa.struct([("X", pa.int8()), ("x", pa.int8())])))]), "the data")
Traceback (most recent call last):
tidegauge.errors.formats.NamesAlike: TG-0846: the data has two columns whose names are alike, 'at.X' and 'at.x'
...
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.formats import NamesAlike
from tidegauge.sources.ddl import as_schema
from tidegauge.sources.formats.convert import from_text
from tidegauge.sources.formats.records import BOM

__all__ = ["as_table", "column_by_column", "infer_json", "infer_text", "told_by_json"]

MAX_DEPTH: Final = 32
_LONG: Final = range(-(2**63), 2**63)
_UNKNOWN: Final = pa.null()


def infer_json(head: bytes) -> pa.Schema | None:
    """Return the columns of the objects on the complete lines of `head`, or None. Other lines do not count."""
    columns = _kinds(head[: head.rfind(b"\n") + 1].removeprefix(BOM))
    known = {name: kind for name, found in columns.items() if (kind := _settled(found)) is not None}
    return pa.schema(list(known.items())) if known else None


def told_by_json(lines: bytes) -> pa.Schema:
    """Return the columns that values tell, of the objects on all lines: a null tells none, nor does an empty list.

    >>> told_by_json(b'{"x": null, "y": [], "z": {"a": null, "b": 1}}\\n{"z": {"c": "text"}}')
    z: struct<b: int64, c: string>
      child 0, b: int64
      child 1, c: string
    """
    told = {name: kind for name, found in _kinds(lines).items() if (kind := _told(found)) is not None}
    return pa.schema(list(told.items()))


def _kinds(lines: bytes) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for line in lines.split(b"\n"):
        try:
            value = json.loads(line)
            found = _kind(value, 0) if isinstance(value, dict) else pa.struct([])
        except (ValueError, RecursionError):
            continue
        for field in found:
            columns[field.name] = _agreed(columns.get(field.name, _UNKNOWN), field.type)
    return columns


def infer_text(columns: Mapping[str, Any]) -> pa.Schema:
    """Return the narrowest of long, double, boolean and string that holds every text of a column."""
    return pa.schema([(name, _narrowest(values)) for name, values in columns.items()])


def _narrowest(values: Any) -> Any:
    if values.null_count == len(values):
        return pa.string()
    for kind in (pa.int64(), pa.float64(), pa.bool_()):
        if not from_text(values, kind)[1].any():
            return kind
    return pa.string()


def _kind(value: Any, depth: int) -> Any:
    """Return the type of a JSON value, `null` where nothing is known; `ValueError` when it is nested too deeply."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if value in _LONG else pa.float64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, list):
        item = _UNKNOWN
        for inner in value:
            item = _agreed(item, _kind(inner, depth + 1))
        return pa.list_(item)
    if isinstance(value, dict):
        return pa.struct([(name, _kind(inner, depth + 1)) for name, inner in value.items()])
    return _UNKNOWN


def _agreed(first: Any, second: Any) -> Any:
    """Return the type that holds values of both, or the first when there is none."""
    if first == second or second == _UNKNOWN:
        return first
    if first == _UNKNOWN:
        return second
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(_agreed(first.value_type, second.value_type))
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        fields = {field.name: field.type for field in first}
        for field in second:
            fields[field.name] = _agreed(fields.get(field.name, _UNKNOWN), field.type)
        return pa.struct(list(fields.items()))
    return first


def _settled(found: Any) -> Any:
    """Return a type with strings where only nulls were seen; None for an object that never had a member."""
    if found == _UNKNOWN:
        return pa.string()
    if pa.types.is_list(found):
        item = _settled(found.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(found):
        known = {field.name: kind for field in found if (kind := _settled(field.type)) is not None}
        return pa.struct(list(known.items())) if known else None
    return found


def _told(found: Any) -> Any:
    """Return a type without what only nulls were seen of, None where that is all of it."""
    if pa.types.is_list(found):
        item = _told(found.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(found):
        told = {field.name: kind for field in found if (kind := _told(field.type)) is not None}
        return pa.struct(list(told.items())) if told else None
    return None if found == _UNKNOWN else found


def column_by_column(found: pa.Schema, where: str) -> pa.Schema:
    """Return those columns, as a table has them, that one can have; see `as_table`."""
    fit: list[pa.Field] = []
    for field in found:
        with suppress(TidegaugeError):
            fit += as_table(pa.schema([field]), where)
    return pa.schema(fit)


def as_table(found: pa.Schema, where: str) -> pa.Schema:
    """Return the columns as a table has them; `where` names in what they were found.

    Raises `NamesAlike`, and as `as_schema` does.
    """
    _check(found, where, "")
    columns = as_schema(found)
    if columns is None:
        raise AssertionError("a schema was given")
    return columns


def _check(fields: Iterable[Any], where: str, path: str) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        folded = field.name.lower()
        if folded in seen:
            raise NamesAlike(where=where, first=f"{path}{seen[folded]}", second=f"{path}{field.name}")
        seen[folded] = field.name
        _inside(field.type, where, f"{path}{field.name}.")


def _inside(of: Any, where: str, path: str) -> None:
    if pa.types.is_struct(of):
        _check(of, where, path)
    elif pa.types.is_map(of):
        _inside(of.item_type, where, path)
    elif pa.types.is_list(of):
        _inside(of.value_type, where, path)
