"""A table that is held while its rows are read: locked, so that nobody rewrites it, and known by how it is stored.

A snapshot does not protect a table from being rewritten (`VACUUM FULL`, `CLUSTER`, some kinds of `ALTER TABLE`): its
rows would be in other pages, or not to be seen at all. A lock does (`ACCESS SHARE`), from when it is taken; and where
the table's file is still the one that it had at the place of the snapshot, nobody was faster.

Invariant: while the facts of a table are the same, a row that no transaction touches stays in its page, and is
written with the same text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from tidegauge.errors.postgressource import TableRewritten
from tidegauge.sources.postgres.catalog import PublishedTable
from tidegauge.sources.postgres.ranges import RANGE_BYTES, PageRange, conditions, page_ranges, places_of
from tidegauge.sources.postgres.wire import TableShape

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

__all__ = ["HeldTable", "held"]

_STORED: Final = """
    SELECT c.relfilenode::int8, coalesce(pg_relation_filenode(c.oid), 0)::int8, c.relreplident::text,
           pg_relation_size(c.oid) / current_setting('block_size')::int8, current_setting('block_size')::int8,
           coalesce((SELECT a.amname FROM pg_am a WHERE a.oid = c.relam), '')::text
    FROM pg_class c WHERE c.oid = %s
"""
_COLUMNS: Final = """
    SELECT a.attname::text, a.attnum::int4, a.atttypid::int8, a.atttypmod, format_type(a.atttypid, -1),
           EXISTS (SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
                   WHERE i.indrelid = a.attrelid AND i.indisvalid AND i.indimmediate
                   AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
                   AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
    FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A table. columns: those to read. facts: see above. key: the SQL type of each column that tells its rows
    apart; none where nothing does, or not all of it is among the columns. ranges: the parts to read. pages: that it
    has. places: see `places_of`."""

    table: PublishedTable
    columns: pa.Schema
    facts: str
    key: dict[str, str]
    ranges: tuple[PageRange, ...]
    pages: int
    places: int

    @property
    def shape(self) -> str:
        """The table with its columns, for those who decode its rows."""
        one = self.table
        return TableShape(one.oid, one.schema, one.name, tuple(self.columns.names)).encoded()

    def copied(self, conditions: list[sql.Composable]) -> sql.Composed:
        """Return the statement that gives the rows for which all conditions hold, as lines of CSV."""
        from psycopg import sql

        return sql.SQL("COPY (SELECT {} FROM ONLY {}{}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(
            sql.SQL(", ").join(map(sql.Identifier, self.columns.names)),
            sql.Identifier(self.table.schema, self.table.name),
            sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(conditions)) if conditions else sql.SQL(""),
        )

    def of_pages(self, part: PageRange) -> list[sql.Composable]:
        """Return the conditions that a row is in a range. All rows of the snapshot are in the pages of `held`."""
        from psycopg import sql

        return [sql.SQL(cast("Any", one)) for one in conditions(part, self.pages, self.places)]

    def of_keys(self, keys: pa.Table) -> sql.Composed:
        """Return the condition that a row has one of these keys. keys: the texts of each column of the key."""
        from psycopg import sql

        names = [sql.Identifier(name) for name in self.key]
        casts = [
            sql.SQL("k.{}::{}").format(sql.Identifier(name), sql.SQL(cast("Any", kind)))
            for name, kind in self.key.items()
        ]
        arrays = [sql.SQL("{}::text[]").format(sql.Literal(keys[name].to_pylist())) for name in self.key]
        return sql.SQL("({}) IN (SELECT {} FROM unnest({}) AS k({}))").format(
            *(sql.SQL(", ").join(one) for one in (names, casts, arrays, names))
        )


def held(connection: psycopg.Connection[Any], table: PublishedTable, columns: pa.Schema, source: str) -> HeldTable:
    """Lock a table until the transaction is over, and return it. source: for people. Raises `TableRewritten`."""
    from psycopg import sql

    name = sql.Identifier(table.schema, table.name)
    connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(name))
    stored = connection.execute(_STORED, (table.oid,)).fetchone()
    then, now, identity, pages, size, method = (0, 0, "", 0, 1, "") if stored is None else stored
    if not then or then != now:
        raise TableRewritten(table=str(table), source=source)
    there = connection.execute(_COLUMNS, (table.oid,)).fetchall()
    key = {name: kind for name, *_, kind, keyed in there if keyed}
    facts = [then, identity, list(key), [row[:4] for row in there if row[0] in columns.names]]
    ranges = page_ranges(pages if method == "heap" else 0, max(RANGE_BYTES // size, 1))
    return HeldTable(
        table,
        columns,
        json.dumps(facts),
        key if all(name in columns.names for name in key) else {},
        ranges,
        pages,
        places_of(len(ranges), size, connection.info.server_version),
    )
