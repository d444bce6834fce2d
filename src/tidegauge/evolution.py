"""What becomes of a table's columns when rows with others come: a pure decision, the same for every sink.

    the rows have            strict     add        evolve
    one more                 refused    added      added
    one less                 refused    refused    null in these rows
    one of a wider type      refused    refused    widened, where the sink can; else refused
    a field more within      refused    added      added
    a field less within      refused    refused    null in these rows
    one of another type      refused    refused    refused

A field within is one of a struct, also of one in a list or among the values of a map, where the sink can add such.
Columns are told by their names. A new one comes last, behind `_epoch`, so no column changes its place. Upper and
lower case are one name to Delta and Spark, so `ID` beside `id` is refused, whatever the sink.

Invariant: a column of the table never goes and keeps its name and its values; rows of before have null in a column
that is new.

>>> table = {"id": "int", "note": "text"}
>>> evolved(table, {"id": "int", "note": "text", "at": "date"}, "add")
Evolved(added=('at',), widened=(), absent=(), within={}, refused='')
>>> evolved(table, {"id": "int", "at": "date"}, "evolve")
Evolved(added=('at',), widened=(), absent=('note',), within={}, refused='')
>>> evolved(table, {"id": "int", "at": "date"}, "add").refused
"the rows have no column 'note' (text)"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.base import nearest

__all__ = [
    "EVOLUTIONS",
    "Evolution",
    "Evolved",
    "evolved",
    "filled",
    "joined",
    "kinds",
    "listed",
    "never",
    "wider",
]

Evolution: TypeAlias = Literal["strict", "add", "evolve"]
EVOLUTIONS: Final[tuple[Evolution, ...]] = ("strict", "add", "evolve")

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


@dataclass(frozen=True, slots=True)
class Evolved:
    """What becomes of a table: by name, its new columns, those that get a wider type, and those that the rows lack.

    within: columns whose fields within are others in the rows, with the type that has those of both. refused: why
    nothing does, in words; "" if the table takes the rows.
    """

    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    within: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    refused: str = ""


def never(_before: Any, _after: Any) -> bool:
    """Say that no type is widened to another."""
    return False


def evolved(
    table: Mapping[str, Any],
    rows: Mapping[str, Any],
    how: Evolution,
    *,
    widens: Callable[[Any, Any], bool] = never,
    narrow: str = "",
    nests: bool = False,
) -> Evolved:
    """Return what becomes of a table with these columns, each with its type, when rows with those come.

    widens: whether a column of one type can be made one of another. narrow: why not, for people. nests: whether a
    column can get fields within.
    """
    found = list[str]()
    added = tuple(name for name in rows if name not in table)
    absent = tuple(name for name in table if name not in rows)
    changed = [name for name in rows if name in table and table[name] != rows[name]]
    widened = tuple(name for name in changed if how == "evolve" and widens(table[name], rows[name]))
    inner = {name: nested(table[name], rows[name]) for name in changed if nests and how != "strict"}
    within = {
        name: every
        for name, (every, lacking) in inner.items()
        if every is not None and (how == "evolve" or not lacking)
    }
    if how != "evolve":
        found += [f"the rows have no column {name!r} ({table[name]})" for name in absent]
    known = {name.lower(): name for name in table}
    for name in added:
        if (other := known.get(name.lower())) is not None:
            found.append(f"{name!r} ({rows[name]}) and {other!r} of the table are the same name, in another case")
        elif how == "strict":
            near = nearest(name, table)
            more = f", the nearest is {near!r}" if near else ""
            found.append(f"the table has no column {name!r} ({rows[name]}){more}")
    for name in changed:
        if name not in widened and name not in within:
            why = narrow if narrow and wider(table[name], rows[name]) else ""
            said = f"{name!r} is {table[name]} in the table and {rows[name]} in the rows"
            found.append(f"{said}; {why}" if why else said)
    return Evolved(refused="; ".join(found)) if found else Evolved(added, widened, absent, within)


def nested(before: Any, after: Any) -> tuple[Any, bool]:
    """Return the type with the fields within of two that differ in these alone, and whether the second lacks some.

    None where they differ in more.

    >>> nested(pa.struct([("x", pa.int64())]), pa.struct([("x", pa.int64()), ("y", pa.string())]))
    (StructType(struct<x: int64, y: string>), False)
    >>> nested(pa.struct([("x", pa.int64())]), pa.struct([("x", pa.string())]))
    (None, False)
    """
    every = _within(before, after) if isinstance(before, pa.DataType) and isinstance(after, pa.DataType) else None
    if every is None or not pt.is_nested(every) or not _part(after, every):
        return None, False
    return every, after != _within(after, every)


def _part(part: Any, whole: Any) -> bool:
    """Whether a type is another one without some of its fields within, in any order."""
    if part == whole:
        return True
    if pt.is_struct(part) and pt.is_struct(whole):
        fields = {one.name: one.type for one in whole}
        return all(one.name in fields and _part(one.type, fields[one.name]) for one in part)
    if pt.is_list(part) and pt.is_list(whole):
        return _part(part.value_type, whole.value_type)
    if pt.is_map(part) and pt.is_map(whole):
        return bool(part.key_type == whole.key_type) and _part(part.item_type, whole.item_type)
    return False


def wider(before: Any, after: Any) -> bool:
    """Whether every value of one stored type is one of another.

    >>> wider(pa.int32(), pa.int64()), wider(pa.int64(), pa.int32()), wider(pa.decimal128(5, 2), pa.decimal128(9, 2))
    (True, False, True)
    """
    if before in _INTEGERS and after in _INTEGERS:
        return _INTEGERS.index(before) < _INTEGERS.index(after)
    if isinstance(before, pa.DataType) and pt.is_decimal(before) and pt.is_decimal(after):
        return bool(before.scale == after.scale and before.precision < after.precision)
    return bool(before == pa.float32() and after == pa.float64())


def joined(known: pa.Schema, found: pa.Schema, *, taken: Collection[str] = ()) -> pa.Schema:
    """Return columns with those that others have besides, last, also within structs; a known one keeps its type.

    taken: names in lower case that no new column may have. One that differs from another in its case alone is none.

    >>> known = pa.schema([("id", pa.int64()), ("at", pa.struct([("x", pa.int64())]))])
    >>> found = pa.schema([("ID", pa.string()), ("at", pa.struct([("y", pa.int64())])), ("note", pa.string())])
    >>> joined(known, found)
    id: int64
    at: struct<x: int64, y: int64>
      child 0, x: int64
      child 1, y: int64
    note: string
    """
    return pa.schema(_fields(known, found, taken))


def _fields(known: Iterable[pa.Field], found: Iterable[pa.Field], taken: Collection[str]) -> list[pa.Field]:
    fields = {field.name: field for field in known}
    names = {name.lower() for name in fields}.union(taken)
    for field in found:
        if field.name in fields:
            before = fields[field.name]
            fields[field.name] = before.with_type(_within(before.type, field.type))
        elif field.name.lower() not in names:
            fields[field.name] = pa.field(field.name, field.type)
            names.add(field.name.lower())
    return list(fields.values())


def _within(known: Any, found: Any) -> Any:
    if pt.is_struct(known) and pt.is_struct(found):
        return pa.struct(_fields(known, found, ()))
    if pt.is_list(known) and pt.is_list(found):
        item = known.value_field
        return pa.list_(item.with_type(_within(item.type, found.value_type)))
    if pt.is_map(known) and pt.is_map(found):
        item = known.item_field
        return pa.map_(known.key_field, item.with_type(_within(item.type, found.item_type)), known.keys_sorted)
    return known


def kinds(columns: pa.Schema) -> dict[str, Any]:
    """Return the types of columns by their names."""
    return {field.name: field.type for field in columns}


def listed(columns: Mapping[str, Any]) -> str:
    """Return columns with their types, for people."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def filled(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return rows with these columns, in this order: null in those that they lack, without any others."""
    if batch.schema.equals(columns):
        return batch
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
