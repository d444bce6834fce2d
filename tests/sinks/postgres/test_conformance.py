"""A table in PostgreSQL holds the laws of every sink; with a key all but the one of its files by epoch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.postgres import Server
from tests.sinks.keyed.unique import KEY, UniqueStager, with_key
from tests.sinks.postgres.conftest import ServerBench

from tidegauge.sinks import OutputId, PostgresSink
from tidegauge.testing.kit import check_sink

UNTRIED = {"files are taken out in whole or not at all", "a layout changes no rows"}


@pytest.mark.long
def test_a_table_on_a_server_holds_every_law(postgres: Server) -> None:
    report = check_sink(lambda folder: ServerBench(folder, postgres), crashes=60, deadline=240)
    report.require()
    assert {finding.name for finding in report.findings if finding.untried} == UNTRIED


@dataclass(frozen=True)
class UniqueServerTable:
    """Gives the rows of the kit a key of their own, on the way to a table by key."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def schema(self) -> pa.Schema | None:
        found = self.inner.schema
        return None if found is None else pa.schema([one for one in found if one.name != KEY])

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        return tuple(self.inner.lacking(with_key(schema)))

    def commit(self, lower: int, upper: int, schema: pa.Schema, files: Any, **more: Any) -> None:
        self.inner.commit(lower, upper, with_key(schema), files, **more)

    def sweep(self, confirm: Any) -> None:
        self.inner.sweep(confirm)


@dataclass(frozen=True)
class UniqueServerSink:
    inner: PostgresSink

    @property
    def identity(self) -> str:
        return self.inner.identity

    @property
    def shared(self) -> bool:
        return self.inner.shared

    def describe(self) -> Any:
        return self.inner.describe()

    def check(self, schema: pa.Schema) -> None:
        self.inner.check(with_key(schema))

    def open(self, output: OutputId) -> Any:
        return UniqueServerTable(self.inner.open(output))

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> UniqueStager:
        return UniqueStager(self.inner.stage(with_key(schema), job=job, task=task))


class UniqueServerBench(ServerBench):
    def __post_init__(self) -> None:
        self.options = {"envelope": "upsert", "key": KEY}
        super().__post_init__()
        self.sink: Any = UniqueServerSink(self.sink)

    def rows(self) -> list[dict[str, Any]]:
        found = ServerBench(self.folder, self.server, database=self.database).rows()
        return [{name: value for name, value in row.items() if name != KEY} for row in found]

    def ways(self) -> list[Any]:
        plain = ServerBench(self.folder, self.server, self.options, self.database)
        return [UniqueServerSink(way) for way in plain.ways()]  # type: ignore[arg-type]

    def elsewhere(self) -> Any:
        plain = ServerBench(self.folder, self.server, self.options, self.database)
        return UniqueServerSink(plain.elsewhere())  # type: ignore[arg-type]


@pytest.mark.long
def test_a_table_by_key_on_a_server_holds_every_law(postgres: Server) -> None:
    report = check_sink(lambda folder: UniqueServerBench(folder, postgres), crashes=30, deadline=240)
    report.require()
    assert {finding.name for finding in report.findings if finding.untried} == UNTRIED


def test_a_sink_is_checked_in_a_folder_that_is_its_own(tmp_path: Path, postgres: Server) -> None:
    bench = ServerBench(tmp_path, postgres)
    bench.stage([{"user": "ada", "amount": 1.5, "_epoch": 0}])
    assert [path.name.startswith("orders-") for path in (tmp_path / "staging").iterdir()] == [True]
