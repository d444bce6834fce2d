r"""Arrow reads no JSON object as a map; so for columns with a map in them, objects become lists of entries.

Invariant: the rewritten line has exactly the columns asked for, and Arrow reads it as their wire types or refuses it.

>>> columns = pa.schema([("m", pa.map_(pa.string(), pa.int64()))])
>>> entries_for_maps(b'{"m": {"a": 1, "b": "x"}, "n": 2}', columns)
b'{"m":[{"key":"a","value":1},{"key":"b","value":"x"}]}'
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from tidegauge.sources.formats.decimals import beyond

__all__ = ["entries_for_maps"]


def entries_for_maps(line: bytes, columns: pa.Schema) -> bytes:
    """Return the object on a line with only these columns and with maps as lists of `{"key": ..., "value": ...}`.

    Raises `ValueError` when the line is not one object, or is nested too deeply.
    """
    try:
        value = json.loads(line, parse_float=_decimal)
        if not isinstance(value, dict):
            raise ValueError("not an object")  # noqa: TRY004 - wrong data, not a wrong call
        kept = {column.name: _written(value[column.name], column.type) for column in columns if column.name in value}
        return json.dumps(kept, separators=(",", ":")).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"a number that is none: {text[:20]}") from error


def _written(value: Any, of: Any) -> Any:
    if isinstance(value, dict) and of is not None and pa.types.is_map(of):
        return [{"key": key, "value": _written(item, of.item_type)} for key, item in value.items()]
    if isinstance(value, dict) and of is not None and pa.types.is_struct(of):
        return {inner.name: _written(value[inner.name], inner.type) for inner in of if inner.name in value}
    if isinstance(value, list):
        inner_type = of.value_type if of is not None and pa.types.is_list(of) else None
        return [_written(item, inner_type) for item in value]
    if isinstance(value, dict):
        return {key: _written(item, None) for key, item in value.items()}
    if of is not None and pa.types.is_decimal(of) and isinstance(value, Decimal | str):
        if beyond(str(value)):
            raise ValueError("a number with more digits after the point than a decimal has")
        return str(value)
    if isinstance(value, Decimal) or (isinstance(value, int) and of is not None and pa.types.is_floating(of)):
        return value if isinstance(value, bool) else _number(value)
    return value


def _number(value: Decimal | int) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise ValueError("a number too big for a double")
    return number
