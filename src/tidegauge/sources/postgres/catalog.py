"""What the server's catalog says of a publication, its tables and a slot: one look, as plain values.

Invariant: nothing is decided here, and nothing changed; all of it is of one instant (one transaction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.postgres.growth import TableGrowth, growth
from tidegauge.sources.postgres.types import ARRAY
from tidegauge.sources.postgres.versions import OLDEST, spoken

__all__ = [
    "HORIZON",
    "CatalogLook",
    "PublicationFacts",
    "PublishedTable",
    "RowsQuestion",
    "ServerColumn",
    "SlotFacts",
    "SlotLog",
    "TablePartition",
    "look",
    "old_rows",
    "partitions_of",
    "slot_log",
]


@dataclass(frozen=True, slots=True)
class ServerColumn:
    """A column. type: for a domain the type under it, `ARRAY` for an array of plain values. modifier, kind: see
    `types`. shown: the type as the server writes it. generated: by the server, which publishes none of these."""

    name: str
    type: str
    modifier: int
    kind: str
    shown: str
    generated: bool = False


@dataclass(frozen=True, slots=True)
class TablePartition:
    """A table that has rows of a partitioned one, at any level. file: `relfilenode`, another one when all its rows
    are written anew. attached: the last transaction that attached it, or what it hangs on. command: of the command
    in this one. made: whether the same transaction made it. empty: whether it has no page.

    kind, identity, key, readable: as of a `PublishedTable`.
    """

    oid: int
    schema: str
    table: str
    file: int
    attached: int
    command: int
    made: bool
    empty: bool
    kind: str = "r"
    identity: str = "d"
    key: bool = True
    readable: bool = True

    @property
    def name(self) -> str:
        """Its whole name."""
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class RowsQuestion:
    """Whether a partition has rows that commands before the one of this number wrote in a transaction, or, with
    `younger`, that transactions of a lower number wrote. brought: whether these came along with it."""

    partition: TablePartition
    transaction: int
    command: int
    younger: bool
    brought: bool


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table. kind: `pg_class.relkind`. identity: `relreplident`. key: whether it has what the identity says.

    published: the columns that the publication has, None where it lacks the table. filtered: the condition on rows.
    partitions: those that have its rows. via: the table in whose name a partition's changes come, "" for its own.
    growth: what tells whether columns that come to it may be taken on. members: of the publication, the rows of
    the catalog that name it, its schema, or all tables: the number of each, and its list of columns, "" for all. If a
    row names a table that it is a partition of, the number has the last transaction that attached it, too.
    """

    oid: int
    schema: str
    name: str
    kind: str
    identity: str
    key: bool
    readable: bool
    published: tuple[str, ...] | None
    filtered: str | None
    columns: tuple[ServerColumn, ...]
    partitions: tuple[TablePartition, ...] = ()
    via: str = ""
    growth: TableGrowth | None = None
    members: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """What a publication says of its tables' changes. root: whether partitions speak in the name of their root."""

    inserts: bool
    updates: bool
    deletes: bool
    truncates: bool
    root: bool


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """A slot. confirmed: what it was told is durable. lost: why it can give nothing any more, "" if it can. synced:
    whether it came from another server while this one was its standby."""

    plugin: str
    database: str
    confirmed: int
    lost: str
    active: int | None
    synced: bool = False


@dataclass(frozen=True, slots=True)
class SlotLog:
    """The log that a slot keeps, in bytes, and the most that it may, None for any number. ending: if it has more."""

    size: int
    limit: int | None
    ending: bool


@dataclass(frozen=True, slots=True)
class CatalogLook:
    """The findings. end: the place to which the log is durable. missing: the tables that are not there. horizon: all
    transactions of a lower number had ended."""

    version: int
    wal_level: str
    standby: bool
    role: str
    replicates: bool
    database: str
    end: int
    publication: PublicationFacts | None
    tables: tuple[PublishedTable, ...]
    missing: tuple[str, ...]
    slot: SlotFacts | None
    horizon: int = 0


