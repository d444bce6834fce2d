"""The work of a commit of changes by key: they are settled, then merged into the leaves that they concern.

    carried   runs without rows that wait for the values of another key (`keyed.moved`)
    settled   runs of one partition each, where the table is parted (`keyed.parting`)
    changed   what the runs change, by the ends of their row groups
    tasks     for each part of a cluster of leaves that has changes (`keyed.planning`); small ones are put together
    done      the leaves that they have made, and those whose places these take

Invariant: a leaf that a task was given is either gone afterwards, or it stays and nothing was made of it.

>>> old, new = (StagedFile(name, 2, 90, 0, 0) for name in ("part-0", "part-1"))
>>> stays = StagedFile("part-0", 0, 0, 0, 0)
>>> done([lambda: [stays], lambda: [new]], {"part-0": old, "part-7": old}, alone) == ([new], [old])
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import pyarrow as pa

from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.keyed.lookup import LeafRows
from tidegauge.sinks.keyed.merging import LeafWriter, MergeTask, plain_leaf
from tidegauge.sinks.keyed.moved import carried
from tidegauge.sinks.keyed.parting import PartingTask, homes, key_in_files
from tidegauge.sinks.keyed.planning import LeafCluster, Sizes, TableLeaf, by_partition, planned
from tidegauge.sinks.keyed.touching import Changed, changed_in, planned_in, run_of
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.working import Work, Workers, alone, gathered

__all__ = ["Carry", "KeyedWork", "SettledChanges", "done"]

Carry: TypeAlias = Callable[[Sequence[StagedFile]], list[StagedFile] | None]

_FEW: Final = 32 * 1024
"""So few changes are settled here, without the engine."""


@dataclass(frozen=True, slots=True)
class KeyedWork:
    """What commits to the table by key in `folder` have to do. lying: how its rows lie in files."""

    folder: str
    layout: Keyed
    lying: FileLayout
    sizes: Sizes

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell the rows of a partition apart."""
        return key_in_files(self.lying, self.layout.key)

    def carried(
        self,
        files: Sequence[StagedFile],
        rows: pa.Schema,
        present: Iterable[TableLeaf],
        columns: pa.Schema,
        *,
        job: str,
    ) -> list[StagedFile] | None:
        """Return runs in place of some that leave values out, which need the rows of no other key; None where these
        need none.

        rows: the columns of the staged rows. present: the leaves of the table. columns: its columns. Raises what
        `moved.carried` raises, and `LeafUnreadable`.
        """
        held = LeafRows(self.folder, columns, self.layout.key, self.lying, present, self.sizes)
        return carried(self.folder, files, self.layout.ordering(rows), held, job=job, table=self.folder)

    def settled(
        self, files: Sequence[StagedFile], rows: pa.Schema, carry: Carry, *, job: str, workers: Workers
    ) -> tuple[list[StagedFile], bool]:
        """Return runs of one partition each with the changes of these, or these, where there are no partitions; and
        whether they hold whatever rows the table has.

        rows: the columns of the staged rows. carry: `carried`, of the runs alone. Raises `StagedFileMissing`,
        `LastUndecided`, and what `carry` and the workers raise.
        """
        if not self.lying.partition or not files:
            return list(files), True
        columns, ordering = self.layout.columns(rows), self.layout.ordering(rows)
        runs = [run_of(self.folder, file, self.layout.key) for file in files]
        anew = carry(files) if any(run.leaves_out for run in runs) else None
        if anew is not None:
            runs = [run_of(self.folder, file, self.layout.key) for file in anew]
        tasks = [
            PartingTask(MergeTask(self.folder, columns, ordering, merge, self.sizes, job, number), self.lying)
            for number, merge in enumerate(planned(LeafCluster(()), runs, (), self.sizes))
        ]
        few = sum(file.rows for file in files) <= _FEW
        return [file for staged in (alone if few else workers)(tasks) for file in staged], anew is None

    def changed(self, runs: list[StagedFile], carry: Carry) -> tuple[list[StagedFile], Changed]:
        """Return settled runs, or others in their place, and what they change.

        carry: as for `settled`, which was told it in a table with partitions. Raises `StagedFileMissing`, and what
        `carry` raises.
        """
        found = changed_in(self.folder, runs, self.key, self.lying.names)
        if self.lying.partition or not found.leaves_out or (anew := carry(runs)) is None:
            return runs, found
        return anew, changed_in(self.folder, anew, self.key, self.lying.names)

    def tasks(
        self,
        runs: Sequence[StagedFile],
        changed: Changed,
        present: Iterable[TableLeaf],
        columns: pa.Schema,
        rows: pa.Schema,
        *,
        job: str,
        begin: LeafWriter = plain_leaf,
    ) -> tuple[list[Work], dict[str, StagedFile]]:
        """Return the tasks that merge settled runs into some leaves; and the leaves that they merge, by path.

        columns: those of the table. rows: those of the staged rows.
        """
        stored, ordering = self.lying.stored(columns), replace(self.layout.ordering(rows), key=self.key)
        tasks, leaves = list[tuple[int, MergeTask]](), dict[str, StagedFile]()
        sizes = {file.path: file.bytes for file in runs}
        home = homes(self.lying, self.layout.key)
        for partition, cluster, merges in planned_in(
            self.folder, self.key, home, changed, by_partition(present), self.sizes
        ):
            leaves |= {leaf.file.path: leaf.file for leaf in cluster.leaves}
            for merge in merges:
                number = len(tasks)
                task = MergeTask(
                    self.folder, stored, ordering, merge, self.sizes, job, number, partition, begin=begin
                )
                read = sum(leaves[path].bytes for path in merge.leaves) + sum(sizes[path] for path in merge.runs)
                tasks.append((read, task))
        if not self.lying.partition:
            return [task for _, task in tasks], leaves
        return list(gathered(tasks, most=self.sizes.task_bytes)), leaves


