"""The layout of the store: made when the store is new, refused when it is newer than this version.

Invariant: nothing is written to a store whose layout is not ours, and making the layout is all or nothing.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, inspect, select

from tidegauge.env import Env
from tidegauge.errors.store import NotAStore, StoreTooNew
from tidegauge.remap.store.connect import Database
from tidegauge.remap.store.schema import LAYOUT, metadata, store_layout

__all__ = ["migrate"]


def migrate(database: Database, env: Env) -> None:
    """Bring the database to the layout of this version. Raises `StoreTooNew` or `NotAStore` and changes nothing."""
    with database.reading() as connection:
        if _is_current(connection, database.url):
            return
    with database.writing() as connection:
        if not _is_current(connection, database.url):  # another process may have been first
            metadata.create_all(connection)
            connection.execute(insert(store_layout).values(version=LAYOUT, created_at=env.now()))


def _is_current(connection: Connection, url: str) -> bool:
    """Whether the layout is there and ours; False when nothing of it is there."""
    there = set(inspect(connection).get_table_names())
    if store_layout.name not in there:
        taken = sorted(there & set(metadata.tables))
        if taken:
            raise NotAStore(url=url, detail=f"it has tables of our names ({', '.join(taken)}), and they are not ours")
        return False
    found = connection.scalar(select(store_layout.c.version))
    if found is None or found < 1:
        raise NotAStore(url=url, detail=f"its layout is {found}")
    if found > LAYOUT:
        raise StoreTooNew(url=url, found=found, known=LAYOUT)
    return True
