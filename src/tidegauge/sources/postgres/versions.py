"""What older servers lack: their catalogs and commands are asked in the words that they know.

    12    no `wal_status` of a slot, since a slot loses no log; no publication by the root of partitions
    13    no scan of a range of pages, see `ranges`
    14    no conditions on rows and no lists of columns in a publication; a slot is made by other words
    15    catalogs say that a publication has generated columns
    16    no slot outlives the promotion of a standby
    17    generated columns are never published

From 16 on the view of the tables of a publication waits for a session that has locked one of them, as `VACUUM FULL`
does for hours, and meanwhile all other tables would wait, too. So the catalogs under it are asked instead.

Invariant: a statement asks each version for the same, and waits for nobody.

>>> spoken("SELECT wal_status FROM pg_replication_slots", 120022)
"SELECT 'reserved' FROM pg_replication_slots"
>>> spoken("SELECT wal_status FROM pg_replication_slots", 130000)
'SELECT wal_status FROM pg_replication_slots'
"""

from __future__ import annotations

from typing import Final

__all__ = ["OLDEST", "slot_made", "spoken"]

OLDEST: Final = 120000
"""The oldest version that is followed: earlier ones do not write a float by the digits that make it."""
_ALL_COLUMNS: Final = """CASE WHEN t.tablename IS NOT NULL THEN (SELECT array_agg(a.attname::text) FROM pg_attribute a
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) END"""
_PUBLISHED: Final = """(
    SELECT p.pubname, n.nspname AS schemaname, c.relname AS tablename,
           (SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            AND CASE WHEN r.prattrs IS NULL THEN a.attgenerated = '' OR p.pubgencols = 's' AND a.attgenerated = 's'
                ELSE a.attnum = ANY (r.prattrs::int2[]) END) AS attnames,
           CASE WHEN r.prqual IS NOT NULL THEN 'there is one' END AS rowfilter
    FROM pg_publication p CROSS JOIN pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid AND NOT p.puballtables
         AND NOT EXISTS (SELECT FROM pg_publication_namespace y WHERE y.pnpubid = p.oid AND y.pnnspid = n.oid)
    CROSS JOIN LATERAL (
        SELECT coalesce(bool_or(k.oid = c.oid), false) AS itself, coalesce(bool_or(k.oid <> c.oid), false) AS above
        FROM pg_class k WHERE k.oid IN (SELECT c.oid UNION SELECT x.relid::oid FROM pg_partition_ancestors(c.oid) x)
        AND (EXISTS (SELECT FROM pg_publication_rel y WHERE (y.prpubid, y.prrelid) = (p.oid, k.oid)) OR EXISTS (
             SELECT FROM pg_publication_namespace y WHERE (y.pnpubid, y.pnnspid) = (p.oid, k.relnamespace)))
    ) named
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384
    AND CASE WHEN p.puballtables THEN CASE c.relkind WHEN 'p' THEN p.pubviaroot AND NOT c.relispartition
                                      ELSE NOT (p.pubviaroot AND c.relispartition) END
             WHEN p.pubviaroot THEN named.itself AND NOT named.above
             ELSE c.relkind = 'r' AND (named.itself OR named.above) END)"""
"""What the view `pg_publication_tables` says, from the catalogs under it."""
_SINCE: Final = (
    (130000, "pubviaroot", "false"),
    (130000, "wal_status", "'reserved'"),
    (150000, "t.attnames::text[]", _ALL_COLUMNS),
    (150000, "t.rowfilter", "NULL"),
    (150000, "r.prattrs IS NOT NULL", "false"),
    (150000, "m.prattrs::text", "''"),
    (150000, "pg_publication_namespace y", "(SELECT 0::oid AS oid, 0::oid AS pnpubid, 0::oid AS pnnspid) y"),
    (160000, "false AS made", "a.attgenerated <> '' AS made"),
    (170000, "active_pid, synced", "active_pid, false"),
    (170000, "coalesce(invalidation_reason, 'wal_removed')", "'wal_removed'"),
    (180000, "p.pubgencols", "'n'"),
)
"""From which version on a server knows some words, and what an older one is asked in their place."""


def spoken(statement: str, version: int) -> str:
    """Return a statement as a server of a version takes it. version: `server_version_num`."""
    if version >= 160000:
        statement = statement.replace("pg_publication_tables", _PUBLISHED)
    for since, words, older in _SINCE:
        if version < since:
            statement = statement.replace(words, older)
    return statement


def slot_made(slot: str, kind: str, version: int) -> str:
    """Return the command that makes a slot, and exports a snapshot. kind: see `LogSender.make`.

    Standbys may synchronise one that does not go with its session.

    >>> slot_made("shop", "TEMPORARY", 140000)
    'CREATE_REPLICATION_SLOT "shop" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'
    >>> slot_made("shop", "", 150000)
    'CREATE_REPLICATION_SLOT "shop" LOGICAL pgoutput (SNAPSHOT \\'export\\')'
    """
    exported = "(SNAPSHOT 'export')" if version >= 150000 else "EXPORT_SNAPSHOT"
    if version >= 170000 and not kind:
        exported = "(SNAPSHOT 'export', FAILOVER true)"
    return " ".join(filter(None, (f'CREATE_REPLICATION_SLOT "{slot}"', kind, "LOGICAL pgoutput", exported)))