@dataclass(slots=True)
class SettledChanges:
    """The changes of one commit, settled for each of its attempts.

    present: the leaves of the table now. job: names a job by its words. made: runs that are of no use when the commit
    is over. What the rest says, see `KeyedWork`.
    """

    work: KeyedWork
    files: Sequence[StagedFile]
    rows: pa.Schema
    present: Callable[[], Iterable[TableLeaf]]
    workers: Workers
    job: Callable[[str], str]
    made: list[StagedFile] = field(default_factory=list)
    _settled: list[StagedFile] | None = None
    """Those that hold whatever rows the table has."""

    def attempt(self, number: int, columns: pa.Schema) -> tuple[list[StagedFile], Changed]:
        """Return the runs to merge, and what they change. columns: of the table now.

        Raises what `KeyedWork.settled` and `KeyedWork.changed` do.
        """

        def carry(files: Sequence[StagedFile]) -> list[StagedFile] | None:
            job = self.job(f"carried {number}")
            return self._noted(self.work.carried(files, self.rows, self.present(), columns, job=job))

        if (settled := self._settled) is None:
            job = self.job(f"settled {number}")
            settled, holds = self.work.settled(self.files, self.rows, carry, job=job, workers=self.workers)
            self._noted(settled)
            self._settled = settled if holds else None
        return self.work.changed(settled, carry)

    def _noted(self, runs: list[StagedFile] | None) -> list[StagedFile] | None:
        self.made += [run for run in runs or () if run not in self.files]
        return runs


def done(
    tasks: Sequence[Work], leaves: Mapping[str, StagedFile], workers: Workers
) -> tuple[list[StagedFile], list[StagedFile]]:
    """Do the tasks; return the leaves that are new, and those that are gone. leaves: what they merge, by path."""
    made, gone = list[StagedFile](), dict(leaves)
    for file in (file for staged in (workers(tasks) if tasks else []) for file in staged):
        if gone.pop(file.path, None) is None:  # a leaf that stays is no new one
            made.append(file)
    return made, list(gone.values())
