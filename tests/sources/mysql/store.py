"""A database of a store on a MariaDB, and a flow that follows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.mariadb import MariaDb
from tests.sources.database.followed import by_key, caught_up, flow_of, held, log

import tidegauge as tg


class Store:
    """A database, and a flow that keeps its tables by key and their changes."""

    def __init__(self, server: MariaDb, root: Path, *, user: str = "root", password: str | None = None) -> None:
        self.server, self.root, self.user, self.password = server, root, user, password
        self.name = server.new_database()
        self.tables: dict[str, str] = {}
        self.tls = ""
        """What the address says of TLS: `ssl-mode=REQUIRED`."""

    @property
    def url(self) -> str:
        return f"mysql://{self.user}@127.0.0.1:{self.server.port}/{self.name}?{self.tls}".rstrip("?")

    def do(self, *statements: str) -> None:
        self.server.do(*statements, database=self.name)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.server.ask(query, self.name)

    def table(self, name: str, columns: str, *, key: str = "id") -> None:
        self.do(f"CREATE TABLE {name} ({columns}) ENGINE = InnoDB")
        self.tables[name] = key

    def source(self, **options: Any) -> tg.MySqlSource:
        given = {"tables": list(self.tables), "folder": str(self.root / "my"), "password": self.password}
        return tg.MySqlSource(self.url, **{**given, **options})

    def flow(self, *, errors: bool = False, **options: Any) -> tg.Dataflow:
        return flow_of("store", self.root, self.source(**options), self.tables, errors=errors)

    def catch_up(self, **options: Any) -> tg.Dataflow:
        return caught_up(self.flow(**options))

    def held(self, flow: tg.Dataflow, table: str, **options: Any) -> list[dict[str, Any]]:
        return held(flow, table, self.tables[table], **options)

    def there(self, table: str) -> list[dict[str, Any]]:
        """The rows that the database has."""
        names = [name for (name, *_) in self.ask(f"SHOW COLUMNS FROM {table}")]
        rows = [dict(zip(names, row, strict=True)) for row in self.ask(f"SELECT * FROM {table}")]
        return by_key(rows, self.tables[table])

    def log(self, flow: tg.Dataflow, table: str) -> list[Mapping[str, Any]]:
        return log(flow, table)
