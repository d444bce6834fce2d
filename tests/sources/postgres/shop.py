"""A database of a shop on a server that writes what logical replication needs, and a flow that follows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from tests.postgres import Server, new_database
from tests.sources.database.followed import by_key, caught_up, flow_of, held, log

import tidegauge as tg


class Shop:
    """A database, and a flow that keeps its tables by key and their changes."""

    def __init__(self, server: Server, root: Path, *, user: str = "postgres") -> None:
        self.server, self.root = server, root
        self.name = new_database(server)
        self.address = server.address(self.name)
        self.dsn = server.address(self.name, user=user)
        self.tables: dict[str, str] = {}
        self.slot = f"slot_{self.name}"

    def do(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with psycopg.connect(self.address) as connection:
            for statement in statements:
                connection.execute(statement)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("SET timezone = 'UTC'")
            return list(connection.execute(query).fetchall())

    def table(self, name: str, columns: str, *, key: str = "id", full: bool = False) -> None:
        self.do(f"CREATE TABLE {name} ({columns})")
        if full:
            self.do(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
        self.tables[name] = key

    def publish(self) -> None:
        self.do(f"CREATE PUBLICATION shop FOR TABLE {', '.join(self.tables)}")

    def source(self, **options: Any) -> tg.PostgresSource:
        given = {
            "publication": "shop",
            "tables": list(self.tables),
            "slot": self.slot,
            "folder": str(self.root / "pg"),
        }
        return tg.PostgresSource(self.dsn, **{**given, **options})

    def flow(self, *, errors: bool = False, start: int | None = None, **options: Any) -> tg.Dataflow:
        return flow_of("shop", self.root, self.source(**options), self.tables, errors=errors, start=start)

    def catch_up(self, **options: Any) -> tg.Dataflow:
        return caught_up(self.flow(**options))

    def held(self, flow: tg.Dataflow, table: str, **options: Any) -> list[dict[str, Any]]:
        return held(flow, table, self.tables[table], **options)

    def there(self, table: str) -> list[dict[str, Any]]:
        """The rows that the database has."""
        with psycopg.connect(self.address) as connection:
            cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
            names = [column.name for column in cursor.description or []]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return by_key(rows, self.tables[table])

    def log(self, flow: tg.Dataflow, table: str) -> list[Mapping[str, Any]]:
        return log(flow, table)

    def confirmed(self) -> str:
        return str(
            self.ask(f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{self.slot}'")[0][0]
        )
