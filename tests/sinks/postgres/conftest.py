"""What the tests of tables in PostgreSQL share: a database for each of them, and a reader that knows only SQL."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from tests.postgres import Server, client_program, new_database, query

from tidegauge.sinks import OutputId, PostgresSink, Sink, StagedFile
from tidegauge.sinks.protocol import job_mark

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
OUTPUT = OutputId("shop", "orders", "a" * 32)


def dumped(server: Server, database: str, *options: str) -> Callable[[str], None]:
    """Dump a database, and return what restores it into another one."""
    place = server.folder / f"{database}.dump"
    dump = [str(client_program(server, "pg_dump")), *options, "-d", server.address(database)]
    place.write_bytes(subprocess.run(dump, check=True, capture_output=True).stdout)

    def restore(into: str) -> None:
        psql = [
            str(client_program(server, "psql")),
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-f",
            str(place),
            server.address(into),
        ]
        subprocess.run(psql, check=True, capture_output=True)

    return restore


def seen(address: str, table: str, columns: str = "*", where: str = "true") -> list[dict[str, Any]]:
    """Return the rows of a table, none where there is no table."""
    with psycopg.connect(address, autocommit=True) as connection:
        schema, name = table.split(".") if "." in table else ("public", table)
        known = connection.execute(
            "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = %s", (schema, name)
        ).fetchone()
        if known is None:
            return []
        text: Any = f"SELECT {columns} FROM {{}} WHERE {where}"
        done = connection.execute(sql.SQL(text).format(sql.Identifier(schema, name)))
        names = [one.name for one in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]


@dataclass
class ServerBench:
    """A table that the first commit makes, in a database of its own, and short words for what the tests do."""

    folder: Path
    server: Server
    options: dict[str, Any] = field(default_factory=dict)
    database: str = ""
    schema: pa.Schema = SCHEMA

    def __post_init__(self) -> None:
        self.database = self.database or new_database(self.server)
        self.address = self.server.address(self.database)
        staging = str(self.folder / "staging")
        self.sink = PostgresSink(self.address, "orders", **{"staging": staging, **self.options})

    def rows(self) -> list[dict[str, Any]]:
        return seen(self.address, self.sink.table)

    def remove(self) -> None:
        self.query("DROP TABLE orders")

    def ways(self) -> Sequence[Sink]:
        return [replace(self.sink, table="public.orders"), replace(self.sink, staging=f"{self.folder}/elsewhere")]

    def elsewhere(self) -> Sink:
        return replace(self.sink, table="orders2")

    def query(self, text: str) -> list[tuple[Any, ...]]:
        return query(self.address, text)

    def restored(self, *options: str) -> Callable[[], None]:
        """Dump rows of the schema `tidegauge`, and return what puts them in the place of those there."""
        restore = dumped(self.server, self.database, *options)

        def put_back() -> None:
            self.query("TRUNCATE tidegauge.progress")
            if "--schema=tidegauge" in options:
                self.query("TRUNCATE tidegauge.links")
            restore(self.database)

        return put_back

    def open(self, output: OutputId = OUTPUT) -> Any:
        return self.sink.open(output)

    def stage(self, rows: Iterable[dict[str, Any]], *, output: OutputId = OUTPUT, task: int = 0) -> list[StagedFile]:
        job = job_mark(output.incarnation) + uuid.uuid4().hex[:16]
        stager = self.sink.stage(self.schema, job=job, task=task)
        stager.write(pa.RecordBatch.from_pylist(list(rows), schema=self.schema))
        return stager.close()

    def commit(self, table: Any, lower: int, upper: int, user: str = "ada", *, write: str | None = None) -> None:
        files = self.stage({"user": user, "amount": 1.5, "_epoch": epoch} for epoch in range(lower, upper))
        table.commit(lower, upper, self.schema, files, write=write or write_id())

    def epochs(self) -> list[int]:
        return sorted(row["_epoch"] for row in self.rows())


def write_id() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def bench(postgres: Server, tmp_path: Path) -> ServerBench:
    return ServerBench(tmp_path, postgres)


@pytest.fixture
def made(postgres: Server, tmp_path: Path) -> Callable[..., ServerBench]:
    """Make a bench with options of the sink."""
    return lambda schema=SCHEMA, **options: ServerBench(tmp_path, postgres, options, schema=schema)
