"""Small real parts for engine jobs: a source over rows in memory, a sink of Parquet files, jobs of them."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegauge.job.plan import Engine, EpochJob, JobResult, OutputPlan, OutputWork, SourceRead, Step
from tidegauge.remap.binding import Bound, Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.sinks.protocol import OutputId, StagedFile, Table
from tidegauge.sources.protocol import BadRecord, OnBadRecord, Split

BATCH = 1000


@dataclass(frozen=True)
class RowSplit:
    epoch: int
    partition: str
    lower: int
    upper: int
    heavy: bool = False

    @property
    def weight(self) -> int:
        return (self.upper - self.lower) * (1 << 20 if self.heavy else 100)


@dataclass(frozen=True)
class RowSource:
    """Rows `[lower, upper)` of a list. `bad` are positions that do not decode; each read leaves a line in `log`."""

    rows: pa.Table
    log: str = ""
    bad: frozenset[int] = frozenset()
    fails_at: int = -1
    unit: str = "records"
    batch: int = BATCH

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "rows"}

    def probe(self, bound: Bound, *, now: datetime) -> Observation:
        end = Frontier({"p": self.rows.num_rows})
        return Observation(at=now, upper=end, end=end)

    def plan(self, slices: Sequence[Slice], bound: Bound) -> list[Split]:
        return [RowSplit(s.epoch, s.partition, s.lower, s.upper) for s in slices]

    def read(self, split: RowSplit, on_bad_record: OnBadRecord) -> Iterator[pa.RecordBatch]:
        if self.log:
            with open(self.log, "a") as log:
                log.write(f"{split.epoch} {split.lower} {split.upper}\n")
        for start in range(split.lower, split.upper, self.batch):
            stop = min(start + self.batch, split.upper)
            if start <= self.fails_at < stop:
                raise OSError(5, "Input/output error", "/rows/of/p")
            good = []
            for position in range(start, stop):
                if position in self.bad:
                    raw = b'{"n": \x1b[31m' + b"x" * 300
                    on_bad_record(BadRecord(split.partition, position, raw, "TG-0399", "not a number"))
                else:
                    good.append(position)
            yield from self.rows.take(pa.array(good, pa.int64())).combine_chunks().to_batches()

    def acknowledge(self, frontier: Frontier) -> None:
        return


@dataclass
class FileStager:
    folder: str
    schema: pa.Schema
    name: str
    epochs: list[int] = field(default_factory=list)
    writer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self.writer is None:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            self.writer = pq.ParquetWriter(os.path.join(self.folder, self.name), self.schema)
        self.writer.write_batch(batch)
        self.epochs += [min(batch["_epoch"].to_pylist()), max(batch["_epoch"].to_pylist())]

    def close(self) -> list[StagedFile]:
        if self.writer is None:
            return []
        self.writer.close()
        path = os.path.join(self.folder, self.name)
        rows = pq.ParquetFile(path).metadata.num_rows
        return [StagedFile(self.name, rows, os.path.getsize(path), min(self.epochs), max(self.epochs))]

    def abort(self) -> None:
        if self.writer is not None:
            self.writer.close()
            Path(self.folder, self.name).unlink()


@dataclass(frozen=True)
class FileSink:
    path: str
    shared = False

    @property
    def identity(self) -> str:
        return self.path

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "files", "path": self.path}

    def check(self, schema: pa.Schema) -> None:
        return

    def open(self, output: OutputId) -> Table:
        raise NotImplementedError("engines commit nothing")

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> FileStager:
        return FileStager(self.path, schema, f"{job}-{task}.parquet")


def splits(rows: int, *, epochs: int = 1, first: int = 0, pieces: int = 1) -> tuple[RowSplit, ...]:
    """Cut rows into epochs and those into pieces, evenly."""
    bounds = [rows * i // (epochs * pieces) for i in range(epochs * pieces + 1)]
    return tuple(RowSplit(first + i // pieces, "p", lo, hi) for i, (lo, hi) in enumerate(itertools.pairwise(bounds)))


def read_of(
    source: RowSource, *, name: str = "orders", epochs: int = 1, pieces: int = 1, collect: bool = False
) -> SourceRead:
    return SourceRead(
        name, source, source.schema, splits(source.rows.num_rows, epochs=epochs, pieces=pieces), collect
    )


def plan_of(name: str, folder: Path | str, *steps: Step, source: str = "orders", channel: Any = "rows") -> OutputPlan:
    return OutputPlan(name, source, channel, steps, FileSink(os.path.join(str(folder), name)))


def job_of(engine: Engine, reads: Sequence[SourceRead], plans: Sequence[OutputPlan], *, id: str = "j0") -> EpochJob:
    schemas = {read.name: read.schema for read in reads}
    works = tuple(OutputWork(plan, engine.schema(plan, schemas[plan.source])) for plan in plans)
    epochs = [split.epoch for read in reads for split in read.splits] or [0]
    return EpochJob(id, min(epochs), max(epochs) + 1, tuple(reads), works)


def staged_table(job: EpochJob, result: JobResult, name: str) -> pa.Table:
    """Return what a job staged for an output, in a canonical order."""
    work = next(work for work in job.outputs if work.plan.name == name)
    folder = work.plan.sink.describe()["path"]
    tables = [pq.ParquetFile(os.path.join(folder, f.path)).read() for f in result.staged[name].files]
    table = pa.concat_tables(tables) if tables else work.schema.empty_table()
    assert table.schema.equals(work.schema), f"{table.schema}\nis not\n{work.schema}"
    return sorted_rows(table)


def sorted_rows(table: pa.Table) -> pa.Table:
    """Return a table with its rows in a canonical order."""
    order = sorted(range(table.num_rows), key=lambda i: json.dumps(table.slice(i, 1).to_pylist(), default=str))
    return table.take(pa.array(order, pa.int64())).combine_chunks()


def rows_of(job: EpochJob, result: JobResult, name: str) -> list[dict[str, Any]]:
    return list(staged_table(job, result, name).to_pylist())
