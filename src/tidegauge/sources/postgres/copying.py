"""The rows of a `COPY ... TO STDOUT`, those that have come at once: the server sends each in a message of its own.

psycopg waits, and tells errors. But each row that it gives takes it several times as long as taking one that is here
from libpq; so it is asked for one whenever there is none here, and the others are taken past it.

Invariant: all rows in their order, each once; the end leaves the connection as psycopg's own reading does.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from tidegauge.sources.readable import readable

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

__all__ = ["copied"]

_LONG: Final = 60.0
"""Seconds after which it is looked again for the end of a statement; something comes before."""


def copied(connection: psycopg.Connection[Any], statement: bytes | sql.Composed) -> Generator[list[Any], None, None]:
    """Yield the rows that have come, each as bytes, at least one at a time. Raises `psycopg.Error`.

    Closing it early cancels the statement.
    """
    take = connection.pgconn.get_copy_data
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        while row := copy.read():
            size, rows = 1, list[Any]()
            while size > 0:
                rows.append(row)
                size, row = take(1)
            yield rows
            if size < 0:
                _end(connection)
                return


def _end(connection: psycopg.Connection[Any]) -> None:
    """Take the result of a statement whose rows are all here. Raises `psycopg.Error` where it failed."""
    from psycopg import errors, pq

    pg, failed = connection.pgconn, None
    while True:
        while pg.is_busy():
            readable(pg.socket, _LONG)
            pg.consume_input()
        if (result := pg.get_result()) is None:
            break
        failed = result if result.status == pq.ExecStatus.FATAL_ERROR else failed
    if failed is not None:
        raise errors.error_from_result(failed)
