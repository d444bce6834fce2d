"""The progress of outputs, in the schema `tidegauge` of their database: how far each table is, and whose it is.

    tidegauge.progress    one row for each table: the output, its upper, the last attempt, the digest of the history
    tidegauge.links       the links of the flow's history, a row for each commit

Invariant: a table's row changes in the transaction that changes the table, and nowhere else.

*Recreated or restored?* A table is told from another one of its name by its number in the catalog. A dump that is
restored gives all tables new numbers: then the progress table has another one than its own row says, and the row is
believed, unless the table has rows of epochs that the row does not know (`ProgressApart`). Where only the table has
another number it was recreated, and its row tells nothing of it.

*Whose word is it?* A row also names the transaction that wrote it, and the server keeps with each row which one that
was. If they differ, somebody else has set the row, or restored it, and it is `unsure`: the table is asked for its
greatest epoch before anything is believed.

>>> mine = OutputId("shop", "orders", "a" * 32)
>>> row = ProgressRow("shop", "orders", "a" * 32, upper=7, table_oid=17, progress_oid=5)
>>> [row.tells_of(oid, of=progress) for oid, progress in ((17, 5), (18, 5), (18, 6))]
[True, False, True]
>>> row.after(9, History(), write="w", rows=2, size=80, key=()).upper
9
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from psycopg import Cursor

from tidegauge.remap.history import History
from tidegauge.sinks.postgres.catalog import schema_is_there
from tidegauge.sinks.postgres.place import TableName
from tidegauge.sinks.protocol import OutputId

__all__ = ["ProgressRow", "forget_links", "kept_links", "progress_number", "read", "record", "set_up"]

_SETTING_UP: Final = int.from_bytes(b"tidegaug")
"""The advisory lock of those who make the schema: the store's, which makes tables too."""

_NUMBER: Final = """
    SELECT c.oid::bigint FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'tidegauge' AND c.relname = 'progress'
"""
"""Not `to_regclass`: it may not know yet what others have committed since the transaction began."""
_MADE: Final = (
    """
    CREATE TABLE tidegauge.progress (
        table_schema text NOT NULL,
        table_name text NOT NULL,
        flow text NOT NULL,
        output text NOT NULL,
        incarnation text NOT NULL,
        upper bigint NOT NULL,
        write text NOT NULL,
        digest text NOT NULL,
        key text[] NOT NULL,
        rows bigint NOT NULL,
        size bigint NOT NULL,
        table_oid bigint NOT NULL,
        progress_oid bigint NOT NULL,
        xid bigint NOT NULL,
        PRIMARY KEY (table_schema, table_name)
    )
    """,
    """
    CREATE TABLE tidegauge.links (
        table_schema text NOT NULL,
        table_name text NOT NULL,
        upper bigint NOT NULL,
        lines text NOT NULL,
        PRIMARY KEY (table_schema, table_name, upper)
    )
    """,
)


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """How far a table is. key: the columns that it has one row for, none where it has all rows.

    rows, size: how many rows the commits have left there, and how many bytes were staged for them.
    unsure: whether others have written the row since.
    """

    flow: str
    output: str
    incarnation: str
    upper: int = 0
    write: str = ""
    digest: str = ""
    key: tuple[str, ...] = ()
    rows: int = 0
    size: int = 0
    table_oid: int = 0
    progress_oid: int = 0
    unsure: bool = False

    def tells_of(self, table: int, *, of: int) -> bool:
        """Whether it is of the table with a number, given the present number of the progress table."""
        return self.table_oid == table or self.progress_oid != of

    def is_of(self, output: OutputId) -> bool:
        """Whether it is of an output, in whatever life."""
        return (self.flow, self.output) == (output.flow, output.output)

    def after(
        self, upper: int, history: History, *, write: str, rows: int, size: int, key: tuple[str, ...]
    ) -> ProgressRow:
        """Return the progress after a commit up to `upper` that leaves this many rows more."""
        return replace(
            self,
            upper=upper,
            write=write,
            digest=history.digest,
            key=key,
            rows=max(0, self.rows + rows),
            size=self.size + size,
        )


_NAMES: Final = [one.name for one in fields(ProgressRow) if one.name != "unsure"]
_READ: Final = (
    f"""
    SELECT {", ".join(_NAMES)}, xmin::text::bigint <> (xid & 4294967295) OR progress_oid <> tableoid::bigint
    FROM tidegauge.progress WHERE table_schema = %s AND table_name = %s
"""  # noqa: S608 - names of our own; xmin has the last 32 bits
).encode()
_WRITE: Final = (
    f"""
    INSERT INTO tidegauge.progress AS held (table_schema, table_name, {", ".join(_NAMES)}, xid)
    VALUES ({", ".join(["%s"] * (2 + len(_NAMES)))}, pg_catalog.pg_current_xact_id()::text::bigint)
    ON CONFLICT (table_schema, table_name)
    DO UPDATE SET {", ".join(f"{name} = EXCLUDED.{name}" for name in [*_NAMES, "xid"])}
"""  # noqa: S608 - names of our own
).encode()


def progress_number(cursor: Cursor[Any]) -> int:
    """Return the number of the progress table, 0 where there is none yet."""
    row = cursor.execute(_NUMBER).fetchone()
    return int(row[0]) if row else 0


def read(cursor: Cursor[Any], name: TableName, *, lock: bool) -> ProgressRow | None:
    """Return the row of a table, None where there is none. lock: keep it from others until the transaction ends."""
    found = cursor.execute(_READ + b" FOR UPDATE" if lock else _READ, (name.schema, name.name)).fetchone()
    if found is None:
        return None
    values = dict(zip([*_NAMES, "unsure"], found, strict=True))
    return ProgressRow(**{**values, "key": tuple(values["key"])})


def set_up(cursor: Cursor[Any]) -> int:
    """Make the schema and its tables where they are missing, and return the number of the progress table."""
    if not progress_number(cursor):
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_SETTING_UP,))
        if not progress_number(cursor):  # a privilege is asked for even where IF NOT EXISTS has nothing to do
            if not schema_is_there(cursor, "tidegauge"):
                cursor.execute("CREATE SCHEMA tidegauge")
            for statement in _MADE:
                cursor.execute(statement)
    return progress_number(cursor)


def record(cursor: Cursor[Any], name: TableName, row: ProgressRow, history: History) -> None:
    """Write the row of a table, and the links of the commit."""
    values = {**asdict(row), "key": list(row.key)}
    cursor.execute(_WRITE, (name.schema, name.name, *(values[one] for one in _NAMES)))
    if history.links:
        cursor.execute(
            "INSERT INTO tidegauge.links VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (name.schema, name.name, row.upper, history.encode()),
        )


def forget_links(cursor: Cursor[Any], name: TableName) -> None:
    """Remove the links of a table that was there before."""
    cursor.execute(
        "DELETE FROM tidegauge.links WHERE (table_schema, table_name) = (%s, %s)", (name.schema, name.name)
    )


def kept_links(cursor: Cursor[Any], name: TableName) -> Iterable[str]:
    """Return the lines of links, a text for each commit."""
    query = "SELECT lines FROM tidegauge.links WHERE (table_schema, table_name) = (%s, %s) ORDER BY upper"
    return [str(lines) for (lines,) in cursor.execute(query, (name.schema, name.name)).fetchall()]
