"""A table that is held while its rows are read: locked, so that nobody rewrites it, and known by how it is stored.

A snapshot does not protect a table from being rewritten (`VACUUM FULL`, `CLUSTER`, some kinds of `ALTER TABLE`): its
rows would be in other pages, or not to be seen at all. A lock does (`ACCESS SHARE`), from when it is taken; and where
the table's file is still the one that it had at the place of the snapshot, nobody was faster.

Invariant: while the facts of a table are the same, a row that no transaction touches stays in its page, and is
written with the same text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from tidegauge.errors.postgressource import TableRewritten, TableUnfit
from tidegauge.sources.postgres.catalog import HORIZON, PublishedTable, partitions_of
from tidegauge.sources.postgres.checks import FOREIGN
from tidegauge.sources.postgres.partitions import KnownPartitions
from tidegauge.sources.postgres.ranges import RANGE_BYTES, PageRange, conditions, page_ranges, places_of
from tidegauge.sources.postgres.wire import TableShape

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

__all__ = ["HeldPart", "HeldTable", "held"]

_STORED: Final = """
    SELECT c.relfilenode::int8, coalesce(pg_relation_filenode(c.oid), 0)::int8, c.relreplident::text,
           pg_relation_size(c.oid) / current_setting('block_size')::int8, current_setting('block_size')::int8,
           coalesce((SELECT a.amname FROM pg_am a WHERE a.oid = c.relam), '')::text
    FROM pg_class c WHERE c.oid = %s
