"""An output's past, read from another output's table in place of their source.

Law. The table of an output holds what its steps make of the records of each epoch, and a step's rows depend on that
epoch alone. So if the steps of one output are the first of another's, the rows of the one's table, put through the
other's remaining steps, are the rows that the source would give: `remaining`. Upstream is not asked for them, and may
have forgotten them long ago.

Invariant: reading an epoch gives every row that the table holds of it, or raises. An epoch that compaction has
folded others into (`since`) has the rows of all of these.

>>> from tidegauge.job.plan import Filter, Select
>>> large, dear = Filter("n > 1"), Select(("n",))
>>> remaining((large, dear), (large,)) == (dear,), remaining((dear,), (large,))
(True, None)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.outputs import PastUnreadable
from tidegauge.evolution import Evolution, filled
from tidegauge.job.plan import SourceRead, Step
from tidegauge.lazy import library
from tidegauge.objects.reading import parquet_rows
from tidegauge.operations import carries
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.layout.values import PartitionValues, constants
from tidegauge.sinks.protocol import Rereadable, Table
from tidegauge.sinks.vectors import live_rows
from tidegauge.sources.protocol import OnBadRecord

__all__ = ["PastSplit", "TableRows", "past_read", "remaining"]

pc: Final[Any] = library("pyarrow.compute")

_ROWS: Final = 65_536
"""The most rows of a batch."""


def remaining(steps: tuple[Step, ...], other: tuple[Step, ...]) -> tuple[Step, ...] | None:
    """Return the steps that are left after those of another output, None where these are not the first ones."""
    return steps[len(other) :] if steps[: len(other)] == other else None


@dataclass(frozen=True, slots=True)
class PastSplit:
    """The rows of the epochs `[lower, upper)` in one data file. `weight` is the size of the file in bytes.

    epoch: the first one that the rows are given as. values: those that all rows have in partition columns. deletions:
    see `StagedFile`.
    """

    uri: str
    epoch: int
    lower: int
    upper: int
    weight: int
    values: PartitionValues = ()
    deletions: str = ""

    @property
    def partition(self) -> str:
        """The file."""
        return self.uri.rpartition("/")[2]

    @property
    def path(self) -> str:
        """Where the file is."""
        return self.uri


@dataclass(frozen=True, slots=True)
class TableRows:
    """Reads splits of a table's files: rows that say in `_epoch` which epoch they are of.

    columns: those to read, of the table, with `_epoch`. since: no row is given an epoch before it. reader: reads a
    file whole, None for those of Parquet.
    """

    output: str
    columns: pa.Schema
    since: int
    reader: Callable[[str], Iterator[pa.RecordBatch]] | None = None

    def read(self, split: PastSplit, bad: OnBadRecord) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - rows are decoded
        """Yield the rows of a split. Raises `PastUnreadable`, `DeletedRows`."""
        epochs = (pc.field(EPOCH) >= split.lower) & (pc.field(EPOCH) < split.upper)
        try:
            for batch in self._batches(split, epochs):
                if batch.num_rows:
                    yield self._folded(batch)
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno and not isinstance(error, FileNotFoundError):
                raise  # the disk, which may be back; Arrow says what is wrong with a file without a number
            detail = f"{split.uri}: {' '.join(str(error).split())[:300]}"
            raise PastUnreadable(table=self.output, first=split.lower, upper=split.upper, detail=detail) from error

    def _batches(self, split: PastSplit, epochs: Any) -> Iterator[pa.RecordBatch]:
        if self.reader is not None:
            return (filled(batch, self.columns).filter(epochs) for batch in self.reader(split.uri))
        held = tuple((name, text) for name, text in split.values if name in self.columns.names)
        if split.deletions:
            rows = live_rows(split.uri, self.columns, constants(held, self.columns), split.deletions)
            return (batch.filter(epochs) for batch in rows)
        file = parquet_rows([split.uri], self.columns, [constants(held, self.columns)])
        batches: Iterator[pa.RecordBatch] = file.to_batches(
            filter=epochs, batch_size=_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
        )
        return batches

    def _folded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.since:
            return batch
        at = batch.schema.get_field_index(EPOCH)
        kind = batch.schema.field(at)
        return batch.set_column(at, kind, pc.max_element_wise(batch.column(at), pa.scalar(self.since, kind.type)))


def past_read(
    source: str,
    output: str,
    table: Table,
    columns: pa.Schema,
    *,
    lower: int,
    upper: int,
    since: int,
    evolution: Evolution = "strict",
) -> SourceRead:
    """Return what a job reads of a table for the epochs `[lower, upper)` of a source.

    output: the one whose table it is. columns: what its steps give, with `_epoch` last. since: the epochs up to it
    are one. evolution: how the table takes on columns: those that it may yet get are null in what it holds. Raises
    `PastUnreadable`, and `OutputIsNoTable`.
    """

    def refused(detail: str) -> PastUnreadable:
        return PastUnreadable(table=output, first=lower, upper=upper, detail=detail)

    if carries(columns):
        raise refused("it applies operations to the rows of their keys, and keeps no row of each record")
    if table.upper < upper:
        raise refused(f"it holds the epochs before {table.upper} alone")
    first = 0 if lower <= since else lower
    files = [file for file in table.files() if file.first_epoch < upper and file.last_epoch >= first]
    splits = [
        PastSplit(uri, max(file.first_epoch, lower), first, upper, file.bytes, file.partition, file.deletions)
        for file, uri in zip(files, table.uris(files), strict=True)
    ]
    held = table.schema or columns
    missing = [name for name in columns.names if name not in held.names]
    if missing and evolution == "strict":
        raise refused(f"it has no column {missing[0]!r}")
    wanted = pa.schema([(columns if name in missing else held).field(name) for name in columns.names])
    rows = pa.schema([field for field in columns if field.name != EPOCH])
    reader = table.reader() if isinstance(table, Rereadable) else None
    return SourceRead(source, TableRows(output, wanted, since, reader), rows, tuple(splits), collect=False)
