"""The rows of a copy: all of them, however they come, and what the server says among them or at their end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from tests.postgres import Server

from tidegauge.sources.postgres.copying import copied


@pytest.fixture
def connection(logical: Server) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(logical.address("postgres")) as found:
        yield found


def copy(query: LiteralString) -> sql.Composed:
    return sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(sql.SQL(query))


def lines(connection: psycopg.Connection[Any], query: LiteralString) -> list[bytes]:
    return [bytes(row) for rows in copied(connection, copy(query)) for row in rows]


@pytest.mark.parametrize("count", [0, 1, 2, 100_000])
def test_all_rows_come_in_their_order(count: int, connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT set_config('bench.rows', %s, false)", (str(count),))
    found = lines(connection, "SELECT i FROM generate_series(1, current_setting('bench.rows')::int) i")
    assert found == [b"%d\n" % number for number in range(1, count + 1)]


def test_rows_that_are_larger_than_what_comes_at_once_are_whole(connection: psycopg.Connection[Any]) -> None:
    found = lines(connection, "SELECT repeat(i::text, 3000000) FROM generate_series(1, 3) i")
    assert found == [b"%d" % number * 3_000_000 + b"\n" for number in (1, 2, 3)]


def test_rows_that_have_come_are_given_together(connection: psycopg.Connection[Any]) -> None:
    """psycopg alone gives one at a time."""
    given = [len(rows) for rows in copied(connection, copy("SELECT i FROM generate_series(1, 100000) i"))]
    assert sum(given) == 100_000
    assert len(given) < 20_000


def test_an_error_after_some_rows_is_raised_and_the_session_goes_on(connection: psycopg.Connection[Any]) -> None:
    found = 0
    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero"):  # noqa: PT012 - it is raised by an iteration
        for rows in copied(connection, copy("SELECT 1 / (50000 - i) FROM generate_series(1, 60000) i")):
            found += len(rows)
    assert found == 49_999
    connection.rollback()
    assert lines(connection, "SELECT 1") == [b"1\n"]


def test_copies_follow_each_other_in_one_transaction(connection: psycopg.Connection[Any]) -> None:
    assert [lines(connection, "SELECT txid_current()") for _ in range(3)] == 3 * [
        [b"%d\n" % connection.execute("SELECT txid_current()").fetchone()[0]]  # type: ignore[index]
    ]


def test_one_that_is_closed_early_leaves_the_server_without_work(connection: psycopg.Connection[Any]) -> None:
    with closing(copied(connection, copy("SELECT i FROM generate_series(1, 1000000) i"))) as found:
        next(found)
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
    connection.rollback()
    assert lines(connection, "SELECT 1") == [b"1\n"]


def test_a_server_that_ends_the_session_is_an_error_and_no_end_of_rows(
    logical: Server, connection: psycopg.Connection[Any]
) -> None:
    found = copied(connection, copy("SELECT i FROM generate_series(1, 1000000) i"))
    next(found)
    logical.query(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
    with pytest.raises(psycopg.OperationalError):
        for _ in found:
            pass
