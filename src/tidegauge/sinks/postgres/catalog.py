"""What the server's catalog says of a table: its columns, and the keys that it keeps unique.

Invariant: a look changes nothing. What it finds under the table's lock is so until the transaction ends.

>>> look = Relation(17, {"id": "bigint", "_epoch": "bigint"}, frozenset({frozenset({"id"})}), fixed=())
>>> look.keeps_unique(("id",)), look.keeps_unique(("id", "_epoch"))
(True, False)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Cursor, sql

from tidegauge.sinks.postgres.connection import quoted_name
from tidegauge.sinks.postgres.place import TableName
from tidegauge.sinks.postgres.types import type_of

__all__ = ["Relation", "any_row", "create", "definitions", "found", "schema_is_there"]

_RELATION = """
    SELECT c.oid::bigint, c.relkind IN ('r', 'p')
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
    SELECT attname, pg_catalog.format_type(atttypid, atttypmod), attgenerated <> '' OR attidentity = 'a'
    FROM pg_catalog.pg_attribute WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_UNIQUE = """
    SELECT array_agg(a.attname::text)
    FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) AS k (attnum)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = %s::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
      AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid
"""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table: its number, its columns with their types, the sets of columns that are unique.

    fixed: columns that the server fills itself. Nothing can be written to them.
    """

    oid: int
    columns: Mapping[str, str]
    unique: frozenset[frozenset[str]]
    fixed: Sequence[str] = ()
    is_table: bool = True

    def keeps_unique(self, key: Sequence[str]) -> bool:
        """Whether the server sees to it that no two rows have one key."""
        return frozenset(key) in self.unique


def found(cursor: Cursor[Any], name: TableName) -> Relation | None:
    """Return the table of a name, None where there is none."""
    relation = cursor.execute(_RELATION, (name.schema, name.name)).fetchone()
    if relation is None:
        return None
    oid, is_table = relation
    columns = cursor.execute(_COLUMNS, (oid,)).fetchall()
    unique = cursor.execute(_UNIQUE, (oid,)).fetchall()
    return Relation(
        oid,
        {column: kind for column, kind, _ in columns},
        frozenset(frozenset(names) for (names,) in unique),
        [column for column, _, fixed in columns if fixed],
        is_table,
    )


def any_row(cursor: Cursor[Any], name: TableName, *, since: int | None = None) -> int | None:
    """Return the epoch of a row, or -1 where it has none; None where there is no such row.

    since: of rows with this epoch or a later one. Without an index that reads the table.
    """
    query = sql.SQL("SELECT -1 FROM {} LIMIT 1").format(quoted_name(name))
    if since is not None:  # a literal: where parameters are, a name may have no "%"
        query = sql.SQL("SELECT _epoch FROM {} WHERE _epoch >= {} LIMIT 1").format(quoted_name(name), sql.Literal(since))
    row = cursor.execute(query).fetchone()
    return None if row is None else int(row[0])


def schema_is_there(cursor: Cursor[Any], schema: str) -> bool:
    """Whether there is a schema of a name."""
    row = cursor.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    return row is not None


def create(cursor: Cursor[Any], name: TableName, columns: Any, key: Sequence[str]) -> None:
    """Make a table of columns in stored form; key: those of its primary key, none for a table of all rows."""
    parts = list(definitions(columns))
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(quoted_name(name), sql.SQL(", ").join(parts)))


def definitions(columns: Any) -> list[sql.Composable]:
    """Return the definitions of columns for CREATE TABLE."""
    kinds: list[Any] = [type_of(field.type) for field in columns]  # of our own table of types, none from outside
    return [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
        for name, kind in zip(columns.names, kinds, strict=True)
    ]
