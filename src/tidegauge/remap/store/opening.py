"""How the database of a store is opened: its layout is made, brought forward or refused; or a copy is opened, where
the file cannot be written.

Invariant: nothing is written to a store whose layout is not ours; making or changing the layout is all or nothing.

A driver of an older version that has the store open goes on undisturbed by a step as long as the step leaves alone
the tables that a run writes. The step to layout 3 does not: it gives the names of two tables to views. Such a
driver's next binding or publishing fails (`StoreFailed`), in whole, because nobody can insert into these views; it
stops, its bindings and publications stay, and the next run, of this version, goes on from there.

Views are the timeline for people, with names in place of numbers, the same on every database. Each row comes from the
indexes: asked for one epoch or one partition, a view costs what its answer does, however much is bound. A row looks
for the change before it in `changes_by_partition`; a window function over the changes would compute all of them
first. Which epoch holds record 1234 of partition p0 of the source orders:

    SELECT min(epoch) FROM bindings
    WHERE flow = 'shop' AND source = 'orders' AND partition = 'p0' AND lower <= 1234 AND position > 1234;
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sqlalchemy import Connection, insert, inspect, select, update

from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.store import NotAStore, StoreAway, StoreNotReadable, StoreNotWritable, StoreTooNew
from tidegauge.remap.store.address import File, Server, parse
from tidegauge.remap.store.backfills import metadata
from tidegauge.remap.store.chain import begin
from tidegauge.remap.store.connect import Database
from tidegauge.remap.store.copies import copy
from tidegauge.remap.store.damage import beheaded
from tidegauge.remap.store.schema import LAYOUT, store_layout
from tidegauge.remap.store.sqlite import check_readable

__all__ = ["VIEWS", "copied", "create_views", "exists", "migrate", "opened"]

VIEWS: Final[Mapping[str, str]] = {
    "epochs": """
        SELECT f.name AS flow, t.epoch AS epoch, t.minted_at AS minted_at, t.published_at AS published_at,
               t.epoch < f.published AS published
        FROM flows f
        JOIN timeline t ON t.flow_id = f.id
    """,
    "bindings": """
        SELECT f.name AS flow, s.name AS source, coalesce(i.number, 0) AS incarnation, c.epoch AS epoch,
               p.key AS partition,
               coalesce((SELECT e.position FROM changes e
                         WHERE e.source_id = c.source_id AND e.partition_id = c.partition_id
                               AND e.epoch < c.epoch AND e.epoch >= coalesce(i.began_at, 0)
                         ORDER BY e.epoch DESC LIMIT 1), 0) AS lower,
               c.position AS position
        FROM flows f
        JOIN sources s ON s.flow_id = f.id
        JOIN partitions p ON p.source_id = s.id
        JOIN changes c ON c.source_id = s.id AND c.partition_id = p.id
        LEFT JOIN incarnations i ON i.source_id = c.source_id AND i.number = (
            SELECT max(n.number) FROM incarnations n WHERE n.source_id = c.source_id AND n.began_at <= c.epoch)
    """,
    "progress": """
        SELECT f.name AS flow, s.name AS source, coalesce(i.number, 0) AS incarnation, p.key AS partition,
               c.position AS position, c.epoch AS epoch,
               coalesce((SELECT e.position FROM changes e
                         WHERE e.source_id = s.id AND e.partition_id = p.id
                               AND e.epoch < f.published AND e.epoch >= coalesce(i.began_at, 0)
                         ORDER BY e.epoch DESC LIMIT 1), 0) AS published_position,
               x.source_id IS NOT NULL AS sealed
        FROM flows f
        JOIN sources s ON s.flow_id = f.id
        JOIN partitions p ON p.source_id = s.id
        LEFT JOIN incarnations i ON i.source_id = s.id AND i.number = (
            SELECT max(n.number) FROM incarnations n WHERE n.source_id = s.id)
        JOIN changes c ON c.source_id = s.id AND c.partition_id = p.id AND c.epoch = (
            SELECT max(e.epoch) FROM changes e
            WHERE e.source_id = s.id AND e.partition_id = p.id AND e.epoch >= coalesce(i.began_at, 0))
        LEFT JOIN seals x ON x.source_id = s.id
    """,
    "gaps": """
        SELECT f.name AS flow, s.name AS source, l.epoch AS epoch, l.partition AS partition, l.lower AS lower,
               l.upper AS upper, l.at AS at, l.code AS code, l.reason AS reason
        FROM flows f
        JOIN sources s ON s.flow_id = f.id
        JOIN losses l ON l.source_id = s.id
    """,
}
"""The views by name, each as what it selects. docs/reference/store.md says what their columns mean."""

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
    6: (  # what an output has staged of its past outlives a driver
        """CREATE TABLE backfills (
            flow_id {ref} NOT NULL REFERENCES flows (id), output TEXT NOT NULL, start BIGINT NOT NULL,
            cutover BIGINT NOT NULL, mode VARCHAR(8) NOT NULL, steps VARCHAR(32) NOT NULL, at VARCHAR(27) NOT NULL,
            PRIMARY KEY (flow_id, output)) {rowless}""",
        """CREATE TABLE units (
            flow_id {ref} NOT NULL REFERENCES flows (id), output TEXT NOT NULL, lower BIGINT NOT NULL,
            upper BIGINT NOT NULL, job VARCHAR(32) NOT NULL, columns TEXT NOT NULL, files TEXT NOT NULL,
            rows BIGINT NOT NULL, PRIMARY KEY (flow_id, output, lower)) {rowless}""",
    ),
    7: (  # people decide about outputs while the flow runs
        "ALTER TABLE flows ADD COLUMN decisions BIGINT",
        "ALTER TABLE flows ADD COLUMN rate BIGINT",
        """CREATE TABLE pauses (
            flow_id {ref} NOT NULL REFERENCES flows (id), output TEXT NOT NULL, reason VARCHAR(16) NOT NULL,
            at VARCHAR(27) NOT NULL, PRIMARY KEY (flow_id, output, reason)) {rowless}""",
    ),
    8: (  # outputs may begin elsewhere than their sources
        """CREATE TABLE starts (
            flow_id {ref} NOT NULL REFERENCES flows (id), output TEXT NOT NULL, said TEXT NOT NULL,
            epoch BIGINT NOT NULL, at VARCHAR(27) NOT NULL, PRIMARY KEY (flow_id, output)) {rowless}""",
    ),
    9: (  # a change of an output's code does not go unnoticed
        """CREATE TABLE codes (
            flow_id {ref} NOT NULL REFERENCES flows (id), output TEXT NOT NULL, epoch BIGINT NOT NULL,
            code TEXT NOT NULL, at VARCHAR(27) NOT NULL, PRIMARY KEY (flow_id, output, epoch)) {rowless}""",
    ),
    10: (  # the past of an output may have one epoch
        "ALTER TABLE starts ADD COLUMN timestamps TEXT",
        "ALTER TABLE starts ADD COLUMN stamp BIGINT",
    ),
    11: (  # the table of an output may be made again
        """CREATE TABLE replacements (
            flow_id {ref} NOT NULL REFERENCES flows (id), output TEXT NOT NULL, edition VARCHAR(32) NOT NULL,
            code TEXT NOT NULL, at VARCHAR(27) NOT NULL, PRIMARY KEY (flow_id, output)) {rowless}""",
    ),
    12: (  # a unit may be a part of an epoch; a driver that knows whole epochs alone goes on recording those
        "CREATE TABLE units_12 AS SELECT * FROM units",
        "DROP TABLE units",
        """CREATE TABLE units (
            flow_id {ref} NOT NULL REFERENCES flows (id), output TEXT NOT NULL, lower BIGINT NOT NULL,
            part BIGINT DEFAULT '0' NOT NULL, upper BIGINT NOT NULL, partition TEXT DEFAULT '' NOT NULL,
            position BIGINT DEFAULT '0' NOT NULL, job VARCHAR(32) NOT NULL, columns TEXT NOT NULL,
            files TEXT NOT NULL, rows BIGINT NOT NULL, PRIMARY KEY (flow_id, output, lower, part)) {rowless}""",
        """INSERT INTO units (flow_id, output, lower, upper, job, columns, files, rows)
            SELECT flow_id, output, lower, upper, job, columns, files, rows FROM units_12""",
        "DROP TABLE units_12",
    ),
    13: (  # a source may get other columns, from a position on
        """CREATE TABLE earlier_columns (
            source_id {ref} NOT NULL REFERENCES sources (id), epoch BIGINT NOT NULL, incarnation BIGINT NOT NULL,
            columns TEXT NOT NULL, at VARCHAR(27) NOT NULL, PRIMARY KEY (source_id, epoch)) {rowless}""",
        """CREATE TABLE earlier_positions (
            source_id {ref} NOT NULL REFERENCES sources (id), epoch BIGINT NOT NULL,
            partition_id {ref} NOT NULL REFERENCES partitions (id), position BIGINT NOT NULL,
            PRIMARY KEY (source_id, epoch, partition_id)) {rowless}""",
    ),
}
"""What leads from each layout to the next one. `{id}` is the type of a table's own numbers, `{ref}` of another's;
`{rowless}` marks a table that is its key's index."""

