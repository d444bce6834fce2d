"""Packing the small files of a Delta table, and clearing away what its log names no more.

A pack is one entry of the log with `dataChange` false, as an OPTIMIZE is: it takes the old files out, puts the new
ones in, and moves no upper. It is made by the same comparison as every commit of the output (`delta.log`), at
whatever upper the table has by then, and carries its transactions; so it is only made where no change of others is
open. A driver that is running meets an entry more, and goes on.

*Deleted rows.* A file with many deleted rows is packed by itself: the new one has no deletion vector. Where leaves
are marked rather than merged, they are packed one by one, not by clusters: their ends meet, and no two have a key.

*As of an epoch.* Each row keeps its `_epoch`, and files are packed in the order of their epochs: a table that is
appended to is read as of any epoch from the packed files. One by key is packed in the order of its keys, by the merge
that commits use, without changes in it. As of an earlier epoch it is read from its earlier files: they stay as long
as the table's retention says.

Invariant: an entry is made only if the table holds every file that was packed, in the edition that was looked at.
What a driver has merged, replaced or taken out meanwhile is never put back.

>>> import tempfile
>>> import pyarrow as pa
>>> from tidegauge.sinks.staging import ParquetStager
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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from tidegauge.errors.sinks import FileNotHeld, TableUpperMismatch
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
from tidegauge.sinks.keyed.packing import packs_of_leaves
from tidegauge.sinks.keyed.parting import key_in_files
from tidegauge.sinks.keyed.planning import SIZES, TableLeaf
from tidegauge.sinks.layout.layout import AS_IT_COMES, FileLayout
from tidegauge.sinks.layout.packing import PackedRows, packed_as, packs_of
from tidegauge.sinks.layout.stager import LaidOutStager
from tidegauge.sinks.location import at, staging
from tidegauge.sinks.protocol import OutputId, StagedFile
from tidegauge.sinks.upkeep import Pack, Remnant

__all__ = ["DeltaUpkeep"]

_ATTEMPTS: Final = 50
_ENTRIES: Final = 10
"""A log with fewer entries since its last checkpoint is short enough."""


class DeltaUpkeep:
    """An `Upkeep`: the Delta table in `folder`.

    layout: how it keeps one row for each key, None where it has all. lying: how these lie in files.
    """

    def __init__(
        self, folder: str, output: OutputId, layout: Keyed | None = None, lying: FileLayout = AS_IT_COMES
    ) -> None:
        self._lying: Final = lying
        self._folder: Final = folder
        self._output: Final = output
        self._layout: Final = layout
        self._key: Final = () if layout is None else key_in_files(lying, layout.key)
        self._sizes: Final = SIZES.with_leaves(lying.file_bytes)
        self._leaves: Final = None if layout is None else DeltaLeaves(folder, self._key)
        self._log: Final = (
            DeltaLog(folder, output, layout=lying)
            if layout is None
            else DeltaLog(folder, output, key=layout.key, held=self._names, layout=lying)
        )
        self._log.evolve("evolve")  # a driver may add columns while files are packed that have none of them

    def files(self) -> Sequence[StagedFile]:
        """Return its files, in the order of their epochs."""
        return self._log.files() if self._log.upper else []

    def plan(self) -> list[Pack]:
        """Return which of its present files are worth packing."""
        if not self._log.upper or self._log.schema is None:  # which brings it up to now
            return []
        self._log.check_kept()  # before any row is read for a pack that the commit would refuse
        if self._layout is None:
            return packs_of(self._log.files(), self._lying)
        leaves = list(self._present(self._log.version).values())
        return packs_of_leaves(leaves, self._sizes, marked=self._log.marks)

    def stage(self, pack: Pack, *, job: str) -> list[StagedFile]:
        """Write the rows of a pack into new files, in memory that does not grow with them."""
        if (columns := self._log.schema) is None:
            return []
        columns = rows_schema(columns)
        if self._layout is not None:
            ordering = replace(self._layout.ordering(columns), key=self._key)
            stored, partition = self._lying.stored(columns), pack.files[0].partition
            tasks = [
                MergeTask(self._folder, stored, ordering, merge, self._sizes, job, number, partition)
                for number, merge in enumerate(pack.how)
            ]
            return [file for task in tasks for file in task()]
        place, lying = staging(self._folder), packed_as(self._lying)
        stager = LaidOutStager(place, "", lying, columns, job=job, task=0, statistics=True, most=None)
        try:
            for rows in PackedRows(self._folder, columns, self._lying)(pack):
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

    def _names(self, version: int) -> set[str]:
        return set() if self._leaves is None else self._leaves.names(version)

    def _present(self, version: int) -> Mapping[str, TableLeaf]:
        return {} if self._leaves is None else self._leaves.at(version)
