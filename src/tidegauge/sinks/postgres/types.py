"""The columns of a table in PostgreSQL: the type that each Arrow type is written to, and names that it can have.

Invariant: every value of a column that passes `check` is held exactly, or `text.check_values` refuses it. Columns are
in stored form (`sinks.columns`), which has few types.

>>> columns = pa.schema([("user", pa.string()), ("amount", pa.decimal128(10, 2)), ("_epoch", pa.int64())])
>>> [type_of(field.type) for field in columns]
['text', 'numeric(10,2)', 'bigint']
>>> mismatch({"user": "character varying", "amount": "jsonb", "_epoch": "bigint"}, columns)
"'amount' is jsonb in the table and numeric(10,2) in the rows"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.base import nearest
from tidegauge.errors.postgressink import ServerColumnUnfit

__all__ = ["LONGEST_NAME", "arrow_of", "check", "mismatch", "type_of"]

LONGEST_NAME: Final = 63
"""Bytes of a name. The server would cut a longer one, and two names might become one."""

_TYPES: Final[Mapping[Any, str]] = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp without time zone",
    pa.timestamp("us", tz="UTC"): "timestamp with time zone",
}
_ALSO: Final = {"text": ("character varying",)}
_BACK: Final = {server: kind for kind, server in _TYPES.items()}
_SYSTEM: Final = frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})


def type_of(kind: Any) -> str | None:
    """Return the server's type for an Arrow type, as the server writes it; None where there is none."""
    if pt.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    return _TYPES.get(kind)


def arrow_of(server: str) -> Any:
    """Return the Arrow type for a type of the server; text for those that no sink writes.

    >>> arrow_of("numeric(10,2)"), arrow_of("bigint"), arrow_of("jsonb")
    (Decimal128Type(decimal128(10, 2)), DataType(int64), DataType(string))
    """
    if server.startswith("numeric(") and server.endswith(")"):
        precision, scale = (int(part) for part in server[len("numeric(") : -1].split(","))
        return pa.decimal128(precision, scale) if 0 <= scale <= precision <= 38 else pa.string()
    return _BACK.get(server, pa.string())


def check(columns: pa.Schema) -> None:
    """Raise `ServerColumnUnfit` for a column that a table cannot have."""
    for field in columns:
        if type_of(field.type) is None:
            _unfit(field, "PostgreSQL has no type that holds its values exactly")
        if "\0" in field.name or len(field.name.encode()) > LONGEST_NAME:
            _unfit(field, f"a name has at most {LONGEST_NAME} bytes, and no zero byte")
        if field.name in _SYSTEM:
            _unfit(field, "every table has a system column of this name")


def mismatch(held: Mapping[str, str], rows: pa.Schema) -> str:
    """Say how the columns of rows differ from those of a table, by name and type; "" where they do not."""
    ours = {field.name: type_of(field.type) or str(field.type) for field in rows}
    found = [f"the rows have no column {name!r} ({held[name]})" for name in held if name not in ours]
    for name, kind in ours.items():
        if name not in held:
            near = nearest(name, held)
            found.append(
                f"the table has no column {name!r} ({kind})" + (f", the nearest is {near!r}" if near else "")
            )
        elif held[name] != kind and held[name] not in _wider(kind):
            found.append(f"{name!r} is {held[name]} in the table and {kind} in the rows")
    return "; ".join(found)


def _wider(kind: str) -> tuple[str, ...]:
    return ("numeric",) if kind.startswith("numeric(") else _ALSO.get(kind, ())


def _unfit(field: pa.Field, problem: str) -> None:
    raise ServerColumnUnfit(column=field.name, type=str(field.type), problem=problem)
