"""Changes of a table by key that is parted: for each key its last change, in a run of the partition it goes to.

    runs       changes by key, as tasks staged them, whatever their partitions
    settled    runs of one partition each, with at most one change of a key in all of them together
    keys       runs that name the changed keys alone: where their rows may go away

A *home* is what a key says of its partition: the values of the partition columns that are made of the key. A row
stays in the partitions of its key's home, whatever becomes of it. Where all partition columns are made of the key,
the home is the partition, and no runs of keys are needed: a change finds the row it replaces beside itself.

Law: **a partition's rows, merged with the settled runs of the partition, and less the keys of its home, are those of
the table once it has all the changes.** Argument: of a key with changes, no row from before is left; its last
change, if it puts a row, puts it into the run of one partition. A key without changes is in neither.

>>> from tidegauge.sinks.layout.transforms import bucket, day
>>> homes(FileLayout.of("DeltaSink", [bucket(4, "id"), day("at")], None, None), ("id",))
('id_bucket_4',)
>>> home_of((("id_bucket_4", "3"), ("at_day", "2026-11-20")), ("id_bucket_4",))
(('id_bucket_4', '3'),)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from tidegauge.lazy import library
from tidegauge.leftout import KeptByKey
from tidegauge.sinks.attempt import STAGED, AttemptFiles, stem_of
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.keyed.layout import GONE, MARKS, Keyed
from tidegauge.sinks.keyed.merging import MergeTask
from tidegauge.sinks.keyed.runs import RunFile
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.splitting import split
from tidegauge.sinks.layout.values import PartitionValues
from tidegauge.sinks.location import staging, writing
from tidegauge.sinks.protocol import StagedFile

__all__ = ["PartingTask", "home_of", "homes", "kept_by", "key_in_files"]

pc: Final[Any] = library("pyarrow.compute")


def homes(lying: FileLayout, key: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns that are made of the key."""
    return tuple(field.name for field in lying.partition if field.column in key)


def kept_by(layout: Keyed | None, lying: FileLayout) -> KeptByKey | None:
    """Return how a table fills in what changes leave out; None where it does not.

    A row that moves to another partition leaves its values in one that its change does not name.
    """
    if layout is None or homes(lying, layout.key) != lying.names:
        return None
    return KeptByKey(layout.key, layout.order)


def home_of(partition: PartitionValues, names: Sequence[str]) -> PartitionValues:
    """Return the home of a partition's keys. names: the columns that `homes` gives."""
    return tuple((name, text) for name, text in partition if name in names)


def key_in_files(lying: FileLayout, key: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that tell the rows of a partition apart: in the others all have one value."""
    return tuple(name for name in key if name not in lying.names)


@dataclass(frozen=True, slots=True)
class PartingTask:
    """A picklable task that settles the changes of a part of the keys. See `Work`.

    reading: what reads them, with the columns of the rows, before partition columns are made of these. What it stages
    has the home as its partition, where it names keys alone.
    """

    reading: MergeTask
    lying: FileLayout

    def __call__(self) -> list[StagedFile]:
        """Settle, and return the runs. Raises `StagedFileMissing`, `LastUndecided`."""
        task = self.reading
        place = staging(task.folder)
        stem = stem_of(task.job, task.task)
        files: AttemptFiles[RunFile] = AttemptFiles(place, f"{STAGED}/{task.job}", stem=stem, suffix=".parquet")
        found = list[PartitionValues]()
        key = key_in_files(self.lying, task.ordering.key)
        try:
            for changes in task.lasts(task.folder):
                for values, rows in self._parts(changes, key):
                    found.append(values)
                    with writing(place.root):
                        files.begin(partial(RunFile, changes=rows, key=key))
                    files.finish()
            return [replace(file, partition=of) for file, of in zip(files.close(), found, strict=True)]
        except BaseException:
            files.abort()
            raise

    def _parts(self, changes: pa.Table, key: Sequence[str]) -> Iterator[tuple[PartitionValues, pa.Table]]:
        """Yield the changes that settled runs have, and the keys, each with the partition or home."""
        lying, marks = self.lying, {one.name: changes.column(one.name) for one in MARKS}
        rows = changes.select(self.reading.columns.names).combine_chunks()
        [batch] = rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
        parted = pa.Table.from_batches([lying.parted(batch)])
        for name, values in marks.items():
            parted = parted.append_column(name, values.combine_chunks())
        stored = lying.stored(parted.schema).names
        home = homes(lying, self.reading.ordering.key)
        if home == lying.names:
            yield from ((values, some.select(stored)) for values, some in split(parted, lying.names))
            return
        yield from ((values, some.select([*key, EPOCH])) for values, some in split(parted, home))
        there = parted.filter(pc.invert(parted.column(GONE)))
        yield from ((values, some.select(stored)) for values, some in split(there, lying.names))