_SERVER: Final = """
    SELECT current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery(),
           current_user::text, r.rolreplication OR r.rolsuper, current_database()::text,
           CASE WHEN pg_is_in_recovery() THEN '0/0' ELSE pg_current_wal_flush_lsn() END::text
    FROM pg_roles r WHERE r.rolname = current_user
"""
_PUBLICATION: Final = """
    SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication WHERE pubname = %s
"""
_TABLES: Final = """
    SELECT c.oid::int8, c.relkind::text, c.relreplident::text,
           EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
                   AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END),
           has_table_privilege(c.oid, 'SELECT'), t.attnames::text[], t.rowfilter,
           coalesce((SELECT min(r.schemaname || '.' || r.tablename) FROM pg_partition_ancestors(c.oid) a
                     JOIN pg_class p ON p.oid = a.relid JOIN pg_namespace s ON s.oid = p.relnamespace
                     JOIN pg_publication_tables r ON (r.schemaname, r.tablename) = (s.nspname, p.relname)
                     WHERE r.pubname = t_pub.pubname AND c.relispartition AND a.relid <> c.oid), ''),
           (WITH RECURSIVE whole AS (
                SELECT c.oid, c.relnamespace, NULL::xid AS attached
                UNION ALL
                SELECT k.oid, k.relnamespace,
                       CASE WHEN age(i.xmin) <= age(w.attached) OR w.attached IS NULL THEN i.xmin ELSE w.attached END
                FROM whole w JOIN pg_inherits i ON i.inhrelid = w.oid
                JOIN pg_class k ON k.oid = i.inhparent AND k.relkind = 'p'
            )
            SELECT json_agg(json_build_array(f.oid + (coalesce(f.attached::text::int8, 0) << 32), f.listed)
                            ORDER BY f.oid)
            FROM pg_publication p CROSS JOIN LATERAL (
                SELECT m.oid::int8, w.attached, coalesce(m.prattrs::text, '') AS listed
                FROM pg_publication_rel m JOIN whole w ON w.oid = m.prrelid WHERE m.prpubid = p.oid
                UNION ALL SELECT y.oid::int8, w.attached, ''
                FROM pg_publication_namespace y JOIN whole w ON w.relnamespace = y.pnnspid WHERE y.pnpubid = p.oid
                UNION ALL SELECT p.oid::int8, NULL, '' WHERE p.puballtables) f
            WHERE p.pubname = t_pub.pubname)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN (SELECT %s::name AS pubname) t_pub
    LEFT JOIN pg_publication_tables t
           ON t.pubname = t_pub.pubname AND t.schemaname = n.nspname AND t.tablename = c.relname
    WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS: Final = """
    WITH RECURSIVE base AS (
        SELECT a.attnum, a.attname::text AS name, false AS made, a.atttypid AS type,
               a.atttypmod AS modifier, format_type(a.atttypid, a.atttypmod) AS shown
        FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT b.attnum, b.name, b.made, t.typbasetype,
               CASE WHEN b.modifier = -1 THEN t.typtypmod ELSE b.modifier END, b.shown
        FROM base b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
    )
    SELECT b.name, CASE WHEN t.typcategory = 'A' AND t.typelem <> 0 THEN e.typname ELSE t.typname END::text,
           t.typcategory = 'A' AND t.typelem <> 0, b.modifier,
           CASE WHEN t.typcategory = 'A' AND t.typelem <> 0 THEN e.typtype ELSE t.typtype END::text, b.shown, b.made
    FROM base b JOIN pg_type t ON t.oid = b.type LEFT JOIN pg_type e ON e.oid = t.typelem
    WHERE t.typtype <> 'd' ORDER BY b.attnum
"""
HORIZON: Final = "SELECT txid_snapshot_xmin(txid_current_snapshot())"
"""All transactions with a lower number have ended, as the snapshot sees them."""
_PARTITIONS: Final = """
    WITH RECURSIVE tree AS (
        SELECT i.inhrelid AS oid, i.xmin AS attached, i.cmin::text::int8 AS command
        FROM pg_inherits i WHERE i.inhparent = %s
        UNION ALL
        SELECT i.inhrelid, CASE WHEN age(i.xmin) <= age(t.attached) THEN i.xmin ELSE t.attached END,
               CASE WHEN i.xmin = t.attached THEN greatest(i.cmin::text::int8, t.command)
                    WHEN age(i.xmin) < age(t.attached) THEN i.cmin::text::int8 ELSE t.command END
        FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid
    )
    SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relfilenode::int8, t.attached::text::int8, t.command,
           coalesce((SELECT a.xmin = t.attached FROM pg_attribute a
                     WHERE a.attrelid = c.oid AND a.attnum = -1), false),
           coalesce(pg_relation_size(c.oid), 0) = 0, c.relkind::text, c.relreplident::text,
           EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
                   AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END),
           has_table_privilege(c.oid, 'SELECT')
    FROM tree t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind <> 'p' ORDER BY n.nspname, c.relname
"""
_OLD_ROWS: Final = """
    SELECT EXISTS (SELECT FROM ONLY {} WHERE ctid < '(131072,0)' AND (
        (%(younger)s AND (age(xmin) > age(%(xid)s::text::xid) OR age(xmin) < 0))
        OR (xmin = %(xid)s::text::xid AND cmin::text::int8 < %(command)s)))
