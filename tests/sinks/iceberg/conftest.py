"""What the tests of tables of Iceberg share: a warehouse for each, and readers that know nothing of Tidegauge."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from tidegauge.sinks import IcebergSink, OutputId, Sink, StagedFile
from tidegauge.sinks.protocol import job_mark

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
OUTPUT = OutputId("shop", "orders", "a" * 32)
NAME = "shop.orders"


def catalog_in(warehouse: str | Path) -> SqlCatalog:
    """The catalog in a warehouse, as anybody opens it."""
    return SqlCatalog("default", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")


@dataclass
class IcebergBench:
    """A table that the first commit makes, in a warehouse of its own, and short words for what the tests do."""

    folder: Path
    schema: pa.Schema = SCHEMA
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.warehouse = self.folder / "lake"
        self.sink: Any = IcebergSink(NAME, str(self.warehouse), **self.options)

    @property
    def path(self) -> Path:
        return self.warehouse / "shop" / "orders"

    def found(self) -> set[str]:
        """The paths of all files in the table's folder."""
        return {str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file()}

    @property
    def catalog(self) -> SqlCatalog:
        return catalog_in(self.warehouse)

    @property
    def table(self) -> Any:
        return self.catalog.load_table(NAME)

    def rows(self) -> list[dict[str, Any]]:
        if not (self.warehouse / "catalog.db").exists():
            return []
        catalog = self.catalog
        try:
            found: list[dict[str, Any]] = catalog.load_table(NAME).scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        finally:
            catalog.close()
        return found

    def epochs(self) -> list[int]:
        return sorted(row["_epoch"] for row in self.rows())

    def remove(self) -> None:
        self.catalog.drop_table(NAME)

    def ways(self) -> Sequence[Sink]:
        self.warehouse.mkdir(exist_ok=True)
        (self.folder / "pond").symlink_to("lake")
        return [
            IcebergSink(NAME, way)
            for way in (f"{self.folder}/pond", f"{self.warehouse}/", f"file://{self.warehouse}")
        ]

    def elsewhere(self) -> Sink:
        return IcebergSink("shop.orders2", str(self.warehouse))

    def open(self, output: OutputId = OUTPUT) -> Any:
        return self.sink.open(output)

    def stage(self, rows: Iterable[dict[str, Any]], *, schema: pa.Schema | None = None) -> list[StagedFile]:
        schema = schema or self.schema
        stager = self.sink.stage(schema, job=job_mark(OUTPUT.incarnation) + uuid.uuid4().hex[:16], task=0)
        stager.write(pa.RecordBatch.from_pylist(list(rows), schema=schema))
        staged: list[StagedFile] = stager.close()
        return staged

    def commit(self, table: Any, lower: int, upper: int, user: str = "ada", *, write: str | None = None) -> None:
        files = self.stage({"user": user, "amount": 1.5, "_epoch": epoch} for epoch in range(lower, upper))
        table.commit(lower, upper, self.schema, files, write=write or write_id())

    def filled(self, upper: int) -> Any:
        """Return a table with a commit for each epoch."""
        table = self.open()
        for epoch in range(upper):
            self.commit(table, epoch, epoch + 1)
        return table


def write_id() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def bench(tmp_path: Path) -> IcebergBench:
    return IcebergBench(tmp_path)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., IcebergBench]:
    return lambda **options: IcebergBench(tmp_path, **options)
