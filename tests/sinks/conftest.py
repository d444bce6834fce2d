"""What the tests of all sinks share: the sinks, rows, and readers that know nothing of Tidegauge."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from tidegauge.sinks import DeltaSink, OutputId, ParquetSink, StagedFile

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("_epoch", pa.int64())])
OUTPUT = OutputId("shop", "orders", "a" * 32)


def read_delta(path: str) -> Any:
    """Read as anybody would: a fresh table, the files its log names, deltalake's own statistics unused."""
    if not Path(path, "_delta_log").exists():
        return SCHEMA.empty_table()
    files = DeltaTable(path).file_uris()
    names = [name.removeprefix("file://") for name in files]
    return ds.dataset(names, schema=SCHEMA, format="parquet").to_table()


def read_parquet(path: str) -> Any:
    if not Path(path).exists():
        return SCHEMA.empty_table()
    return ds.dataset(path, schema=SCHEMA, format="parquet").to_table()


@dataclass(frozen=True)
class Kind:
    """A kind of sink: how to make one, and how a stranger reads its table."""

    name: str
    make: Callable[[str], Any]
    read: Callable[[str], Any]

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

    def open(self, output: OutputId = OUTPUT) -> Any:
        return self.sink.open(output)

    def stage(self, epochs: Iterable[int], user: str = "ada") -> Any:
        return stage(self.sink, epochs, user)

    def commit(self, table: Any, lower: int, upper: int, user: str = "ada", *, empty: bool = False) -> None:
        files = [] if empty else self.stage(range(lower, upper), user)
        table.commit(lower, upper, SCHEMA, files, write=write_id())

    def rows(self) -> list[tuple[str, int]]:
        return self.kind.rows(self.path)


@pytest.fixture(params=sorted(KINDS))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    kind = KINDS[request.param]
    path = str(tmp_path / "lake" / "orders")
    return Bench(kind, path, kind.make(path))


@pytest.fixture
def kinds() -> Callable[[str, str], Bench]:
    """Make a bench of a kind at a path."""
    return lambda kind, path: Bench(KINDS[kind], path, KINDS[kind].make(path))
