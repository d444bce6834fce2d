"""A database of a store on a MariaDB, and a flow that follows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.mariadb import MariaDb

import tidegauge as tg


class Store:
    """A database, and a flow that keeps its tables by key and their changes."""

    def __init__(self, server: MariaDb, root: Path, *, user: str = "root", password: str | None = None) -> None:
        self.server, self.root, self.user, self.password = server, root, user, password
        self.name = server.new_database()
        self.tables: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"mysql://{self.user}@127.0.0.1:{self.server.port}/{self.name}"

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

    def flow(self, *, errors: bool = False, more: str = "", **options: Any) -> tg.Dataflow:
        flow = tg.Dataflow("store", store=f"sqlite:///{self.root}/flow.db", tick=0.05)
        db = flow.source("db", self.source(**options))
        for name, key in self.tables.items():
            sink = tg.DeltaSink(str(self.root / name), envelope="upsert", key=key, order="_sequence")
            flow.sink(name, db.table(name), sink)
            flow.sink(f"{name}_log", db.table(name).changelog("op"), tg.ParquetSink(str(self.root / f"{name}_log")))
        if more:
            flow.sink("more", db.table(more).changelog("op"), tg.ParquetSink(str(self.root / "more")))
        if errors:
            flow.sink("bad", db.errors, tg.ParquetSink(str(self.root / "bad")))
        return flow

    def catch_up(self, **options: Any) -> tg.Dataflow:
        flow = self.flow(**options)
        flow.run(until="caught-up", engine=tg.LocalEngine(threads=2))
        return flow

    def held(self, flow: tg.Dataflow, table: str, **options: Any) -> list[dict[str, Any]]:
        """The rows of an upsert table, without what is not the database's."""
        rows = tg.read_arrow(flow, table, **options).drop_columns(["_sequence", "_epoch"]).to_pylist()
        return sorted(rows, key=lambda row: repr(row[self.tables[table]]))

    def there(self, table: str) -> list[dict[str, Any]]:
        """The rows that the database has."""
        names = [name for (name, *_) in self.ask(f"SHOW COLUMNS FROM {table}")]
        rows = [dict(zip(names, row, strict=True)) for row in self.ask(f"SELECT * FROM {table}")]
        return sorted(rows, key=lambda row: repr(row[self.tables[table]]))

    def log(self, flow: tg.Dataflow, table: str) -> list[Mapping[str, Any]]:
        """The changes of a table in their order."""
        return sorted(tg.read_arrow(flow, f"{table}_log").to_pylist(), key=lambda row: row["_sequence"])
