"""What must be so before a table is followed: pure decisions on a look at the catalog.

Invariant: what passes can be followed without loss, as far as the catalog tells; what does not is named with the
statement that puts it right. Nothing is ever changed at the server but the slot.

>>> slot = SlotFacts("pgoutput", "shop", 48, "", None)
>>> check_slot("db", "s", slot, "shop", needed=64)
>>> check_slot("db", "s", slot, "shop", needed=32)
Traceback (most recent call last):
tidegauge.errors.postgressource.SlotAdvanced: TG-0370: the slot 's' of db was moved on to 0/30, and the flow needs ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from tidegauge.errors.postgressource import (
    PastAcknowledged,
    PublicationUnfit,
    ReplicaIdentityMissing,
    RightMissing,
    ServerUnfit,
    SlotActive,
    SlotAdvanced,
    SlotForeign,
    SlotLost,
    TableUnfit,
)
from tidegauge.operations import OP
from tidegauge.remap.fromtime.lsn import Lsn
from tidegauge.sources.database.sequence import SEQUENCE
from tidegauge.sources.postgres.catalog import (
    CatalogLook,
    PublicationFacts,
    PublishedTable,
    SlotFacts,
    TablePartition,
)
from tidegauge.sources.postgres.types import arrow_of
from tidegauge.sources.postgres.versions import OLDEST

__all__ = [
    "FOREIGN",
    "PLUGIN",
    "changed_tables",
    "check_server",
    "check_slot",
    "check_tables",
    "columns_of",
]

PLUGIN: Final = "pgoutput"
RESERVED: Final = frozenset({OP, SEQUENCE, "_partition", "_offset", "_timestamp", "_epoch"})
"""Columns that rows get beside those of their table."""
FOREIGN: Final = "detach it: rows of another server have no log here"
_KINDS: Final = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


def check_server(source: str, look: CatalogLook) -> None:
    """Raise `ServerUnfit` or `RightMissing` for a server, or a role, that cannot replicate."""
    if look.standby:
        raise ServerUnfit(source=source, detail="it is a standby", remedy="connect to the primary")
    if look.version < OLDEST:
        found, least = look.version // 10000, OLDEST // 10000
        remedy = f"upgrade it to version {least}, or a newer one"
        raise ServerUnfit(source=source, detail=f"it is of version {found}", remedy=remedy)
    if look.wal_level != "logical":
        raise ServerUnfit(
            source=source,
            detail=f"its wal_level is {look.wal_level!r}",
            remedy="ALTER SYSTEM SET wal_level = 'logical', then restart the server",
        )
    if not look.replicates:
        raise RightMissing(
            role=look.role,
            source=source,
            detail="it has not the attribute REPLICATION",
            grant=f'ALTER ROLE "{look.role}" REPLICATION',
        )


def check_tables(source: str, name: str, look: CatalogLook) -> None:
    """Raise the first thing that keeps a table, or the publication, from being followed."""
    if look.publication is None:
        listed = ", ".join([*map(str, look.tables), *look.missing])
        raise PublicationUnfit(
            publication=name,
            source=source,
            detail="is not there",
            statement=f'CREATE PUBLICATION "{name}" FOR TABLE {listed}',
        )
    if look.missing:
        raise TableUnfit(
            table=look.missing[0],
            source=source,
            detail="there is no such table",
            remedy="write its name as it is in the catalog, as 'schema.table' if it is not in public",
        )
    _check_publication(source, name, look.publication)
    for table in look.tables:
        check_table(source, name, look.role, table, root=look.publication.root)


def _check_publication(source: str, name: str, publication: PublicationFacts) -> None:
    said = {
        "insert": publication.inserts,
        "update": publication.updates,
        "delete": publication.deletes,
        "truncate": publication.truncates,
    }
    if lacking := [word for word, there in said.items() if not there]:
        raise PublicationUnfit(
            publication=name,
            source=source,
            detail=f"does not publish {lacking[0]}, so rows would stay behind unseen",
            statement=f"ALTER PUBLICATION \"{name}\" SET (publish = 'insert, update, delete, truncate')",
        )


def check_table(source: str, publication: str, role: str, table: PublishedTable, *, root: bool) -> None:
    """Raise what keeps one table from being followed. root: whether partitions speak in the name of their root."""
    if table.kind not in "rp":
        kind = _KINDS.get(table.kind, f"of the kind {table.kind!r}")
        raise TableUnfit(
            table=str(table), source=source, detail=f"it is {kind}", remedy="name an ordinary or a partitioned table"
        )
    if table.via:
        detail = f"it is a partition, and its changes come in the name of {table.via}"
        remedy = f"name {table.via} in its place, or: ALTER PUBLICATION ... SET (publish_via_partition_root = false)"
        raise TableUnfit(table=str(table), source=source, detail=detail, remedy=remedy)
    if table.kind == "p" and not root:
        raise PublicationUnfit(
            publication=publication,
            source=source,
            detail=f"gives the changes of {table} in the names of its partitions",
            statement=f'ALTER PUBLICATION "{publication}" SET (publish_via_partition_root = true)',
        )
    if table.published is None:
        raise PublicationUnfit(
            publication=publication,
            source=source,
            detail=f"lacks the table {table}",
            statement=f'ALTER PUBLICATION "{publication}" ADD TABLE {table}',
        )
    if table.filtered is not None:
        raise PublicationUnfit(
            publication=publication,
            source=source,
            detail=f"has a condition on the rows of {table}, and the first rows would be read without it",
            statement=f'make a publication without one: CREATE PUBLICATION "other" FOR TABLE {table}',
        )
    if table.identity == "n" or (table.identity != "f" and not table.key):
        detail = {"n": "it is NOTHING", "i": "its index is gone", "d": "there is no primary key"}[table.identity]
        raise ReplicaIdentityMissing(table=str(table), source=source, detail=detail)
    if not table.readable:
        raise RightMissing(
            role=role,
            source=source,
            detail=f"it cannot read {table}",
            grant=f'GRANT SELECT ON {table} TO "{role}"',
        )
    for leaf in table.partitions:
        _check_partition(source, role, table, leaf)
    columns_of(source, table)


def _check_partition(source: str, role: str, table: PublishedTable, leaf: TablePartition) -> None:
    """Raise what keeps a partition's rows from being followed as those of its table."""
    if leaf.kind != "r":
        detail = f"its partition {leaf.name} is a foreign table"
        raise TableUnfit(table=str(table), source=source, detail=detail, remedy=FOREIGN)
    if leaf.identity != "f" and (leaf.identity != table.identity or not leaf.key):
        said = "the server logs old rows by the identity of the partition, and that of the table is another one"
        raise ReplicaIdentityMissing(table=leaf.name, source=source, detail=said)
    if not leaf.readable:
        raise RightMissing(
            role=role,
            source=source,
            detail=f"it cannot read {leaf.name}",
            grant=f'GRANT SELECT ON {leaf.name} TO "{role}"',
        )


