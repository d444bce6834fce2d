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

from tidegauge.errors.postgressink import ServerColumnUnfit
from tidegauge.evolution import Evolution, Evolved, evolved, wider

__all__ = ["LONGEST_NAME", "arrow_of", "change", "check", "mismatch", "server_types", "type_of"]

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
    return change(held, rows, "strict").refused


def change(held: Mapping[str, str], rows: pa.Schema, how: Evolution) -> Evolved:
    """Return what becomes of a table with these columns, each with the server's type, when rows come.

    >>> change({"n": "integer", "_epoch": "bigint"}, pa.schema([("n", pa.int64()), ("_epoch", pa.int64())]), "evolve")
    Evolved(added=(), widened=('n',), absent=(), within={}, refused='')
    """
    ours = server_types(rows)
    known = {name: ours[name] if kind in _wider(ours.get(name, "")) else kind for name, kind in held.items()}
    return evolved(known, ours, how, widens=lambda before, after: wider(arrow_of(before), arrow_of(after)))


def server_types(rows: pa.Schema) -> dict[str, str]:
    """Return the server's types for columns, by their names; Arrow's own where the server has none."""
    return {field.name: type_of(field.type) or str(field.type) for field in rows}


def _wider(kind: str) -> tuple[str, ...]:
    return ("numeric",) if kind.startswith("numeric(") else _ALSO.get(kind, ())


def _unfit(field: pa.Field, problem: str) -> None:
    raise ServerColumnUnfit(column=field.name, type=str(field.type), problem=problem)
