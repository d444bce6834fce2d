"""One transaction of a server that sees all tables at one place of the log, and the texts of their rows in it.

The server says at which place it sees them (`START TRANSACTION WITH CONSISTENT SNAPSHOT`). MySQL does not say it of a
transaction: there nothing commits while it begins, and the catalog is read as long.

Invariant: the rows, the position and the catalog that belong to it are of one instant, or it does not begin.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.mysqlsource import BinlogRightMissing, BinlogServerUnfit
from tidegauge.sources.mysql.catalog import FollowedTable, look, quoted
from tidegauge.sources.mysql.keyed import KeyColumn, RowsPart, TableKey
from tidegauge.sources.mysql.servers import ServerKind
from tidegauge.sources.mysql.sessions import GRANT, ServerPlace, explained, session

__all__ = ["RowsTransaction", "rows_transaction"]

_ROWS: Final = 512
_LOCK: Final = 10
"""Seconds for which commits are held up at the most, and for which it is waited until they are."""
_UNASKED: Final = frozenset({1227, 1401})
"""The server's numbers for a right that is missing for `XA RECOVER`."""
_REPEATABLE: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
_BEGIN: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_COLUMNS: Final = (
    "SELECT column_name, data_type, column_type, collation_name FROM information_schema.columns "
    "WHERE table_schema = %s AND table_name = %s"
)


@dataclass(frozen=True, slots=True)
class RowsTransaction:
    """The transaction. gtids: its position, as the server writes it. tables: the ones asked for, of a MySQL 5.6."""

    gtids: str
    tables: Sequence[FollowedTable]
    place: ServerPlace
    kind: ServerKind
    connection: Any

    def key(self, database: str, table: str) -> TableKey | None:
        """Return the primary key of a table, None where rows cannot be read behind one: it has only the beginning of
        a column, or its parts are in different directions."""
        with explained(self.place), self.connection.cursor() as cursor:
            cursor.execute(f"SHOW INDEX FROM {quoted(database)}.{quoted(table)} WHERE Key_name = 'PRIMARY'")
            parts = sorted((int(row[3]), row[4], row[5], row[7]) for row in cursor.fetchall())
            cursor.execute(_COLUMNS, (database, table))
            there = {row[0]: [(one or b"").decode() for one in row] for row in cursor.fetchall()}
            cursor.execute("SELECT @@version")
            version = cursor.fetchone()[0].decode()
        if any(direction != b"A" or cut is not None for _, _, direction, cut in parts):
            return None
        key = TableKey(tuple(KeyColumn(*there[name]) for _, name, _, _ in parts), version)
        return key if key.ordered else None

    def rows(
        self, database: str, table: str, columns: pa.Schema, part: RowsPart | None
    ) -> Generator[Sequence[tuple[bytes | None, ...]], None, None]:
        """Yield the rows of a table, some at a time, as the texts that the server writes. part: these alone, in the
        order of the key.

        The transaction is over where it is closed before its end.
        """
        from pymysql.cursors import SSCursor

        query = _query(database, table, columns, self.kind.name)
        for asked in [query] if part is None else [query + _behind(part, one) for one in part.conditions]:
            with explained(self.place), SSCursor(self.connection) as cursor:
                cursor.execute(asked)
                try:
                    while found := cursor.fetchmany(_ROWS):
                        yield found
                finally:  # whoever gives it up ends the session; the cursor would read on to the end of the table
                    self.connection._result.unbuffered_active = False  # noqa: SLF001 - nothing else tells it


@contextmanager
def rows_transaction(
    place: ServerPlace, kind: ServerKind, names: Sequence[tuple[str, str]]
) -> Iterator[RowsTransaction]:
    """Begin it, and end it. names: databases and tables. Raises `BinlogServerUnfit`, and what `explained` does."""
    with session(place) as connection:
        if kind.by_sets:
            gtids, tables = _begun_in_stillness(connection, place, kind, [] if kind.named else names)
        else:
            gtids, tables = _begun(connection, place.shown), list[FollowedTable]()
        yield RowsTransaction(gtids, tables, place, kind, connection)


