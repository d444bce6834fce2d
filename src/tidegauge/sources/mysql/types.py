"""Which Arrow type the values of a column have, by its type in the catalog of the server.

    integers                     their own, where unsigned the next larger one; bigint unsigned: decimal(20, 0)
    float, double, decimal       their own; decimal beyond 38 digits: text
    date, datetime, timestamp    date32, timestamp in microseconds, the last as UTC; year: an integer
    char, varchar, text, json, enum, set, time     text
    binary, varbinary, blob      bytes; bit: an integer

Invariant: a type that is not named here is refused, never guessed.

>>> arrow_of("int", "int(10) unsigned", 10, 0, None), arrow_of("decimal", "decimal(10,2)", 10, 2, None)
(DataType(int64), Decimal128Type(decimal128(10, 2)))
>>> arrow_of("point", "point", None, None, None), arrow_of("varchar", "varchar(9)", None, None, "koi8r")
(None, None)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

__all__ = ["CODECS", "DIGITS", "arrow_of"]

CODECS: Final[Mapping[str, str]] = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "ascii": "ascii",
    "latin1": "cp1252",
}
"""The charsets of text that are read."""
DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of up to nine digits of a decimal, in the log."""
_SIGNED: Final[Mapping[str, Any]] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}
_UNSIGNED: Final[Mapping[str, Any]] = {
    "tinyint": pa.int16(),
    "smallint": pa.int32(),
    "mediumint": pa.int32(),
    "int": pa.int64(),
    "bigint": pa.decimal128(20, 0),
}
_EXACT: Final[Mapping[str, Any]] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "year": pa.int16(),
    "time": pa.string(),
    "json": pa.string(),
    "bit": pa.int64(),
}
_TEXTS: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
_BYTES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_LARGEST_BIT: Final = 63


def arrow_of(kind: str, shown: str, precision: int | None, scale: int | None, charset: str | None) -> Any:
    """Return the Arrow type for values of a column, None where it is refused.

    kind, shown: `DATA_TYPE` and `COLUMN_TYPE` of the catalog. precision, scale: of numbers. charset: of text.
    """
    if kind in _SIGNED:
        return (_UNSIGNED if "unsigned" in shown else _SIGNED)[kind]
    if kind == "decimal":
        return pa.decimal128(precision, scale) if precision is not None and precision <= 38 else pa.string()
    if kind == "bit" and (precision or 0) > _LARGEST_BIT:
        return None
    if kind in _TEXTS:
        return pa.string() if charset in CODECS else None
    if "COMPRESSED" in shown:
        return None
    return pa.binary() if kind in _BYTES else _EXACT.get(kind)
