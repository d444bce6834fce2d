r"""Columns that were found, not declared: in data, or in a message's schema.

JSON, CSV, Parquet, Avro and Protobuf tell `id` from `ID`; Spark and tables do not. Definition: names are alike when
they differ in case at most. Invariant: what `as_table` returns has no two names alike side by side, at any depth, and
no type without a name of Spark's.

>>> as_table(pa.schema([("id", pa.int64()), ("at", pa.struct([("x", pa.int8())]))]), "the data").names
['id', 'at']
>>> as_table(pa.schema([("at", pa.list_(pa.struct([("X", pa.int8()), ("x", pa.int8())])))]), "the data")
Traceback (most recent call last):
tidegauge.errors.formats.NamesAlike: TG-0846: the data has two columns whose names are alike, 'at.X' and 'at.x'
...
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tidegauge.errors.formats import NamesAlike
from tidegauge.sources.ddl import as_schema

__all__ = ["as_table"]


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
