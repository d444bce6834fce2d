r"""An object of JSON rewritten with its columns alone, for those that Arrow cannot read directly.

Two things ask for it. Arrow reads no object as a map, so for columns with a map in them objects become lists of
entries. And Arrow reads a member to its end before it ignores it, so half a surrogate pair or 1e400 there would make
a bad record of a line whose columns are all well.

Invariant: the result has every member that is a column, as often as it was there, with its own digits and letters; so
Arrow's verdict on it is true of the line. A name that is there twice is left for Arrow to refuse, except the key of a
map, which is refused here.

>>> columns = pa.schema([("m", pa.map_(pa.string(), pa.int64())), ("n", pa.float64())])
>>> only_columns(b'{"m": {"a": 1, "b": "x"}, "n": 2.50, "more": ["\\ud800", 1e400]}', columns)
b'{"m":[{"key":"a","value":1},{"key":"b","value":"x"}],"n":2.50}'
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.sources.formats.convert import beyond

__all__ = ["may_be_spared", "only_columns", "too_big"]

_SPARED: Final = re.compile(rb"\\u[dD][89a-fA-F]|[eE]\+?[0-9]{3}")


class _Number(str):
    """A number, literally."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """The members of an object, those with equal names all of them."""


def may_be_spared(line: bytes) -> bool:
    """Whether a line has something that Arrow refuses even in a member that is no column: it says so of no other."""
    return _SPARED.search(line) is not None


def only_columns(line: bytes, columns: Iterable[pa.Field]) -> bytes:
    """Return the object on a line with only these columns, and with maps as lists of `{"key": ..., "value": ...}`.

    Raises `ValueError` when the line is not one object or is nested too deeply, when a key is twice in a map, and for
    a decimal in a map that must not be read.
    """
    try:
        return _object(_parsed(line), columns, "").encode()
    except RecursionError as error:
        raise ValueError("not valid JSON: nested too deeply") from error


def too_big(line: bytes, column: pa.Field) -> bool:
    """Whether a number on a line is infinite as the floating type that a column has for it, and does not say so."""
    try:
        found = [value for name, value in _parsed(line) if name == column.name]
        return any(_too_big(value, column.type) for value in found)
    except (ValueError, RecursionError):
        return True


def _parsed(line: bytes) -> _Members:
    try:
        value = json.loads(
            line.decode(), parse_float=_Number, parse_int=_Number, parse_constant=_Number, object_pairs_hook=_Members
        )
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from error
    if not isinstance(value, _Members):
        raise ValueError("not an object")  # noqa: TRY004 - wrong data, not a wrong call
    return value


def _object(members: _Members, columns: Iterable[pa.Field], path: str) -> str:
    types = {column.name: column.type for column in columns}
    kept = (
        f"{json.dumps(name)}:{_text(value, types[name], path + name)}" for name, value in members if name in types
    )
    return "{" + ",".join(kept) + "}"


def _text(value: Any, of: Any, path: str) -> str:
    """Write a value that has a type, or none where whatever it is will be refused."""
    if isinstance(value, _Members):
        if of is not None and pa.types.is_map(of):
            return _entries(value, of, path)
        if of is not None and pa.types.is_struct(of):
            return _object(value, of, f"{path}.")
        return "{" + ",".join(f"{json.dumps(name)}:{_text(inner, None, path)}" for name, inner in value) + "}"
    if isinstance(value, list):
        if of is not None and pa.types.is_map(of):
            raise ValueError(f"column {path}: expected an object, found an array")
        inner_type = of.value_type if of is not None and pa.types.is_list(of) else None
        return "[" + ",".join(_text(item, inner_type, f"{path}[]") for item in value) + "]"
    if of is not None and pa.types.is_decimal(of) and isinstance(value, str) and beyond(value):
        raise ValueError(f"column {path}: more digits after the point than a decimal has")
    return str(value) if isinstance(value, _Number) else json.dumps(value)


def _entries(members: _Members, of: Any, path: str) -> str:
    keys = [name for name, _ in members]
    if len(set(keys)) < len(keys):
        twice = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise ValueError(f"column {path}: the key {twice[:40]!r} is there twice")
    entries = (
        f'{{"key":{json.dumps(name)},"value":{_text(value, of.item_type, f"{path}.{name}")}}}'
        for name, value in members
    )
    return "[" + ",".join(entries) + "]"


def _too_big(value: Any, of: Any) -> bool:
    if pa.types.is_floating(of):
        return (
            isinstance(value, _Number) and value[-1].isdigit() and bool(np.isinf(of.to_pandas_dtype()(float(value))))
        )
    if isinstance(value, _Members):
        if pa.types.is_map(of):
            return any(_too_big(item, of.item_type) for _, item in value)
        types = {inner.name: inner.type for inner in of} if pa.types.is_struct(of) else {}
        return any(_too_big(item, types[name]) for name, item in value if name in types)
    return isinstance(value, list) and pa.types.is_list(of) and any(_too_big(item, of.value_type) for item in value)
