"""Which Arrow type the values of a column have, by its type in the catalog of the server.

    integers, floats, boolean, bytea     their own types
    numeric(p, s)                        decimal128(p, s) where 0 <= s <= p <= 38, else text
    date, timestamp, timestamptz         date32, timestamp in microseconds, the latter as UTC
    all others that have a stable form   the text that the server writes: uuid, json, time, arrays, enums, ranges ...

Invariant: a type that is not named here is refused, never guessed: its text may depend on the session, as that of
`regclass` does, or on the machine.

>>> arrow_of("int8", -1), arrow_of("numeric", modifier(10, 2)), arrow_of("numeric", -1), arrow_of("regclass", -1)
(DataType(int64), Decimal128Type(decimal128(10, 2)), DataType(string), None)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

__all__ = ["ARRAY", "TEXT_KINDS", "arrow_of", "modifier"]

_EXACT: Final[Mapping[str, Any]] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}
# fmt: off
_TEXTS: Final = frozenset(
    {
        "text", "varchar", "bpchar", "char", "name", "citext", "uuid", "json", "jsonb", "xml", "time", "timetz",
        "interval", "bit", "varbit", "inet", "cidr", "macaddr", "macaddr8", "point", "line", "lseg", "box", "path",
        "polygon", "circle", "hstore", "ltree", "tsvector", "tsquery", "jsonpath", "pg_lsn",
    }
)
# fmt: on
ARRAY: Final = "array"
TEXT_KINDS: Final = frozenset({"e", "r", "m"})
"""Kinds of types (`pg_type.typtype`) that are written as text: enums, ranges and multiranges."""


def arrow_of(name: str, modifier: int, kind: str = "b") -> Any:
    """Return the Arrow type for values of a type; None where it is refused.

    name: `pg_type.typname` of what a domain is at last, `ARRAY` for an array of values with a stable form. modifier:
    `atttypmod`. kind: `pg_type.typtype`.
    """
    if kind in TEXT_KINDS or name == ARRAY or name in _TEXTS:
        return pa.string()
    if name == "numeric":
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4) & 0x7FF ^ 1024) - 1024
        return pa.decimal128(precision, scale) if modifier >= 4 and 0 <= scale <= precision <= 38 else pa.string()
    return _EXACT.get(name)


def modifier(precision: int, scale: int) -> int:
    """Return the modifier of `numeric(precision, scale)`.

    >>> modifier(20, 2), arrow_of("numeric", modifier(5, -2))
    (1310726, DataType(string))
    """
    return ((precision << 16) | (scale & 0x7FF)) + 4
