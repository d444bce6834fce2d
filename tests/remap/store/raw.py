"""A store's database behind its back: with plain SQL, as another program would look at it or disturb it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import psycopg
from tests.postgres import query

from tidegauge.remap.store import schema


def sql(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement, durably, and return its rows. The address may also be that of a server."""
    if not url.startswith("sqlite:///"):
        return query(url, statement)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        return connection.execute(statement).fetchall()


def script(url: str, statements: str) -> None:
    """Run many statements."""
    if not url.startswith("sqlite:///"):
        query(url, statements)
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(statements)


def dump(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, by one connection."""
    if url.startswith("sqlite:///"):
        opened: Any = closing(sqlite3.connect(url.removeprefix("sqlite:///")))
    else:
        opened = psycopg.connect(url, autocommit=True)
    with opened as connection:
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in schema.metadata.tables
        }
