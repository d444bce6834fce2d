"""What the server's catalog says of a publication, its tables and a slot: one look, as plain values.

Invariant: nothing is decided here, and nothing changed; all of it is of one instant (one transaction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.postgres.types import ARRAY
from tidegauge.sources.postgres.versions import OLDEST, spoken

__all__ = [
    "CatalogLook",
    "PublicationFacts",
    "PublishedTable",
    "ServerColumn",
    "SlotFacts",
    "SlotLog",
    "look",
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
class PublishedTable:
    """A table. kind: `pg_class.relkind`. identity: `relreplident`. key: whether it has what the identity says.

    published: the columns that the publication has, None where it lacks the table. filtered: the condition on rows.
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
    """A slot. confirmed: what it was told is durable. lost: why it can give nothing any more, "" if it can."""

    plugin: str
    database: str
    confirmed: int
    lost: str
    active: int | None


@dataclass(frozen=True, slots=True)
class SlotLog:
    """The log that a slot keeps, in bytes, and the most that it may, None for any number. ending: if it has more."""

    size: int
    limit: int | None
    ending: bool


@dataclass(frozen=True, slots=True)
class CatalogLook:
    """The findings. end: the place to which the log is durable. missing: the tables that are not there."""

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
           has_table_privilege(c.oid, 'SELECT'), t.attnames::text[], t.rowfilter
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_publication_tables t
           ON t.pubname = %s AND t.schemaname = n.nspname AND t.tablename = c.relname
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
_SLOT_LOG: Final = """
    SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END) - restart_lsn,
           coalesce((SELECT setting::int8 FROM pg_settings WHERE name = 'max_slot_wal_keep_size'), -1), wal_status
    FROM pg_replication_slots WHERE slot_name = %s
"""
_SLOT: Final = """
    SELECT coalesce(plugin, slot_type)::text, coalesce(database, '')::text, confirmed_flush_lsn::text,
           wal_status, active_pid
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
    asked = {one: spoken(one, version) for one in (_PUBLICATION, _TABLES, _COLUMNS, _SLOT)}
    published = cursor.execute(asked[_PUBLICATION], (publication,)).fetchone()
    found: list[PublishedTable] = []
    missing: list[str] = []
    for schema, name in tables:
        row = cursor.execute(asked[_TABLES], (publication, schema, name)).fetchone()
        if row is None:
            missing.append(f"{schema}.{name}")
            continue
        oid, kind, identity, key, readable, attributes, condition = row
        columns = tuple(_column(*one) for one in cursor.execute(asked[_COLUMNS], (oid,)).fetchall())
        whole = None if attributes is None else tuple(attributes)
        found.append(PublishedTable(oid, schema, name, kind, identity, key, readable, whole, condition, columns))
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
    )


def _column(name: str, kind: str, array: bool, modifier: int, sort: str, shown: str, made: bool) -> ServerColumn:  # noqa: FBT001 - a row of the catalog
    from tidegauge.sources.postgres.types import arrow_of

    if array:
        kind, sort = (ARRAY, "b") if arrow_of(kind, -1, sort) is not None else (f"{kind}[]", "a")
    return ServerColumn(name, kind, modifier, sort, shown, made)


def _slot(plugin: str, database: str, confirmed: str | None, state: str | None, active: int | None) -> SlotFacts:
    lost = "the server removed log that it needed (wal_status is 'lost')" if state == "lost" else ""
    return SlotFacts(plugin, database, 0 if confirmed is None else Lsn.parse(confirmed).value, lost, active)
