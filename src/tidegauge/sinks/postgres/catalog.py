"""What the server's catalog says of a table: its columns, its indexes, and the keys that they keep unique.

Invariant: a look changes nothing. What it finds under the table's lock is so until the transaction ends.

>>> look = Relation(17, {"id": "bigint", "_epoch": "bigint"}, (TableIndex(("id",), unique=True),))
>>> look.keeps_unique(("id",)), look.keeps_unique(("id", "_epoch")), look.by_epoch
(True, False, False)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Cursor, sql

from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.postgres.connection import quoted_name
from tidegauge.sinks.postgres.place import TableName
from tidegauge.sinks.postgres.types import type_of

__all__ = [
    "Relation",
    "TableIndex",
    "alter",
    "any_row",
    "create",
    "definitions",
    "found",
    "last_epoch",
    "schema_is_there",
]

_RELATION = """
    SELECT c.oid::bigint, c.relkind::text
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
    SELECT attname, pg_catalog.format_type(atttypid, atttypmod), attgenerated <> '' OR attidentity = 'a'
    FROM pg_catalog.pg_attribute WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_INDEXES = """
    SELECT array_agg(a.attname::text ORDER BY k.place), i.indisunique AND i.indimmediate
    FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam
    CROSS JOIN LATERAL unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = %s::oid AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL AND m.amname = 'btree'
    GROUP BY i.indexrelid, i.indisunique, i.indimmediate
"""


@dataclass(frozen=True, slots=True)
class TableIndex:
    """The columns of an index, in order; unique: whether no two rows have the same values there."""

    columns: tuple[str, ...]
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A table: its number, its columns with their types, its indexes of whole columns.

    fixed: columns that the server fills itself. Nothing can be written to them. kind: as the catalog says it.
    """

    oid: int
    columns: Mapping[str, str]
    indexes: Sequence[TableIndex] = ()
    fixed: Sequence[str] = ()
    kind: str = "r"

    @property
    def is_table(self) -> bool:
        """Whether rows can be written to it for sure: it is no view and no table of another server."""
        return self.kind in ("r", "p")

    @property
    def is_partitioned(self) -> bool:
        """Whether its rows are in other tables."""
        return self.kind == "p"

    def keeps_unique(self, key: Sequence[str]) -> bool:
        """Whether the server sees to it that no two rows have one key."""
        return any(index.unique and set(index.columns) == set(key) for index in self.indexes)

    @property
    def by_epoch(self) -> bool:
        """Whether an index tells the greatest epoch at once."""
        return any(index.columns[0] == EPOCH for index in self.indexes)


def found(cursor: Cursor[Any], name: TableName) -> Relation | None:
    """Return the table of a name, None where there is none."""
    relation = cursor.execute(_RELATION, (name.schema, name.name)).fetchone()
    if relation is None:
        return None
    oid, kind = relation
    columns = cursor.execute(_COLUMNS, (oid,)).fetchall()
    indexes = cursor.execute(_INDEXES, (oid,)).fetchall()
    return Relation(
        oid,
        {column: type_ for column, type_, _ in columns},
        [TableIndex(tuple(names), unique) for names, unique in indexes],
        [column for column, _, fixed in columns if fixed],
        kind,
    )


def any_row(cursor: Cursor[Any], name: TableName) -> bool:
    """Whether a table has a row."""
    return cursor.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(quoted_name(name))).fetchone() is not None


def last_epoch(cursor: Cursor[Any], name: TableName) -> int | None:
    """Return the greatest epoch of a row, None without one. Reads the table where no index begins with `_epoch`."""
    row = cursor.execute(sql.SQL("SELECT max(_epoch) FROM {}").format(quoted_name(name))).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def schema_is_there(cursor: Cursor[Any], schema: str) -> bool:
    """Whether there is a schema of a name."""
    row = cursor.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    return row is not None


def create(cursor: Cursor[Any], name: TableName, columns: Any, key: Sequence[str]) -> None:
    """Make a table of columns in stored form, with an index of its epochs.

    key: the columns of its primary key, none for a table of all rows.
    """
    parts = list(definitions(columns))
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(quoted_name(name), sql.SQL(", ").join(parts)))
    cursor.execute(sql.SQL("CREATE INDEX ON {} (_epoch)").format(quoted_name(name)))


def alter(
    cursor: Cursor[Any], name: TableName, columns: Any, *, added: Sequence[str], widened: Sequence[str]
) -> None:
    """Give a table columns that it lacks, and some that it has a wider type: the server writes it anew for these."""
    kinds: list[Any] = [type_of(columns.field(one).type) for one in (*added, *widened)]
    words = [sql.SQL("ADD COLUMN {} {}")] * len(added) + [sql.SQL("ALTER COLUMN {} TYPE {}")] * len(widened)
    parts = [
        word.format(sql.Identifier(one), sql.SQL(kind))
        for word, one, kind in zip(words, (*added, *widened), kinds, strict=True)
    ]
    cursor.execute(sql.SQL("ALTER TABLE {} {}").format(quoted_name(name), sql.SQL(", ").join(parts)))


def definitions(columns: Any) -> list[sql.Composable]:
    """Return the definitions of columns for CREATE TABLE."""
    kinds: list[Any] = [type_of(field.type) for field in columns]  # of our own table of types, none from outside
    return [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
        for name, kind in zip(columns.names, kinds, strict=True)
    ]
