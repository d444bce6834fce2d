"""Columns as tables of Iceberg have them: without small integers, and each with the number that files name it by.

Readers find a column in a file by its number, whatever it is called. A catalog numbers the columns of a new table in
one order, which all of them keep to: those of a level first, and then those within each of them. So tasks know the
numbers of a table that does not exist yet. Those of one that is there may be others; the files say which they have.

Invariant: `numbered(schema, fresh_ids(schema))` has the numbers that a catalog gives a new table of these columns.

>>> at = pa.struct([("x", pa.int16())])
>>> schema = pa.schema([("tags", pa.list_(pa.string())), ("at", at), ("_epoch", pa.int64())])
>>> columns = widened(schema)
>>> fresh_ids(columns)
{'tags': 1, 'at': 2, '_epoch': 3, 'tags.element': 4, 'at.x': 5}
>>> numbered(columns, fresh_ids(columns)).field("_epoch").metadata
{b'PARQUET:field_id': b'3'}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.iceberg import IcebergColumnReserved
from tidegauge.errors.sinks import InvalidColumnName

__all__ = ["check_names", "check_paths", "fresh_ids", "leaves", "numbered", "renumbered", "widened"]

_ID: Final = b"PARQUET:field_id"
_RESERVED: Final = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
"""Of Iceberg's specification: columns that readers add."""
_SMALL: Final = frozenset({pa.int8(), pa.int16()})


def widened(schema: pa.Schema) -> pa.Schema:
    """Return the stored form of columns with integers of at least 32 bits: Iceberg has no smaller ones."""
    return pa.schema([pa.field(one.name, _widened(one.type)) for one in schema])


def check_names(schema: pa.Schema) -> None:
    """Raise `IcebergColumnReserved` for a column whose name is Iceberg's own."""
    for name in schema.names:
        if name.lower() in _RESERVED:
            raise IcebergColumnReserved(column=name)


def check_paths(schema: pa.Schema) -> None:
    """Raise `InvalidColumnName` where two columns have one path: `a.b`, and `b` within `a`.

    >>> check_paths(pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))]))
    Traceback (most recent call last):
    tidegauge.errors.sinks.InvalidColumnName: TG-0403: the column name 'a.b' is not usable in a table: a field ...
    """
    seen = set[str]()
    level = [(one.name, one.type) for one in schema]
    while level:
        for path, _ in level:
            if path in seen:
                raise InvalidColumnName(column=path, reason="a field within another column has the same path")
            seen.add(path)
        level = [found for path, kind in level for found in _within(path, kind)]


def fresh_ids(schema: pa.Schema) -> dict[str, int]:
    """Return the numbers that a new table of these columns has, by their paths."""
    found: dict[str, int] = {}

    def number(fields: Iterable[tuple[str, Any]]) -> None:
        level = list(fields)
        for path, _ in level:
            found[path] = len(found) + 1
        for path, kind in level:
            number(_within(path, kind))

    number((one.name, one.type) for one in schema)
    return found


def renumbered(columns: pa.Schema, held: pa.Schema, ids: Mapping[str, int], last: int) -> dict[str, int]:
    """Return the numbers of columns that take the place of others. Those of the same name and type keep theirs.

    ids: the numbers of those that are there. last: the last one that was ever given.
    """
    fresh = fresh_ids(columns)
    same = {one.name for one in columns if one.name in held.names and held.field(one.name).type == one.type}
    found = {path: ids[path] for path in fresh if _top(path, columns) in same}
    return found | {path: last + n for n, path in enumerate((one for one in fresh if one not in found), 1)}


def numbered(schema: pa.Schema, ids: Mapping[str, int]) -> pa.Schema:
    """Return columns with their numbers, as Parquet files are to have them."""
    return pa.schema([_numbered(one.name, one.type, one.name, ids) for one in schema])


def leaves(schema: pa.Schema) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the type of each column of single values that is in no list and no map."""
    yield from _leaves(schema, ())


def _leaves(fields: Iterable[Any], within: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for one in fields:
        path = (*within, one.name)
        if pt.is_struct(one.type):
            yield from _leaves((one.type.field(n) for n in range(one.type.num_fields)), path)
        elif not pt.is_nested(one.type):
            yield path, one.type


def _top(path: str, columns: pa.Schema) -> str:
    """Return the column that a path is in. Names may have dots."""
    return next(str(name) for name in columns.names if path == name or path.startswith(f"{name}."))


def _within(path: str, kind: Any) -> Iterator[tuple[str, Any]]:
    if pt.is_struct(kind):
        yield from ((f"{path}.{kind.field(n).name}", kind.field(n).type) for n in range(kind.num_fields))
    elif pt.is_map(kind):
        yield f"{path}.key", kind.key_type
        yield f"{path}.value", kind.item_type
    elif pt.is_list(kind):
        yield f"{path}.element", kind.value_type


def _widened(kind: Any) -> Any:
    if kind in _SMALL:
        return pa.int32()
    if pt.is_struct(kind):
        fields = [kind.field(n) for n in range(kind.num_fields)]
        return pa.struct([pa.field(one.name, _widened(one.type)) for one in fields])
    if pt.is_map(kind):
        return pa.map_(_widened(kind.key_type), _widened(kind.item_type))
    if pt.is_list(kind):
        return pa.list_(pa.field("element", _widened(kind.value_type)))
    return kind


def _numbered(name: str, kind: Any, path: str, ids: Mapping[str, int], *, nullable: bool = True) -> Any:
    if pt.is_struct(kind):
        fields = [kind.field(n).name for n in range(kind.num_fields)]
        kind = pa.struct([_numbered(one, kind.field(one).type, f"{path}.{one}", ids) for one in fields])
    elif pt.is_map(kind):
        key = _numbered("key", kind.key_type, f"{path}.key", ids, nullable=False)
        kind = pa.map_(key, _numbered("value", kind.item_type, f"{path}.value", ids))
    elif pt.is_list(kind):
        kind = pa.list_(_numbered("element", kind.value_type, f"{path}.element", ids))
    return pa.field(name, kind, nullable=nullable, metadata={_ID: str(ids[path]).encode()})