"""
_COLUMNS: Final = """
    SELECT a.attname::text, a.attnum::int4, a.atttypid::int8, a.atttypmod,
           CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace OR t.typtype <> 'b'
                THEN format_type(a.atttypid, -1) ELSE '' END,
           EXISTS (SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
                   WHERE i.indrelid = a.attrelid AND i.indisvalid AND i.indimmediate
                   AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
                   AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


@dataclass(frozen=True, slots=True)
class HeldPart:
    """A file of rows: that of a table, or of one of its partitions. oid: of a partition, 0 for the table. facts: see
    above. ranges: each is read at once. pages: that it has. places: see `places_of`."""

    oid: int
    schema: str
    name: str
    facts: str
    ranges: tuple[PageRange, ...]
    pages: int = 0
    places: int = 0

    def of_pages(self, pages: PageRange) -> list[sql.Composable]:
        """Return the conditions that a row is in a range. All rows of the snapshot are in the pages of `held`."""
        from psycopg import sql

        return [sql.SQL(cast("Any", one)) for one in conditions(pages, self.pages, self.places)]

    def plan_of(self, stream: str) -> str:
        """Return what the plan of this part of a stream's table is called.

        >>> HeldPart(0, "public", "orders", "", ()).plan_of("orders"), HeldPart(7, "a", "b", "", ()).plan_of("orders")
        ('orders', 'orders/7')
        """
        return f"{stream}/{self.oid}" if self.oid else stream


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A table. columns: those to read. key: the SQL type of each column that tells its rows apart, "" for one of an
    extension; no columns where nothing does, or not all of it is among the columns. parts: the files that have its
    rows. partitions: if it is partitioned."""

    table: PublishedTable
    columns: pa.Schema
    key: dict[str, str]
    parts: tuple[HeldPart, ...]
    partitions: KnownPartitions | None = None

    @property
    def shape(self) -> str:
        """The table with its columns, for those who decode its rows."""
        one = self.table
        return TableShape(one.oid, one.schema, one.name, tuple(self.columns.names)).encoded()

    def copied(self, part: HeldPart, conditions: list[sql.Composable]) -> sql.Composed:
        """Return the statement that gives the rows of a part for which all conditions hold, as lines of CSV."""
        from psycopg import sql

        return sql.SQL("COPY (SELECT {} FROM ONLY {}{}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(
            sql.SQL(", ").join(map(sql.Identifier, self.columns.names)),
            sql.Identifier(part.schema, part.name),
            sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(conditions)) if conditions else sql.SQL(""),
        )

    def of_keys(self, keys: pa.Table) -> sql.Composed:
        """Return the condition that a row has one of these keys. keys: the texts of each column of the key.

        Texts are compared, since values may be equal and have others, as 1.0 and 1.00: a row is told to have one key
        alone. Values are compared too, so that the server takes its index. The search path has no operators of
        extensions, such as those of `ltree`.
        """
        from psycopg import sql

        known = [name for name, kind in self.key.items() if kind]
        names = [sql.Identifier(name) for name in self.key]
        asked = [
            *(sql.Identifier(name) for name in known),
            *(sql.SQL("format('%s', {}) COLLATE \"C\"").format(name) for name in names),
        ]
        casts = [
            *(sql.SQL("k.{}::{}").format(sql.Identifier(one), sql.SQL(cast("Any", self.key[one]))) for one in known),
            *(sql.SQL("k.{}").format(name) for name in names),
        ]
        arrays = [sql.SQL("{}::text[]").format(sql.Literal(keys[name].to_pylist())) for name in self.key]
        return sql.SQL("({}) IN (SELECT {} FROM unnest({}) AS k({}))").format(
            *(sql.SQL(", ").join(one) for one in (asked, casts, arrays, names))
        )


def held(connection: psycopg.Connection[Any], table: PublishedTable, columns: pa.Schema, source: str) -> HeldTable:
    """Lock a table, and its partitions, until the transaction is over, and return it.

    source: for people. Raises `TableRewritten`, for one of them that is not as the transaction sees it.
    """
    _lock(connection, table.schema, table.name)
    keyed = [(name, kind) for name, *_, kind, key in _columns(connection, table.oid) if key]
    key = dict(keyed) if all(name in columns.names for name, _ in keyed) else {}
    names = [name for name, _ in keyed]
    if table.kind != "p":
        part = _stored(connection, table, HeldPart(0, table.schema, table.name, "", ()), names, columns, source)
        return HeldTable(table, columns, key, (part,))
    [[horizon]] = connection.execute(HORIZON).fetchall()
    leaves = partitions_of(connection, table.oid)
    parts = []
    for leaf in leaves:
        if leaf.kind != "r":
            detail = f"its partition {leaf.name} is a foreign table"
            raise TableUnfit(table=str(table), source=source, detail=detail, remedy=FOREIGN)
        _lock(connection, leaf.schema, leaf.table)
        unread = HeldPart(leaf.oid, leaf.schema, leaf.table, "", ())
        part = _stored(connection, table, unread, names, columns, source)
        parts.append(replace(part, facts=json.dumps([leaf.attached, json.loads(part.facts)])))
    return HeldTable(table, columns, key, tuple(parts), KnownPartitions(horizon, leaves))


def _lock(connection: psycopg.Connection[Any], schema: str, name: str) -> None:
    from psycopg import sql

    connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS SHARE MODE").format(sql.Identifier(schema, name)))


def _columns(connection: psycopg.Connection[Any], oid: int) -> list[Any]:
    return connection.execute(_COLUMNS, (oid,)).fetchall()


def _stored(
    connection: psycopg.Connection[Any],
    table: PublishedTable,
    part: HeldPart,
    key: Sequence[str],
    columns: pa.Schema,
    source: str,
) -> HeldPart:
    """Return a part that is locked, with its facts and ranges. Raises `TableRewritten`."""
    oid = part.oid or table.oid
    stored = connection.execute(_STORED, (oid,)).fetchone()
    then, now, identity, pages, size, method = (0, 0, "", 0, 1, "") if stored is None else stored
    if not then or then != now:
        raise TableRewritten(table=f"{part.schema}.{part.name}", source=source)
    of_columns = [row[:4] for row in _columns(connection, oid) if row[0] in columns.names]
    facts = [then, identity, list(key), of_columns, table.members]  # where it was out, not all keys that changed come
    ranges = page_ranges(pages if method == "heap" else 0, max(RANGE_BYTES // size, 1))
    places = places_of(len(ranges), size, connection.info.server_version)
    return replace(part, facts=json.dumps(facts), ranges=ranges, pages=pages, places=places)
