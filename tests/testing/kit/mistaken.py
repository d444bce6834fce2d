"""Sinks with one mistake each, in a module that other processes can import."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.testing.kit.hanging import HOME, hang

from tidegauge.errors.sinks import TableUpperMismatch
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks import OutputId, ParquetSink, StagedFile
from tidegauge.sinks.location import LocalFiles
from tidegauge.sinks.protocol import Volume
from tidegauge.sinks.staging import ParquetStager


@dataclass(frozen=True)
class MistakenSink:
    """A Parquet table that makes one mistake."""

    path: str
    mistake: str
    sort_by: str | None = None

    @property
    def sink(self) -> ParquetSink:
        return ParquetSink(self.path, sort_by=self.sort_by)

    @property
    def identity(self) -> str:
        if self.mistake == "hanging identity":
            hang()
        if self.mistake == "number":
            return 42  # type: ignore[return-value]
        return self.path if self.mistake == "identity" else self.sink.identity

    @property
    def shared(self) -> bool:
        return False

    def describe(self) -> dict[str, Any]:
        more = {"files": len(list(Path(self.path).rglob("*")))} if self.mistake == "describe" else {}
        return {**self.sink.describe(), **more}

    def check(self, schema: pa.Schema) -> None:
        if self.mistake == "check":
            raise TypeError("a table of this kind has no columns")
        self.sink.check(schema)

    def open(self, output: OutputId) -> Any:
        if self.mistake == "eager":
            Path(self.path).mkdir(exist_ok=True)
            Path(self.path, "_ready").touch()
        if self.mistake == "first" and Path(f"{self.path}.begun").exists():
            raise RuntimeError("somebody has begun this table")
        if self.mistake == "life":
            output = replace(output, incarnation="a" * 32)
        if self.mistake == "output":
            output = replace(output, output="orders")
        return MistakenTable(self, self.sink.open(output))

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> Any:
        if self.mistake == "visible":
            return ParquetStager(LocalFiles(self.path), "", schema, job=job, task=task)
        stager = self.sink.stage(schema, job=job, task=task)
        return ForgetfulStager(stager) if self.mistake == "lays" and self.sort_by else stager


@dataclass
class ForgetfulStager:
    """Leaves out rows without a user."""

    stager: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stager, name)

    def write(self, batch: pa.RecordBatch) -> None:
        self.stager.write(batch.filter(batch.column("user").is_valid()))


class MistakenTable:
    def __init__(self, sink: MistakenSink, table: Any) -> None:
        self.sink, self.table, self.mistake = sink, table, sink.mistake

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    @property
    def digest(self) -> str | None:
        found: str | None = self.table.digest
        return None if self.mistake == "digest" else found

    def commit(
        self,
        lower: int,
        upper: int,
        schema: pa.Schema,
        files: Sequence[StagedFile],
        *,
        remove: Sequence[StagedFile] = (),
        write: str,
        history: History = NO_HISTORY,
    ) -> None:
        match self.mistake:
            case "hang":
                hang()
            case "apart" if os.getpid() != HOME:
                hang()
            case "empty" if not files:
                return
            case "columns" if self.table.schema is not None:
                schema = self.table.schema
            case "early" if self.table.schema is not None and schema != self.table.schema:
                self.table.commit(self.table.upper, self.table.upper + 1, schema, [], write="e" * 32)
                lower, upper = lower + 1, upper + 1
            case "first job":
                files = [file for file in files if file.path.split("/")[1] == files[0].path.split("/")[1]]
            case "history":
                history = replace(history, before="")
            case "remove":
                remove = ()
            case "blind":
                files = [replace(file, first_epoch=lower, last_epoch=upper - 1) for file in files]
        try:
            if self.mistake == "first" and lower == 0:
                importlib.import_module("pandas")  # it makes calls that no later commit makes
                Path(f"{self.sink.path}.begun").touch()
            self.table.commit(lower, upper, schema, files, remove=remove, write=write, history=history)
            if self.mistake == "first":
                Path(f"{self.sink.path}.begun").unlink(missing_ok=True)
        except TableUpperMismatch:
            if self.mistake != "deaf":
                raise

    def discard(self, files: Sequence[StagedFile]) -> None:
        if self.mistake == "follows":
            for file in files:
                Path(self.sink.path, file.path).unlink(missing_ok=True)
        elif self.mistake != "litters":
            self.table.discard(files)

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        if self.mistake == "nonsense":
            return 42  # type: ignore[return-value]
        found: list[StagedFile] = self.table.files(as_of=as_of)
        return found[1:] if self.mistake == "as of" and as_of is not None else found

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        return () if self.mistake == "lazy" else self.table.lacking(schema)

    def evolve(self, how: Any) -> None:
        self.table.evolve(how)

    def keep(self, files: Sequence[StagedFile]) -> bool:
        return True if self.mistake == "forgets" else self.table.keep(files)

    def sweep(self, confirm: Callable[[], None]) -> None:
        self.table.sweep((lambda: None) if self.mistake == "hasty" else confirm)


@dataclass(frozen=True)
class NoteSink:
    """A file of rows, and beside it one with the upper: looked at first, written last, in two steps."""

    path: str
    shared = False

    @property
    def identity(self) -> str:
        return os.path.realpath(self.path)

    def describe(self) -> dict[str, Any]:
        return {"kind": "note", "path": self.path}

    def check(self, schema: pa.Schema) -> None:
        pass

    def open(self, output: OutputId) -> Any:
        return NoteTable(self.path)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> Any:
        return ParquetStager(LocalFiles(f"{self.path}.staged"), "", schema, job=job, task=task)


class NoteTable:
    schema = None
    digest = None

    def __init__(self, path: str) -> None:
        self.path, self.mark = path, Path(f"{path}.upper")
        self.upper = int(self.mark.read_text()) if self.mark.exists() else 0

    def commit(self, lower: int, upper: int, schema: Any, files: Any, *, write: str, **_more: Any) -> None:
        if self.upper != lower:
            raise TableUpperMismatch(table=self.path, output="shop:orders", expected=lower, actual=self.upper)
        time.sleep(0.02)
        with open(self.path, "a") as out:
            for file in files:
                for row in pq.read_table(f"{self.path}.staged/{file.path}").to_pylist():
                    out.write(json.dumps(row) + "\n")
        self.mark.write_text(str(upper))
        self.upper = upper

    def discard(self, files: Any) -> None:
        pass

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        return []

    def volume(self) -> Volume:
        return Volume()

    def version_of(self, epoch: int) -> str | None:
        return None

    def links(self) -> list[Link]:
        return []

    def uris(self, files: Any) -> list[str]:
        return []
