"""Primary keys: the reading of a table goes on behind one. Their order, and the conditions of rows behind a key.

InnoDB keeps a table in the order of its primary key, so nothing is sorted where it is read in this order. Which
of two keys comes first is the server's business, with its collations: it is asked with a key's own text.

Invariant: the rows up to a key and those behind it are all rows, each once, as long as `facts` are the same.

>>> a, b = KeyColumn("a", "int", "int(11)", ""), KeyColumn("b", "varchar", "varchar(9)", "latin1_swedish_ci")
>>> RowsPart(TableKey((a, b), "8.0.33"), behind=(b"5", b"x'")).conditions
("`a` = 5 AND `b` > _utf8mb4 X'7827'", '`a` > 5')
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from tidegauge.sources.mysql.catalog import quoted

__all__ = ["Key", "KeyColumn", "RowsPart", "TableKey", "key_texts"]

Key: TypeAlias = tuple[bytes, ...]
"""The texts of a key's columns."""
_NUMBERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"})
_TEXTS: Final = frozenset({"char", "varchar"})
_BYTES: Final = frozenset({"binary", "varbinary"})
_TIMES: Final = frozenset({"date", "datetime", "timestamp"})
_TIME: Final = re.compile(rb"[0-9][0-9 :.-]*")


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key. kind, shown, collation: `DATA_TYPE`, `COLUMN_TYPE` and `COLLATION_NAME` of the catalog."""

    name: str
    kind: str
    shown: str
    collation: str


@dataclass(frozen=True, slots=True)
class TableKey:
    """The primary key of a table, in the order of its index. version: of the server, which orders texts."""

    columns: tuple[KeyColumn, ...]
    version: str

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [one.name for one in self.columns]

    @property
    def facts(self) -> str:
        """What must still be so for one key to be behind the same others."""
        return json.dumps(asdict(self))

    @property
    def ordered(self) -> bool:
        """Whether a text says where a key is among others: not that of an enum, whose words have an order of their
        own, nor that of a float."""
        return bool(self.columns) and all(one.kind in _NUMBERS | _TEXTS | _BYTES | _TIMES for one in self.columns)


@dataclass(frozen=True, slots=True)
class RowsPart:
    """Some rows of a table in the order of its key: those behind a key, or with one of some keys; else all."""

    key: TableKey
    behind: Key | None = None
    among: Sequence[Key] | None = None

    @property
    def conditions(self) -> tuple[str, ...]:
        """What its rows fulfil, as SQL: for one condition after the other. Each reads one range of the index."""
        names = [quoted(one) for one in self.key.names]
        if self.among is not None:
            return (" OR ".join(f"({self._equal(one, len(names))})" for one in self.among),)
        if self.behind is None:
            return ("",)
        found = []
        for at in reversed(range(len(names))):
            more = f"{names[at]} > {_literal(self.key.columns[at].kind, self.behind[at])}"
            found.append(" AND ".join(one for one in (self._equal(self.behind, at), more) if one))
        return tuple(found)

    def _equal(self, key: Key, count: int) -> str:
        columns = zip(self.key.columns[:count], key, strict=False)
        return " AND ".join(f"{quoted(one.name)} = {_literal(one.kind, text)}" for one, text in columns)


def key_texts(columns: Mapping[str, Any]) -> pa.Table:
    """Return values of a key's columns as texts, which the server understands.

    >>> key_texts({"id": pa.array([7])}).to_pylist()
    [{'id': b'7'}]
    """
    return pa.table({name: _texts(column) for name, column in columns.items()})


def _texts(column: Any) -> Any:
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:  # sessions are in UTC
        column = column.cast(pa.timestamp(column.type.unit))
    return column.cast(pa.string()).cast(pa.binary())


def _literal(kind: str, text: bytes) -> str:
    """Return a value as SQL.

    >>> _literal("decimal", b"1E-7"), _literal("date", b"2026-11-29"), _literal("binary", b"")
    ('0.0000001', "'2026-11-29'", "X''")
    """
    if kind in _NUMBERS:
        return f"{Decimal(text.decode()):f}"
    if kind in _TIMES and _TIME.fullmatch(text):
        return f"'{text.decode()}'"
    return f"{'' if kind in _BYTES else '_utf8mb4 '}X'{text.hex()}'"
