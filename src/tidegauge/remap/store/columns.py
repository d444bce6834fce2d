"""Arrow schemas as JSON that people can read, one `[name, type, nullable]` for each column.

Invariant: `decode_schema(encode_schema(s))` equals `s`, for every schema of the types that a source can have;
metadata is not part of a schema here. A flat type is its Arrow name; a nested type is an object, so nothing has to be
parsed and a field may have any name.

>>> text = encode_schema(pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))]))
>>> text
'[["id", "int64", true], ["tags", {"list": ["item", "string", true]}, true]]'
>>> decode_schema(text)
id: int64
tags: list<item: string>
  child 0, item: string
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.store import UnstorableType

__all__ = ["all_streams", "decode_schema", "differences", "encode_schema"]

_FLAT: Final[dict[str, Any]] = {
    str(kind): kind
    for kind in (
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
    )
}
_TIMESTAMP: Final = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=(.+))?\]")
_DECIMAL: Final = re.compile(r"decimal128\((\d+), (-?\d+)\)")


def encode_schema(schema: pa.Schema) -> str:
    """Return the schema as JSON text. Raises `UnstorableType` for a type that a source cannot have."""
    return json.dumps([_encode_field(field, field.name) for field in schema])


def decode_schema(text: str) -> pa.Schema:
    """Return the schema that `encode_schema` wrote. Raises `UnstorableType` for a type of a newer version."""
    return pa.schema([_decode_field(field) for field in json.loads(text)])


def all_streams(before: pa.Schema, now: pa.Schema) -> pa.Schema:
    """Return the columns of all streams that a source has or had, where each stream is a column.

    >>> all_streams(pa.schema([("a", pa.int8())]), pa.schema([("b", pa.int8())])).names
    ['a', 'b']
    """
    kept = [now.field(one.name) if one.name in now.names else one for one in before]
    return pa.schema([*kept, *(one for one in now if one.name not in before.names)])


def differences(before: pa.Schema, after: pa.Schema) -> list[str]:
    """Return what differs between two schemas, for people, column by column; empty when nothing does.

    >>> differences(pa.schema([("id", pa.int32())]), pa.schema([("id", pa.int64()), ("user", pa.string())]))
    ['id: int32 -> int64', 'user: new']
    """
    found = []
    for name in dict.fromkeys([*before.names, *after.names]):
        old = [_show(field) for field in before if field.name == name]
        new = [_show(field) for field in after if field.name == name]
        if not new:
            found.append(f"{name}: gone")
        elif not old:
            found.append(f"{name}: new")
        elif old != new:
            found.append(f"{name}: {', '.join(old)} -> {', '.join(new)}")
    if not found and before.names != after.names:
        found.append(f"the order of the columns: {', '.join(before.names)} -> {', '.join(after.names)}")
    return found


def _show(field: Any) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


def _encode_field(field: Any, column: str) -> list[Any]:
    return [field.name, _encode_type(field.type, column), field.nullable]


def _encode_type(kind: Any, column: str) -> Any:
    name = str(kind)
    if name in _FLAT or _TIMESTAMP.fullmatch(name) or _DECIMAL.fullmatch(name):
        return name
    if pa.types.is_list(kind):
        return {"list": _encode_field(kind.value_field, column)}
    if pa.types.is_struct(kind):
        return {"struct": [_encode_field(kind.field(i), column) for i in range(kind.num_fields)]}
    if pa.types.is_map(kind):
        sides = [_encode_field(kind.key_field, column), _encode_field(kind.item_field, column)]
        return {"map": sides, "sorted": kind.keys_sorted}
    raise UnstorableType(column=column, type=name)


def _decode_field(data: list[Any]) -> Any:
    name, kind, nullable = data
    return pa.field(name, _decode_type(kind, name), nullable=nullable)


def _decode_type(data: Any, column: str) -> Any:
    if isinstance(data, dict):
        if "list" in data:
            return pa.list_(_decode_field(data["list"]))
        if "struct" in data:
            return pa.struct([_decode_field(field) for field in data["struct"]])
        if "map" in data:
            key, item = data["map"]
            return pa.map_(_decode_field(key), _decode_field(item), keys_sorted=bool(data["sorted"]))
    elif data in _FLAT:
        return _FLAT[data]
    elif found := _TIMESTAMP.fullmatch(data):
        return pa.timestamp(found[1], tz=found[2])
    elif found := _DECIMAL.fullmatch(data):
        return pa.decimal128(int(found[1]), int(found[2]))
    raise UnstorableType(column=column, type=str(data))
