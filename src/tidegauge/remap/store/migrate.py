"""The layout of the store: made when the store is new, brought forward when it is older, refused when it is newer.

Invariant: nothing is written to a store whose layout is not ours; making or changing the layout is all or nothing.

A driver of an older version that has the store open goes on undisturbed by a step as long as the step leaves alone
what is written while a flow runs (`flows`, `leases`, `epochs`, `bindings`, `partitions`, `seals`, failures of
`sources`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, insert, inspect, select, update

from tidegauge.env import Env
from tidegauge.errors.store import NotAStore, StoreTooNew
from tidegauge.remap.store.connect import Database
from tidegauge.remap.store.schema import LAYOUT, metadata, store_layout

__all__ = ["migrate"]

_STEPS: Final[Mapping[int, tuple[str, ...]]] = {
    1: (  # copies of what the outputs' tables say, which nobody read, gave way to the failures of outputs
        "ALTER TABLE outputs DROP COLUMN schema",
        "ALTER TABLE outputs DROP COLUMN upper",
        "ALTER TABLE outputs DROP COLUMN rows",
        "ALTER TABLE outputs DROP COLUMN bytes",
        "ALTER TABLE outputs ADD COLUMN failed_at BIGINT",
        "ALTER TABLE outputs ADD COLUMN failure TEXT",
    ),
}
"""What leads from each layout to the next one."""


def migrate(database: Database, env: Env) -> None:
    """Bring the database to the layout of this version. Raises `StoreTooNew` or `NotAStore` and changes nothing."""
    with database.reading() as connection:
        if _layout(connection, database.url) == LAYOUT:
            return
    with database.writing() as connection:
        found = _layout(connection, database.url, lock=True)  # another process may have been first
        if found is None:
            metadata.create_all(connection)
            connection.execute(insert(store_layout).values(version=LAYOUT, created_at=env.now()))
            return
        for version in range(found, LAYOUT):
            for statement in _STEPS[version]:
                connection.exec_driver_sql(statement)
        connection.execute(update(store_layout).values(version=LAYOUT))


def _layout(connection: Connection, url: str, *, lock: bool = False) -> int | None:
    """Return the version of the layout, None when nothing of it is there; with `lock`, nobody else changes it now."""
    there = set(inspect(connection).get_table_names())
    if store_layout.name not in there:
        taken = sorted(there & set(metadata.tables))
        if taken:
            raise NotAStore(url=url, detail=f"it has tables of our names ({', '.join(taken)}), and they are not ours")
        return None
    query = select(store_layout.c.version)
    found = connection.scalar(query.with_for_update() if lock else query)
    if found is None or found < 1:
        raise NotAStore(url=url, detail=f"its layout is {found}")
    if found > LAYOUT:
        raise StoreTooNew(url=url, found=found, known=LAYOUT)
    return int(found)
