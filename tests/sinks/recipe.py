"""Functions for `ForeachEpochSink` that write into SQLite: by the recipe of the documentation, and without it.

They stand in sinks that another process can make, so that drivers can be killed in them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegauge.sinks import EpochAttempt, ForeachEpochSink, OutputId, Sink, Stager, Table

__all__ = ["RecipeBench", "SqliteSink", "keyed", "naive", "rows_of"]


def keyed(db: str, rows: Iterable[pa.RecordBatch], attempt: EpochAttempt) -> None:
    """Write the rows of an epoch in one transaction with the epoch, unless that is there."""
    with closing(sqlite3.connect(db, timeout=30, isolation_level=None)) as connection, connection:
        connection.execute("begin immediate")
        connection.execute("create table if not exists lines (epoch integer, line text)")
        connection.execute("create table if not exists given (owner text, epoch integer, primary key (owner, epoch))")
        owner = f"{attempt.flow}:{attempt.output}:{attempt.incarnation}"
        new = connection.execute("insert or ignore into given values (?, ?)", [owner, attempt.epoch]).rowcount
        if new:
            for batch in rows:
                lines = [(attempt.epoch, json.dumps(row)) for row in batch.to_pylist()]
                connection.executemany("insert into lines values (?, ?)", lines)


def naive(db: str, rows: Iterable[pa.RecordBatch], attempt: EpochAttempt) -> None:
    """Write the rows of an epoch in one transaction, and nothing else."""
    with closing(sqlite3.connect(db, timeout=30, isolation_level=None)) as connection, connection:
        connection.execute("begin immediate")
        connection.execute("create table if not exists lines (epoch integer, line text)")
        for batch in rows:
            lines = [(attempt.epoch, json.dumps(row)) for row in batch.to_pylist()]
            connection.executemany("insert into lines values (?, ?)", lines)


FUNCTIONS: Mapping[str, Callable[[str, Iterable[pa.RecordBatch], EpochAttempt], None]] = {
    "keyed": keyed,
    "naive": naive,
}


def rows_of(db: Path) -> list[dict[str, Any]]:
    """Return the rows that were written."""
    if not db.exists():
        return []
    with closing(sqlite3.connect(db)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'lines'").fetchone():
            return []
        return [json.loads(line) for (line,) in connection.execute("select line from lines order by rowid")]


@dataclass(frozen=True)
class SqliteSink:
    """A sink that makes its function anew in each process."""

    folder: str
    function: str = "keyed"

    @property
    def _sink(self) -> ForeachEpochSink:
        db = f"{self.folder}/target.db"
        return ForeachEpochSink(lambda rows, attempt: FUNCTIONS[self.function](db, rows, attempt), self.path)

    @property
    def path(self) -> str:
        return f"{self.folder}/progress"

    @property
    def identity(self) -> str:
        return self._sink.identity

    @property
    def shared(self) -> bool:
        return self._sink.shared

    def describe(self) -> Mapping[str, Any]:
        return self._sink.describe()

    def check(self, schema: pa.Schema) -> None:
        self._sink.check(schema)

    def open(self, output: OutputId) -> Table:
        return self._sink.open(output)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> Stager:
        return self._sink.stage(schema, job=job, task=task)


class RecipeBench:
    """A function on a database of its own."""

    def __init__(self, folder: Path, *, function: str = "keyed") -> None:
        self.folder = folder
        self.sink: Sink = SqliteSink(str(folder), function)

    def rows(self) -> Sequence[dict[str, Any]]:
        return rows_of(self.folder / "target.db")

    def remove(self) -> None:
        """Remove how far it is, and what was written."""
        (self.folder / "progress" / "progress.json").unlink()
        (self.folder / "target.db").unlink()

    def ways(self) -> Sequence[Sink]:
        (self.folder / "way").symlink_to(self.folder)
        return [ForeachEpochSink(print, f"{self.folder}/way/progress"), SqliteSink(str(self.folder), "naive")]

    def elsewhere(self) -> Sink:
        return ForeachEpochSink(print, f"{self.folder}/elsewhere")