def _begun(connection: Any, shown: str) -> str:
    """Begin the transaction, and return its position."""
    with connection.cursor() as cursor:
        _none_prepared(cursor, shown)
        cursor.execute(_REPEATABLE)
        cursor.execute(_BEGIN)
        _none_prepared(cursor, shown)
        cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
        where = {name.decode().lower(): value.decode() for name, value in cursor.fetchall()}
        file, at = where.get("binlog_snapshot_file", ""), where.get("binlog_snapshot_position", "0")
        cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, int(at)))
        found = cursor.fetchone()[0]
    if not found:
        detail = f"it does not say which transactions are in its log at {file}:{at}"
        raise BinlogServerUnfit(source=shown, detail=detail, remedy="change any row")
    return str(found.decode())


def _begun_in_stillness(
    connection: Any, place: ServerPlace, kind: ServerKind, names: Sequence[tuple[str, str]]
) -> tuple[str, list[FollowedTable]]:
    """Begin the transaction while nothing commits, look at the tables, and return its position and them.

    Nobody changes the tables of a MySQL 5.6 from then on.
    """
    with session(place) as locking, locking.cursor() as cursor, connection.cursor() as reading:
        # Should this driver be frozen, the server ends the session, and the lock with it.
        cursor.execute(f"SET lock_wait_timeout = {_LOCK}, wait_timeout = {_LOCK}")
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        reading.execute(_REPEATABLE)
        reading.execute(_BEGIN)
        for database, table in names:  # 5.6 shows one that is emptied before it is read as empty
            reading.execute(f"SELECT 1 FROM {quoted(database)}.{quoted(table)} LIMIT 0")  # noqa: S608 - both are quoted
        if kind.named:  # 5.6 writes rows when they are committed
            _none_prepared(cursor, place.shown)
        # An answer says that this session, and with it the lock, is still there.
        found = look(locking, names)
    return kind.clock.render(kind.end(place.shown, found.settings)), list(found.tables)


def _none_prepared(cursor: Any, shown: str) -> None:
    """Raise `BinlogServerUnfit` if a transaction is prepared by XA: its rows are in the log by now, before the first
    rows, which do not have them. Raises `BinlogRightMissing`."""
    from pymysql.err import MySQLError

    try:
        cursor.execute("XA RECOVER")
    except MySQLError as error:
        if error.args and error.args[0] in _UNASKED:
            raise BinlogRightMissing(source=shown, detail="XA RECOVER is denied", grant=GRANT) from None
        raise
    if prepared := cursor.fetchall():
        shown_id = prepared[0][-1].decode(errors="backslashreplace")
        detail = f"a transaction is prepared by XA, {shown_id[:100]!r}: its rows are in the log before the first rows"
        raise BinlogServerUnfit(source=shown, detail=detail, remedy="end it by XA COMMIT, or XA ROLLBACK")


def _behind(part: RowsPart, condition: str) -> str:
    """Return what a query says of a part, as the server reads it without sorting anything."""
    order = ", ".join(quoted(one) for one in part.key.names)
    return f" FORCE INDEX (PRIMARY){f' WHERE {condition}' if condition else ''} ORDER BY {order}"


def _query(database: str, table: str, columns: pa.Schema, kind: str) -> str:
    """Return the query for the texts of a table's rows: a float as the double that it is, since it is cut
    otherwise, and a bit as a number.

    >>> _query("shop", "o`s", pa.schema([("id", pa.int64()), ("f", pa.float32())]), "MariaDB")
    'SELECT CAST(`id` AS SIGNED), CAST(`f` AS DOUBLE) FROM `shop`.`o``s`'
    """
    double = "CAST({} AS DOUBLE)" if kind == "MariaDB" else "{} + 0e0"
    listed = []
    for field in columns:
        name = quoted(field.name)
        signed = "CAST({} AS SIGNED)" if pa.types.is_int64(field.type) else "{}"
        listed.append((double if pa.types.is_float32(field.type) else signed).format(name))
    return f"SELECT {', '.join(listed)} FROM {quoted(database)}.{quoted(table)}"  # noqa: S608 - all are quoted
