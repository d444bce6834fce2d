"""Packing the small files of a Delta table, and clearing away what its log names no more.

A pack is one entry of the log with `dataChange` false, as an OPTIMIZE is: it takes the old files out, puts the new
ones in, and moves no upper. It is made by the same comparison as every commit of the output (`delta.log`), at
whatever upper the table has by then, and carries its transactions; so it is only made where no change of others is
open. A driver that is running meets an entry more, and goes on.

*As of an epoch.* Each row keeps its `_epoch`, and files are packed in the order of their epochs: a table that is
appended to is read as of any epoch from the packed files. One by key is packed in the order of its keys, by the merge
that commits use, without changes in it. As of an earlier epoch it is read from its earlier files: they stay as long
as the table's retention says.

Invariant: an entry is made only if the table holds every file that was packed, in the edition that was looked at.
What a driver has merged, replaced or taken out meanwhile is never put back.

>>> import tempfile
>>> mine = OutputId("shop", "orders", "0" * 32)
>>> schema = pa.schema([("n", pa.int64()), ("_epoch", pa.int64())])
>>> with tempfile.TemporaryDirectory() as folder:
...     table = DeltaLog(folder, mine)
...     for epoch in range(8):
...         job = f"{epoch:032x}"
...         stager = ParquetStager(staging(folder), "", schema, job=job, task=0, statistics=True)
...         stager.write(pa.record_batch({"n": [epoch], "_epoch": [epoch]}))
...         table.commit(epoch, epoch + 1, schema, stager.close(), write=job)
...     upkeep = DeltaUpkeep(folder, mine)
...     [pack] = upkeep.plan()
...     version = upkeep.commit(pack, upkeep.stage(pack, job="f" * 32), write="f" * 32)
...     len(pack.files), version, [(file.first_epoch, file.last_epoch) for file in upkeep.files()]
(8, '8', [(0, 7)])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.sinks import FileNotHeld, TableUnavailable, TableUpperMismatch
from tidegauge.errors.upkeep import CannotPack
from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.delta.checkpoints import checkpointed
from tidegauge.sinks.delta.creating import snapshot
from tidegauge.sinks.delta.files import remove_unnamed
from tidegauge.sinks.delta.head import hinted, log_read
from tidegauge.sinks.delta.leaves import DeltaLeaves
from tidegauge.sinks.delta.log import DeltaLog
from tidegauge.sinks.delta.remnants import remnants_of
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.keyed.merging import MergeTask
from tidegauge.sinks.keyed.planning import SIZES, LeafCluster, Merge, TableLeaf, clusters, planned
from tidegauge.sinks.location import at, inside, staging
from tidegauge.sinks.packing import TARGET, FileSize, packs
from tidegauge.sinks.protocol import OutputId, StagedFile
from tidegauge.sinks.staging import ParquetStager
from tidegauge.sinks.upkeep import Pack, Remnant

__all__ = ["DeltaUpkeep"]

pq: Final[Any] = library("pyarrow.parquet")

_ATTEMPTS: Final = 50
_BATCH: Final = 32 * 1024
_ENTRIES: Final = 10
"""A log with fewer entries since its last checkpoint is short enough."""


class DeltaUpkeep:
    """An `Upkeep`: the Delta table in `folder`. layout: how it keeps one row for each key, None where it has all."""

    def __init__(self, folder: str, output: OutputId, layout: Keyed | None = None) -> None:
        self._folder: Final = folder
        self._output: Final = output
        self._layout: Final = layout
        self._leaves: Final = None if layout is None else DeltaLeaves(folder, layout.key)
        self._log: Final = (
            DeltaLog(folder, output)
            if layout is None
            else DeltaLog(folder, output, key=layout.key, held=lambda version: self._present(version).keys())
        )

    def files(self) -> Sequence[StagedFile]:
        """Return its files, in the order of their epochs."""
        return self._log.files() if self._log.upper else []

    def plan(self) -> list[Pack]:
        """Return which of its present files are worth packing."""
        if not self._log.upper or self._log.schema is None:  # which brings it up to now
            return []
        if self._layout is None:
            files = self._log.files()
            found = packs([FileSize(file.rows, file.bytes) for file in files], target=TARGET)
            return [Pack(tuple(files[some.start : some.stop])) for some in found]
        present = clusters(self._present(self._log.version).values())
        found = packs([_size(one) for one in present], target=SIZES.leaf_bytes)
        return [_pack(present[some.start : some.stop]) for some in found]

    def stage(self, pack: Pack, *, job: str) -> list[StagedFile]:
        """Write the rows of a pack into new files, in memory that does not grow with them."""
        if (columns := self._log.schema) is None:
            return []
        columns = rows_schema(columns)
        if self._layout is not None:
            ordering = self._layout.ordering(columns)
            tasks = [
                MergeTask(self._folder, columns, ordering, merge, SIZES, job, number)
                for number, merge in enumerate(pack.how)
            ]
            return [file for task in tasks for file in task()]
        stager = ParquetStager(staging(self._folder), "", columns, job=job, task=0, statistics=True)
        try:
            for file in pack.files:
                for rows in self._rows(file, columns):
                    stager.write(rows)
            return stager.close()
        except BaseException:
            stager.abort()
            raise

    def commit(self, pack: Pack, files: Sequence[StagedFile], *, write: str) -> str | None:
        """Let the new files take the places of the old ones, in one entry; see the module and `Upkeep.commit`."""
        if (columns := self._log.schema) is None:
            return None
        least = max(file.last_epoch for file in pack.files) + 1  # the driver may be further than when we opened
        for _ in range(_ATTEMPTS):
            upper = max(self._log.upper, least)
            try:
                self._log.commit(upper, upper, columns, files, remove=pack.files, write=write)
            except FileNotHeld:
                return None
            except TableUpperMismatch:
                if self._log.upper == upper:  # of another edition: all of its rows were replaced
                    return None
            else:
                return str(self._log.version + 1)
        return None

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove staged files. Files that the log names are kept."""
        remove_unnamed(self._folder, files)

    def remnants(self, retention: timedelta | None) -> list[Remnant]:
        """Return files that no version within the retention names."""
        if not self._log.upper:
            return []
        with log_read(self._folder):
            return remnants_of(self._folder, self._output, retention)

    def clear(self, remnants: Sequence[Remnant]) -> None:
        """Remove remnants, but for those that the log names by now."""
        remove_unnamed(self._folder, [StagedFile(one.path, 0, one.bytes, 0, 0) for one in remnants])

    def shorten(self) -> str | None:
        """Make a checkpoint of the newest version; entries older than the log's retention go with it."""
        self._log.end()
        if not self._log.upper or self._log.schema is None:
            return None
        version = self._log.version
        if version - hinted(at(self._folder) / "_delta_log") < _ENTRIES:
            return None
        with log_read(self._folder):
            checkpointed(snapshot(self._folder, version), self._folder, self._output)
        return str(version)

    def end(self) -> None:
        """Wait for the checkpoint under way."""
        self._log.end()

    def _present(self, version: int) -> Mapping[str, TableLeaf]:
        return {} if self._leaves is None else self._leaves.at(version)

    def _rows(self, file: StagedFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, our own or another writer's, in the table's columns. Raises `CannotPack`."""
        path = inside(self._folder, file.path)
        try:
            # Spark writes such instants; and in one thread, for a live flow has the others.
            with closing(
                pq.ParquetFile(readable(path), pre_buffer=False, coerce_int96_timestamp_unit="us")
            ) as opened:
                for batch in opened.iter_batches(batch_size=_BATCH, columns=columns.names, use_threads=False):
                    yield _cast(batch, columns)
        except FileNotFoundError as error:
            raise CannotPack(path=file.path, table=self._folder, detail="it is not there") from error
        except (pa.ArrowException, KeyError) as error:
            detail = " ".join(str(error).split())
            raise CannotPack(path=file.path, table=self._folder, detail=detail) from error
        except OSError as error:
            raise TableUnavailable(table=self._folder, detail=str(error)) from error


def _cast(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return rows as others may have stored them with these columns, in this order. Raises `KeyError`."""
    if batch.schema.equals(columns):
        return batch
    arrays = [batch.column(field.name).cast(field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _size(cluster: LeafCluster) -> FileSize:
    """Return how much the leaves of a cluster hold. Those with as many rows as a leaf has are as large as one."""
    rows = sum(leaf.file.rows for leaf in cluster.leaves)
    stored = sum(leaf.file.bytes for leaf in cluster.leaves)
    return FileSize(rows, max(stored, rows * SIZES.leaf_bytes // SIZES.leaf_rows))


def _pack(neighbours: Sequence[LeafCluster]) -> Pack:
    """Return the pack of clusters that follow each other: they are merged as one, and no changes into it."""
    leaves = tuple(leaf for one in neighbours for leaf in one.leaves)
    together = LeafCluster(leaves, neighbours[0].low, neighbours[-1].high)
    merges: tuple[Merge, ...] = tuple(planned(together, (), (), SIZES))
    return Pack(tuple(leaf.file for leaf in leaves), merges)
