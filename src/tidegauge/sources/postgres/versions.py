"""What older servers lack: their catalogs and commands are asked in the words that they know.

    12    no `wal_status` of a slot, since a slot loses no log; no publication by the root of partitions
    13    no scan of a range of pages, see `ranges`
    14    no conditions on rows and no lists of columns in a publication; a slot is made by other words
    17    generated columns are never published, and catalogs say that they are

Invariant: a statement is written as the newest version takes it, and asks an older one for the same.

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
_SINCE: Final = (
    (130000, "pubviaroot", "false"),
    (130000, "wal_status", "'reserved'"),
    (150000, "t.attnames::text[]", _ALL_COLUMNS),
    (150000, "t.rowfilter", "NULL"),
    (180000, "false AS made", "a.attgenerated <> '' AS made"),
)
"""From which version on a server knows some words, and what an older one is asked in their place."""


def spoken(statement: str, version: int) -> str:
    """Return a statement as a server of a version takes it. version: `server_version_num`."""
    for since, words, older in _SINCE:
        if version < since:
            statement = statement.replace(words, older)
    return statement


def slot_made(slot: str, kind: str, version: int) -> str:
    """Return the command that makes a slot, and exports a snapshot. kind: see `LogSender.make`.

    >>> slot_made("shop", "TEMPORARY", 140000)
    'CREATE_REPLICATION_SLOT "shop" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'
    >>> slot_made("shop", "", 150000)
    'CREATE_REPLICATION_SLOT "shop" LOGICAL pgoutput (SNAPSHOT \\'export\\')'
    """
    exported = "(SNAPSHOT 'export')" if version >= 150000 else "EXPORT_SNAPSHOT"
    return " ".join(filter(None, (f'CREATE_REPLICATION_SLOT "{slot}"', kind, "LOGICAL pgoutput", exported)))
