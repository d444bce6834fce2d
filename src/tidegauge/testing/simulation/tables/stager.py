"""What a task stages for a simulated table: one file, beside the table, in nobody's sight.

Invariant: a file is torn until it is closed, and stays so when its task dies.

>>> lake = Lake()
>>> schema = pa.schema([("id", pa.int64()), ("_epoch", pa.int64())])
>>> stager = SimulatedStager(lake, "orders", schema, lambda _call: None, path="a")
>>> stager.write(pa.record_batch({"id": [7], "_epoch": [0]}))
>>> lake.tables["orders"].staged
{'a-000': None}
>>> [file.rows for file in stager.close()]
[1]
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, TypeAlias

import pyarrow as pa

from tidegauge.leftout import LEFT, taken
from tidegauge.sinks.attempt import fitting
from tidegauge.sinks.columns import EPOCH, rows_schema
from tidegauge.sinks.protocol import StagedFile
from tidegauge.testing.simulation.tables.lake import Lake, LakeFile, LakeTable

__all__ = ["Meet", "SimulatedStager"]

Meet: TypeAlias = Callable[[str], None]


class SimulatedStager:
    """A `Stager` of one file. path: how the file's path begins."""

    def __init__(self, lake: Lake, name: str, schema: pa.Schema, meet: Meet, *, path: str) -> None:
        self._lake: Final = lake
        self._name: Final = name
        self._columns: Final = rows_schema(schema)
        self._meet: Final = meet
        self._stem: Final = path
        self._path = ""
        self._batches: Final[list[pa.RecordBatch]] = []
        self._staged: list[StagedFile] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, perhaps with a column of marks (`tidegauge.leftout`).

        Raises `BatchDoesNotFit` for other columns, `MisplacedRows` for a row without an epoch.
        """
        if self._staged is not None:
            raise ValueError("the stager is closed")
        whole, marks = taken(batch)
        rows = fitting(whole, self._columns)
        if marks is not None:
            rows = rows.append_column(LEFT, marks)
        self._meet("stage")
        if rows.num_rows:
            if not self._path:
                self._begin()
            self._batches.append(rows)
        self._meet("written")

    def close(self) -> list[StagedFile]:
        """Finish the file, and return it; none when no row was written."""
        if self._staged is None:
            self._meet("close")
            self._staged = [self._finished()] if self._batches else []
            self._meet("closed")
        return [*self._staged]

    def abort(self) -> None:
        """Remove the file."""
        self._meet("abort")
        self._place.staged.pop(self._path, None)
        self._batches.clear()
        self._staged = []

    @property
    def _place(self) -> LakeTable:
        """The table, made where it is not there: who stages makes its folders anew."""
        return self._lake.tables.setdefault(self._name, LakeTable())

    def _begin(self) -> None:
        """Take the first path that no other attempt at the task has, or had."""
        place, number = self._place, 0
        while not self._path or place.knows(self._path):
            self._path = f"{self._stem}-{number:03d}"
            number += 1
        place.staged[self._path] = None

    def _finished(self) -> StagedFile:
        place = self._place.staged
        if self._path not in place:  # swept, by a driver that has the lease now
            raise FileNotFoundError(errno.ENOENT, "no such staged file", self._path)
        epochs = [epoch for batch in self._batches for epoch in batch.column(EPOCH).to_pylist()]
        size = sum(batch.nbytes for batch in self._batches)
        file = StagedFile(self._path, len(epochs), size, min(epochs), max(epochs))
        place[self._path] = LakeFile(file, tuple(self._batches))
        return file
