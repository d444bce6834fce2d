"""What the tests of all sinks share: the sinks, rows, and readers that know nothing of Tidegauge."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tidegauge.errors.sinks import StagedFileMissing, TableUpperMismatch
from tidegauge.sinks import DeltaSink, OutputId, ParquetSink, StagedFile
from tidegauge.sinks.columns import stored

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
OUTPUT = OutputId("shop", "orders", "a" * 32)


def read_delta(path: str) -> Any:
    """Read as anybody would: a fresh table, the files its log names, deltalake's own statistics unused."""
    if not Path(path, "_delta_log").exists():
        return SCHEMA.empty_table()
    files = DeltaTable(path).file_uris()
    names = [name.removeprefix("file://") for name in files]
    return ds.dataset(names, schema=taken_on(names), format="parquet").to_table()


def read_parquet(path: str) -> Any:
    if not Path(path).exists():
        return SCHEMA.empty_table()
    names = ds.dataset(path, format="parquet").files
    return ds.dataset(path, schema=taken_on(names), format="parquet").to_table()


def taken_on(files: Iterable[str]) -> pa.Schema:
    """Return the columns of the tests, and those that some of the files have besides."""
    found = pa.unify_schemas([stored(pq.read_schema(file)) for file in files]) if (files := list(files)) else SCHEMA
    return pa.schema([*SCHEMA, *(field for field in found if field.name not in SCHEMA.names)])


TABLE = frozenset({"files", "columns", "owner"})
"""What a table is, and not every sink: it has files that can be read, columns of its own, and one owner."""


@dataclass(frozen=True)
class Kind:
    """A kind of sink: how to make one, and how a stranger reads its table.

    traits: some of `TABLE`. missing, lost: how it refuses a staged file that is gone, and a place that was made anew.
    """

    name: str
    make: Callable[[str], Any]
    read: Callable[[str], Any]
    traits: frozenset[str] = TABLE
    missing: type[Exception] = StagedFileMissing
    lost: type[Exception] = TableUpperMismatch

    def rows(self, path: str) -> list[tuple[str, int]]:
        """Return `(user, epoch)` of every row that a stranger sees, sorted."""
        table = self.read(path)
        return sorted(zip(table["user"].to_pylist(), table["_epoch"].to_pylist(), strict=True))


KINDS = {"delta": Kind("delta", DeltaSink, read_delta), "parquet": Kind("parquet", ParquetSink, read_parquet)}


def rows(epochs: Iterable[int], user: str = "ada") -> pa.RecordBatch:
    listed = list(epochs)
    columns = {"user": [user] * len(listed), "amount": [1.5] * len(listed), "_epoch": listed}
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def stage(sink: Any, epochs: Iterable[int], user: str = "ada", job: str | None = None, task: int = 0) -> Any:
    stager = sink.stage(SCHEMA, job=job or uuid.uuid4().hex, task=task)
    stager.write(rows(epochs, user))
    staged: list[StagedFile] = stager.close()
    return staged


def write_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Bench:
    """One sink on an empty folder, with short words for what the tests do."""

    kind: Kind
    path: str
    sink: Any

    @property
    def folder(self) -> str:
        """Return the folder that the sink was given."""
        return self.path

    def at(self, folder: str) -> Any:
        """Return a sink of the kind with another folder."""
        return self.kind.make(folder)

    def ways(self) -> list[Any]:
        """Return sinks to the same place that were told otherwise."""
        above = Path(self.path).parent
        above.mkdir(parents=True, exist_ok=True)
        pond = above.with_name("pond")
        pond.symlink_to(above.name)
        return [self.at(way) for way in (f"{pond}/orders", f"{self.path}/", f"file://{self.path}")]

    def elsewhere(self) -> Any:
        """Return a sink to another place."""
        return self.at(f"{self.path}-2")

    def remove(self) -> None:
        """Remove the table, as somebody might who knows nothing of us."""
        shutil.rmtree(self.path)

    def open(self, output: OutputId = OUTPUT) -> Any:
        return self.sink.open(output)

    def stage(self, epochs: Iterable[int], user: str = "ada") -> Any:
        return stage(self.sink, epochs, user)

    def commit(self, table: Any, lower: int, upper: int, user: str = "ada", *, empty: bool = False) -> None:
        files = [] if empty else self.stage(range(lower, upper), user)
        table.commit(lower, upper, SCHEMA, files, write=write_id())

    def rows(self) -> list[tuple[str, int]]:
        return self.kind.rows(self.path)


def table_bench(kind: Kind, path: str) -> Bench:
    """Return a bench of a table at a path."""
    return Bench(kind, path, kind.make(path))


@pytest.fixture(params=sorted(KINDS))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return table_bench(KINDS[request.param], str(tmp_path / "lake" / "orders"))


@pytest.fixture
def kinds() -> Callable[[str, str], Bench]:
    """Make a bench of a kind at a path."""
    return lambda kind, path: table_bench(KINDS[kind], path)
