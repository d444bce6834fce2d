"""Columns of a table whose log has no names for them: they are known by their places, from the catalog.

The catalog says how a table is now, and an event how it was. So the catalog is read once, while the server stands
still for the first rows, and kept with them. From there on columns may only come behind the known ones: a statement
that does more to columns fails the source, and so does an event whose types are not those of the known columns.

Invariant: a value has the name of its own column, or the source fails.

>>> known = LoggedTable("shop", "t", (ShapeColumn("id", 3, 0, unsigned=True),), (0,))
>>> [(one.name, one.unsigned) for one in named(known, [3, 15], [0, 40])[0]]
[('id', True), ('column 1', False)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidegauge.errors.mysqlsource import BinlogTableChanged
from tidegauge.sources.mysql.catalog import FollowedTable
from tidegauge.sources.mysql.shapes import LoggedTable, ShapeColumn
from tidegauge.sources.mysql.types import CODECS

__all__ = ["known_table", "named"]

_NUMBERS: Final[Mapping[str, int]] = {
    "tinyint": 1,
    "smallint": 2,
    "int": 3,
    "float": 4,
    "double": 5,
    "bigint": 8,
    "mediumint": 9,
    "date": 10,
    "year": 13,
    "varchar": 15,
    "varbinary": 15,
    "bit": 16,
    "timestamp": 17,
    "datetime": 18,
    "time": 19,
    "decimal": 246,
    "enum": 247,
    "set": 248,
    "char": 254,
    "binary": 254,
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), 252),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), 252),
}
"""The numbers that the log has for types."""
_SHAPE: Final = 255
"""Points and other shapes: MySQL 5.6 has no other types."""
_TEXTUAL: Final = frozenset({15, 252, 254})
_WORD: Final = re.compile(r"'((?:[^']|'')*)'")


def known_table(table: FollowedTable) -> LoggedTable:
    """Return the columns of a table that can be followed, by their places."""
    columns = []
    for name, kind, shown, _, _, charset in table.columns:
        number = _NUMBERS.get(kind, _SHAPE)
        words: tuple[str, ...] = ()
        if kind in ("enum", "set"):
            codec = CODECS.get(charset or "", "utf-8")
            words = tuple(one.encode(codec).decode("latin-1") for one in _words(shown))
        of = charset or ("binary" if number in _TEXTUAL else "")
        columns.append(ShapeColumn(name, number, 0, "unsigned" in shown, of, words))
    names = [one.name for one in columns]
    return LoggedTable(table.database, table.name, tuple(columns), tuple(names.index(one) for one in table.key))


def _words(shown: str) -> list[str]:
    """Return the words of an enum or a set.

    >>> _words("enum('a','it''s, b')")
    ['a', "it's, b"]
    """
    return [one.replace("''", "'") for one in _WORD.findall(shown)]


def named(
    known: LoggedTable, types: Sequence[int], metas: Sequence[int]
) -> tuple[Sequence[ShapeColumn], tuple[int, ...]]:
    """Return the columns of an event, the known ones and those behind them, and the indices of the primary key.

    Raises `BinlogTableChanged`.
    """
    return list(_named(known, types, metas)), known.key


def _named(known: LoggedTable, types: Sequence[int], metas: Sequence[int]) -> Iterator[ShapeColumn]:
    table = f"{known.database}.{known.table}"
    if len(types) < len(known.columns):
        gone = known.columns[len(types)].name
        raise BinlogTableChanged(table=table, detail=f"it has {len(types)} columns in the log, and had {gone!r}")
    for at, (kind, meta) in enumerate(zip(types, metas, strict=True)):
        if at >= len(known.columns):
            yield ShapeColumn(f"column {at}", kind, meta)
            continue
        column = known.columns[at]
        if column.type != kind:
            detail = f"its column {column.name!r} is of the type {kind} in the log, and was of {column.type}"
            raise BinlogTableChanged(table=table, detail=detail)
        yield replace(column, meta=meta)