"""
"""Looks at the first 1 GB of a partition: rows that it brought along are the first in its file."""
_XIDS: Final = 1 << 32
_SLOT_LOG: Final = """
    SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END) - restart_lsn,
           coalesce((SELECT setting::int8 FROM pg_settings WHERE name = 'max_slot_wal_keep_size'), -1), wal_status
    FROM pg_replication_slots WHERE slot_name = %s
"""
_SLOT: Final = """
    SELECT coalesce(plugin, slot_type)::text, coalesce(database, '')::text, confirmed_flush_lsn::text,
           wal_status, active_pid, synced, coalesce(invalidation_reason, 'wal_removed')
    FROM pg_replication_slots WHERE slot_name = %s
"""


def slot_log(cursor: Any, slot: str) -> SlotLog | None:
    """Return the log that a slot keeps, None where there is no such slot, or it has lost it."""
    found = cursor.execute(spoken(_SLOT_LOG, cursor.connection.info.server_version), (slot,)).fetchone()
    if found is None or found[0] is None:
        return None
    size, limit, state = found
    return SlotLog(max(int(size), 0), None if limit < 0 else limit << 20, state == "unreserved")


def look(cursor: Any, publication: str, tables: Sequence[tuple[str, str]], slot: str) -> CatalogLook:
    """Look at everything that matters to a source. cursor: of a transaction."""
    [server] = cursor.execute(_SERVER).fetchall()
    version, wal_level, standby, role, replicates, database, end = server
    if version < OLDEST:  # whose catalog has other words
        return CatalogLook(
            version, wal_level, standby, role, replicates, database, Lsn.parse(end).value, None, (), (), None
        )
    [[horizon]] = cursor.execute(HORIZON).fetchall()
    asked = {one: spoken(one, version) for one in (_PUBLICATION, _TABLES, _COLUMNS, _SLOT)}
    published = cursor.execute(asked[_PUBLICATION], (publication,)).fetchone()
    found: list[PublishedTable] = []
    missing: list[str] = []
    for schema, name in tables:
        row = cursor.execute(asked[_TABLES], (publication, schema, name)).fetchone()
        if row is None:
            missing.append(f"{schema}.{name}")
            continue
        oid, kind, identity, key, readable, attributes, condition, via, members = row
        columns = tuple(_column(*one) for one in cursor.execute(asked[_COLUMNS], (oid,)).fetchall())
        whole = None if attributes is None else tuple(attributes)
        leaves = partitions_of(cursor, oid) if kind == "p" else ()
        grown = growth(cursor, publication, oid, version, {one.oid: (one.file, one.empty) for one in leaves})
        facts = (kind, identity, key, readable, whole, condition)
        found.append(
            PublishedTable(oid, schema, name, *facts, columns, leaves, via, grown, tuple(map(tuple, members or ())))
        )
    there = cursor.execute(asked[_SLOT], (slot,)).fetchone()
    return CatalogLook(
        version=version,
        wal_level=wal_level,
        standby=standby,
        role=role,
        replicates=replicates,
        database=database,
        end=Lsn.parse(end).value,
        publication=None if published is None else PublicationFacts(*published),
        tables=tuple(found),
        missing=tuple(missing),
        slot=None if there is None else _slot(*there),
        horizon=horizon,
    )


def partitions_of(cursor: Any, oid: int) -> tuple[TablePartition, ...]:
    """Return the partitions that have the rows of a table, at any level, as the transaction sees them."""
    return tuple(TablePartition(*row) for row in cursor.execute(_PARTITIONS, (oid,)).fetchall())


def old_rows(cursor: Any, question: RowsQuestion) -> bool:
    """Return whether a partition has such rows."""
    from psycopg import sql

    asked = sql.SQL(_OLD_ROWS).format(sql.Identifier(question.partition.schema, question.partition.table))
    given = {
        "younger": question.younger,
        "xid": str(question.transaction % _XIDS),
        "command": question.command,
    }
    [[found]] = cursor.execute(asked, given).fetchall()
    return bool(found)


def _column(name: str, kind: str, array: bool, modifier: int, sort: str, shown: str, made: bool) -> ServerColumn:  # noqa: FBT001 - a row of the catalog
    from tidegauge.sources.postgres.types import arrow_of

    if array:
        kind, sort = (ARRAY, "b") if arrow_of(kind, -1, sort) is not None else (f"{kind}[]", "a")
    return ServerColumn(name, kind, modifier, sort, shown, made)


def _slot(plugin: str, database: str, confirmed: str | None, state: str | None, *more: Any) -> SlotFacts:
    active, synced, reason = more
    said = "removed log that it needed" if reason == "wal_removed" else "has invalidated it"
    lost = f"the server {said} (wal_status is 'lost', for {reason})" if state == "lost" else ""
    return SlotFacts(plugin, database, 0 if confirmed is None else Lsn.parse(confirmed).value, lost, active, synced)
