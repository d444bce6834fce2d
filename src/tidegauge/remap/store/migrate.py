"""The layout of the store: made when the store is new, brought forward when it is older, refused when it is newer.

Invariant: nothing is written to a store whose layout is not ours; making or changing the layout is all or nothing.

A driver of an older version that has the store open goes on undisturbed by a step as long as the step leaves alone
what is written while a flow runs. The step to layout 3 does not: it gives the names of two tables to views. Such a
driver's next binding or publishing fails (`StoreFailed`), in whole, because nobody can insert into these views; it
stops, what was bound and published stays, and the next run, of this version, goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, insert, inspect, select, update

from tidegauge.env import Env
from tidegauge.errors.store import NotAStore, StoreAway, StoreTooNew
from tidegauge.remap.store.address import File, parse
from tidegauge.remap.store.chain import begin
from tidegauge.remap.store.connect import Database
from tidegauge.remap.store.damage import beheaded
from tidegauge.remap.store.schema import LAYOUT, metadata, store_layout
from tidegauge.remap.store.views import VIEWS, create

__all__ = ["exists", "migrate"]

_STEPS: Final[Mapping[int, tuple[str, ...]]] = {
    1: (  # copies of what the outputs' tables say, which nobody read, gave way to the failures of outputs
        "ALTER TABLE outputs DROP COLUMN schema",
        "ALTER TABLE outputs DROP COLUMN upper",
        "ALTER TABLE outputs DROP COLUMN rows",
        "ALTER TABLE outputs DROP COLUMN bytes",
        "ALTER TABLE outputs ADD COLUMN failed_at BIGINT",
        "ALTER TABLE outputs ADD COLUMN failure TEXT",
    ),
    2: (  # the names `epochs` and `bindings` went to views; incarnations, states, holds and losses came
        "ALTER TABLE epochs RENAME TO timeline",
        "DROP INDEX epochs_by_time",
        "CREATE INDEX timeline_by_time ON timeline (flow_id, minted_at)",
        "ALTER TABLE bindings RENAME TO changes",
        "DROP INDEX bindings_by_position",
        "CREATE INDEX changes_by_partition ON changes (source_id, partition_id, epoch, position)",
        "ALTER TABLE sources ADD COLUMN clock TEXT",
        "ALTER TABLE sources ADD COLUMN folded BIGINT",
        """CREATE TABLE incarnations (
            source_id {ref} NOT NULL REFERENCES sources (id), number BIGINT NOT NULL, began_at BIGINT NOT NULL,
            identity TEXT, at VARCHAR(27) NOT NULL, reason TEXT NOT NULL,
            PRIMARY KEY (source_id, number)) {rowless}""",
        """CREATE TABLE source_states (
            source_id {ref} NOT NULL REFERENCES sources (id), epoch BIGINT NOT NULL, state TEXT NOT NULL,
            PRIMARY KEY (source_id, epoch)) {rowless}""",
        """CREATE TABLE holds (
            flow_id {ref} NOT NULL REFERENCES flows (id), owner TEXT NOT NULL, epoch BIGINT NOT NULL,
            at VARCHAR(27) NOT NULL, PRIMARY KEY (flow_id, owner)) {rowless}""",
        """CREATE TABLE losses (
            id {id} NOT NULL PRIMARY KEY, source_id {ref} NOT NULL REFERENCES sources (id), epoch BIGINT NOT NULL,
            partition TEXT NOT NULL, lower BIGINT NOT NULL, upper BIGINT NOT NULL, at VARCHAR(27) NOT NULL,
            code VARCHAR(16) NOT NULL, reason TEXT NOT NULL)""",
    ),
    3: ("ALTER TABLE timeline ADD COLUMN digest VARCHAR(32)",),  # each epoch has the digest of the history up to it
    4: (  # what a driver waits for can be seen by others
        """CREATE TABLE stalls (
            flow_id {ref} NOT NULL REFERENCES flows (id), kind VARCHAR(6) NOT NULL, name TEXT NOT NULL,
            since VARCHAR(27) NOT NULL, error TEXT NOT NULL, PRIMARY KEY (flow_id, kind, name)) {rowless}""",
    ),
    5: (  # a table that is away is told from one that is yet to be made; commits carry what was lost
        "ALTER TABLE outputs ADD COLUMN held BIGINT",
        "ALTER TABLE outputs ADD COLUMN told BIGINT",
    ),
}
"""What leads from each layout to the next one. `{id}` is the type of a table's own numbers, `{ref}` of another's;
`{rowless}` is said of a table that is its key's index."""

_WITHOUT_VIEWS: Final = 2
_WITHOUT_DIGESTS: Final = 3
"""The last layouts that had none."""

_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "sqlite": {"id": "INTEGER", "ref": "INTEGER", "rowless": "WITHOUT ROWID"},
    "postgresql": {"id": "BIGSERIAL", "ref": "BIGINT", "rowless": ""},
}


def migrate(database: Database, env: Env) -> None:
    """Bring the database to the layout of this version. Raises `StoreTooNew` or `NotAStore` and changes nothing."""
    with database.reading() as connection:
        if _layout(connection, database.url) == LAYOUT:
            return
    with database.writing(alone=True) as connection:
        found = _layout(connection, database.url)
        if found is None:
            metadata.create_all(connection, checkfirst=False)
            create(connection)
            connection.execute(insert(store_layout).values(version=LAYOUT, created_at=env.now()))
        elif found < LAYOUT:  # otherwise another process was first
            for version in range(found, LAYOUT):
                for statement in _STEPS[version]:
                    connection.exec_driver_sql(statement.format(**_WORDS[connection.dialect.name]))
            if found <= _WITHOUT_DIGESTS:
                begin(connection)
            if found <= _WITHOUT_VIEWS:
                create(connection)
            connection.execute(update(store_layout).values(version=LAYOUT))


def exists(url: str) -> bool:
    """Whether there is a store at an address. Looking makes nothing. Raises as `Database` does."""
    address = parse(url)
    if isinstance(address, File):
        try:
            return address.path.exists() or beheaded(address.path)
        except OSError as error:
            raise StoreAway(url=address.shown, detail=str(error), moved=False) from None
    database = Database(url)
    try:
        with database.reading() as connection:
            return inspect(connection).has_table(store_layout.name)
    finally:
        database.close()


def _layout(connection: Connection, url: str) -> int | None:
    """Return the version of the layout, None when nothing of it is there."""
    look = inspect(connection)
    there = {*look.get_table_names(), *look.get_view_names()}
    if store_layout.name not in there:
        taken = sorted(there & {*metadata.tables, *VIEWS})
        if taken:
            raise NotAStore(url=url, detail=f"it has tables of our names ({', '.join(taken)}), and they are not ours")
        return None
    found = connection.scalar(select(store_layout.c.version))
    if found is None or found < 1:
        raise NotAStore(url=url, detail=f"its layout is {found}")
    if found > LAYOUT:
        raise StoreTooNew(url=url, found=found, known=LAYOUT)
    return int(found)
