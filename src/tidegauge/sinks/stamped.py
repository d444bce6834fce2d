"""A sink whose staged rows all have at least one epoch: the past of an output that has one.

Invariant: with the epoch `c`, a row that is staged of the epoch `e` has `_epoch = max(e, c)`; nothing else of it is
another one.

>>> import tempfile
>>> import pyarrow as pa
>>> from tidegauge.sinks.parquet.sink import ParquetSink
>>> made = tempfile.TemporaryDirectory()
>>> columns = pa.schema([("n", pa.int64()), ("_epoch", pa.int64())])
>>> stager = StampedSink(ParquetSink(made.name), 7).stage(columns, job="a" * 32, task=0)
>>> stager.write(pa.record_batch({"n": [1, 2], "_epoch": [3, 9]}, columns))
>>> [(file.first_epoch, file.last_epoch, file.rows) for file in stager.close()]
[(7, 9, 2)]
>>> made.cleanup()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from tidegauge.lazy import library
from tidegauge.leftout import FillingIn, KeptByKey
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.protocol import Applying, OutputId, Sink, StagedFile, Stager, Table

__all__ = ["Dating", "StampedSink"]

pc: Final = library("pyarrow.compute")


@runtime_checkable
class Dating(Applying, Protocol):
    """A `Sink` that applies changes by their own epochs, and itself sees to it that rows have later ones."""

    def stage_from(self, least: int, schema: pa.Schema, *, job: str, task: int) -> Stager:
        """Return a writer, as `Sink.stage` does. No row gets an epoch before `least` from its changes."""
        ...


@dataclass(frozen=True, slots=True)
class StampedSink:
    """A sink that stages no row of an epoch before `epoch`."""

    sink: Sink
    epoch: int

    @property
    def identity(self) -> str:
        """What it writes to."""
        return self.sink.identity

    @property
    def shared(self) -> bool:
        """Whether several outputs may write there."""
        return self.sink.shared

    @property
    def keeps(self) -> KeptByKey | None:
        """How its table fills in what changes leave out."""
        return self.sink.keeps if isinstance(self.sink, FillingIn) else None

    def describe(self) -> Mapping[str, Any]:
        """Return the configuration."""
        return self.sink.describe()

    def check(self, schema: pa.Schema) -> None:
        """Raise when rows of this schema could not be written."""
        self.sink.check(schema)

    def open(self, output: OutputId) -> Table:
        """Return the present table."""
        return self.sink.open(output)

    def stage(self, schema: pa.Schema, *, job: str, task: int) -> Stager:
        """Return a writer for one task of one job. A table by key has to know the true epochs, too."""
        if isinstance(self.sink, Dating) and self.sink.applies:
            return self.sink.stage_from(self.epoch, schema, job=job, task=task)
        return _StampedStager(self.sink.stage(schema, job=job, task=task), self.epoch)


@dataclass(frozen=True, slots=True)
class _StampedStager:
    stager: Stager
    epoch: int

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        at = batch.schema.get_field_index(EPOCH)
        kind = batch.schema.field(at)
        stamps = pc.max_element_wise(batch.column(at), pa.scalar(self.epoch, kind.type))
        self.stager.write(batch.set_column(at, kind, stamps))

    def close(self) -> list[StagedFile]:
        """Finish, and return the files."""
        return self.stager.close()

    def abort(self) -> None:
        """Remove the files written so far."""
        self.stager.abort()