_WITHOUT_VIEWS: Final = 2
_WITHOUT_DIGESTS: Final = 3
"""The last layouts that had none."""

_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "sqlite": {"id": "INTEGER", "ref": "INTEGER", "rowless": "WITHOUT ROWID"},
    "postgresql": {"id": "BIGSERIAL", "ref": "BIGINT", "rowless": ""},
}

_VERSION: Final = select(store_layout.c.version)
"""Made once, which takes longer than to run it."""


def create_views(connection: Connection) -> None:
    """Make the views."""
    for name, query in VIEWS.items():
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query.strip()}")


def migrate(database: Database, env: Env, *, served: bool) -> None:
    """Bring the database to the layout of this version. served: whether a server has it, which knows who may read.

    Raises `StoreTooNew`, `NotAStore` or `StoreNotReadable` and changes nothing.
    """
    try:
        with database.reading() as connection:
            if _layout(connection, database.url) == LAYOUT:
                return
    except StoreNotWritable as refused:
        if not served or store_layout.name not in str(refused.evidence["detail"]):
            raise
        raise StoreNotReadable(**refused.evidence) from None
    with database.writing(alone=True) as connection:
        found = _layout(connection, database.url)
        if found is None:
            metadata.create_all(connection, checkfirst=False)
            create_views(connection)
            connection.execute(insert(store_layout).values(version=LAYOUT, created_at=env.now()))
        elif found < LAYOUT:  # otherwise another process was first
            for version in range(found, LAYOUT):
                for statement in _STEPS[version]:
                    connection.exec_driver_sql(statement.format(**_WORDS[connection.dialect.name]))
            if found <= _WITHOUT_DIGESTS:
                begin(connection)
            if found <= _WITHOUT_VIEWS:
                create_views(connection)
            connection.execute(update(store_layout).values(version=LAYOUT))


