"""A table by key that the laws of the kit can be asked of: they write rows without a key, and count each of them.

So each row gets a key of its own, of its user and its epoch, in a column that the laws do not look at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.sinks.benches import TableBench

import tidegauge as tg
from tidegauge.sinks import DeltaSink, OutputId, Sink, StagedFile, Stager
from tidegauge.sinks.delta.bykey import DeltaByKey
from tidegauge.sinks.keyed.layout import Keyed

__all__ = ["UniqueBench"]

KEY = "key"


def with_key(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(KEY, pa.string()), *schema])


class UniqueTable(DeltaByKey):
    @property
    def schema(self) -> pa.Schema | None:
        found = super().schema
        return None if found is None else pa.schema([one for one in found if one.name != KEY])

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        return super().lacking(with_key(schema))

    def commit(
        self, lower: int, upper: int, schema: pa.Schema, files: Any, *, remove: Any = (), write: str, **more: Any
    ) -> None:
        super().commit(lower, upper, with_key(schema), files, remove=remove, write=write, **more)


@dataclass(frozen=True)
class UniqueStager:
    stager: Stager

    def write(self, batch: pa.RecordBatch) -> None:
        rows = batch.to_pylist()
        keys = [f"{row.get('user')}/{row.get('_epoch')}" for row in rows]
        names = [KEY, *batch.schema.names]
        self.stager.write(pa.RecordBatch.from_arrays([pa.array(keys), *batch.columns], names=names))

    def close(self) -> list[StagedFile]:
        return self.stager.close()

    def abort(self) -> None:
        self.stager.abort()


@dataclass(frozen=True)
class UniqueSink:
    """The sink of a table by key, whose rows get their keys on the way."""

    path: str
    parted: bool = False

    @property
    def sink(self) -> DeltaSink:
        parted = tg.bucket(3, "user") if self.parted else None  # where the key does not say where a row is
        return DeltaSink(self.path, envelope="upsert", key=KEY, partition_by=parted)

    @property
    def identity(self) -> str:
        return self.sink.identity

    @property
    def shared(self) -> bool:
        return self.sink.shared

    def describe(self) -> Any:
        return self.sink.describe()

    def check(self, schema: pa.Schema) -> None:
        self.sink.check(with_key(schema))

    def open(self, output: OutputId) -> UniqueTable:
        return UniqueTable(self.sink.path, output, Keyed((KEY,)), self.sink._files)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> UniqueStager:
        return UniqueStager(self.sink.stage(with_key(schema), job=job, task=task))


@dataclass
class UniqueBench(TableBench):
    kind: str = "delta"
    sink: Any = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sink = UniqueSink(str(self.path))

    def rows(self) -> list[dict[str, Any]]:
        if not Path(self.path, "_delta_log").exists():
            return []
        import pyarrow.dataset as ds

        table = DeltaTable(self.path)
        files = [name.removeprefix("file://") for name in table.file_uris()]
        columns = pa.unify_schemas([pq.read_schema(file) for file in files]) if files else None
        found = ds.dataset(files, schema=columns, format="parquet").to_table().to_pylist() if files else []
        return [{name: value for name, value in row.items() if name != KEY} for row in found]

    def ways(self) -> list[Sink]:
        self.path.parent.mkdir()
        (self.folder / "pond").symlink_to("lake")
        return [UniqueSink(way) for way in (f"{self.folder}/pond/orders", f"{self.path}/", f"file://{self.path}")]

    def layouts(self) -> list[Any]:
        return [UniqueSink(str(self.path), parted=True)]

    def elsewhere(self) -> Sink:
        return UniqueSink(f"{self.path}-2")