def columns_of(source: str, table: PublishedTable) -> pa.Schema:
    """Return the columns of a table's rows: the published ones. Raises `TableUnfit`."""
    found = []
    for column in table.columns:
        if column.generated or column.name not in (table.published or ()):
            continue
        kind = arrow_of(column.type, column.modifier, column.kind)
        remedy = f"leave it out: ALTER PUBLICATION ... SET TABLE {table} (the other columns)"
        if kind is None:
            detail = f"its column {column.name!r} is {column.shown}, which has no stable form as text"
            raise TableUnfit(table=str(table), source=source, detail=detail, remedy=remedy)
        if column.name.lower() in RESERVED:
            detail = f"its column {column.name!r} is called like one that is added to rows"
            raise TableUnfit(table=str(table), source=source, detail=detail, remedy=remedy)
        found.append((column.name, kind))
    return pa.schema(found)


def changed_tables(oids: Mapping[str, int], declared: Mapping[str, pa.Schema], look: CatalogLook) -> dict[str, str]:
    """Return the tables that are not those that were declared, by name, with why: gone, made again, without a column.

    >>> changed_tables({}, {}, CatalogLook(150000, "logical", False, "", True, "", 0, None, (), ("public.a",), None))
    {}
    """
    found = {name: "it was dropped, or has another name" for name in look.missing if name in declared}
    for table in look.tables:
        name = str(table)
        if oids.get(name, table.oid) != table.oid:
            found[name] = f"it was dropped and made again (its number was {oids[name]} and is {table.oid})"
        elif table.published is not None:  # else it may come back: see `check_table`
            there = {column.name for column in table.columns if column.name in table.published}
            if gone := [column for column in declared.get(name, pa.schema([])).names if column not in there]:
                found[name] = f"it has no column {gone[0]!r} that is published"
    return found


def check_slot(source: str, name: str, slot: SlotFacts | None, database: str, *, needed: int, told: int = 0) -> None:
    """Raise what keeps a slot that is ours from giving everything from a place on. told: what we told it is durable.

    The server would move a start forward to what the slot was told is durable, and say nothing (law 9).
    """
    if slot is None:
        raise SlotLost(source=source, slot=name, detail="it is not there any more")
    if slot.plugin != PLUGIN or slot.database != database:
        detail = f"it is one of {slot.plugin} in the database {slot.database or 'of none'!r}"
        raise SlotForeign(source=source, slot=name, detail=detail)
    if slot.lost:
        raise SlotLost(source=source, slot=name, detail=slot.lost)
    if needed < slot.confirmed <= told:
        raise PastAcknowledged(source=source, confirmed=str(Lsn(slot.confirmed)), needed=str(Lsn(needed)))
    if slot.confirmed > needed:
        raise SlotAdvanced(source=source, slot=name, confirmed=str(Lsn(slot.confirmed)), needed=str(Lsn(needed)))
    if slot.active is not None:
        raise SlotActive(source=source, slot=name, detail=f"the server's process {slot.active} sends to it")