def exists(url: str) -> bool:
    """Whether there is a store at an address. Looking makes nothing. Raises as `Database` does."""
    address = parse(url)
    if isinstance(address, File):
        check_readable(address)
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
    if not look.has_table(store_layout.name, look.default_schema_name):
        there = {*look.get_table_names(), *look.get_view_names()}
        taken = sorted(there & {*metadata.tables, *VIEWS})
        if taken:
            raise NotAStore(url=url, detail=f"it has tables of our names ({', '.join(taken)}), and they are not ours")
        return None
    found = connection.scalar(_VERSION)
    if found is None or found < 1:
        raise NotAStore(url=url, detail=f"its layout is {found}")
    if found > LAYOUT:
        raise StoreTooNew(url=url, found=found, known=LAYOUT)
    return int(found)


def opened(address: File | Server, env: Env) -> Database:
    """Open a database and bring it to the layout of this version."""
    database = Database(address, sleep=env.sleep, backend=env.connect)
    try:
        migrate(database, env, served=isinstance(address, Server))
    except BaseException:
        database.close()
        raise
    return database


def copied(address: File, env: Env, refused: TidegaugeError) -> tuple[Database, TemporaryDirectory[str]]:
    """Open a copy of a file that cannot be written, in a folder to be removed. What writes raises `refused`.

    Also what an older version wrote can be read from it.
    """
    try:
        folder = TemporaryDirectory(prefix="tidegauge-")
    except OSError:
        raise refused from None
    try:
        path = Path(folder.name) / address.path.name
        copy(address.path, path)
        database = opened(replace(address, path=path, url=address.url.set(database=str(path))), env)
    except BaseException:
        folder.cleanup()
        raise
    database.refused = refused
    return database, folder
