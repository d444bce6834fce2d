"""A table of Iceberg with one row for each key: a commit merges the changes of its epochs into the table's own files.

    stage      tasks write changes as runs (`keyed.runs`), which no manifest ever names
    plan       the driver looks which leaves can hold a changed key, by the ends that the manifests have of them
    merge      tasks of the engine write these leaves anew, with the changes in them (`keyed.merging`)
    commit     one snapshot takes the old leaves out and puts the new ones in, with the output's upper

It is copy on write: every reader of Iceberg reads the table, and needs nothing of delete files.

Invariants. The merge is made of the leaves of one snapshot, in the turn of its epochs. Its commit is made only while
the table holds every leaf that was merged, and has the upper that the merge began from. Otherwise nothing is changed,
and the merge is planned again: others may have packed leaves together meanwhile. So a crash leaves the old table or
the new one, and staged files are litter. A row that others delete stays deleted until its key is changed again.

*Partitions.* As in a Delta table by key: leaves are of one partition each, changes are settled first, and where the
key does not say the whole partition, the leaves of all others that can hold a changed key are looked at
(`keyed.parting`).

*As of an epoch.* Each commit tells the first and the last epoch of its changes. Before the first the table was as
before the commit, from the last one on as with it; in between nobody can tell (`IcebergTable.files`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.iceberg import IcebergRowsDeleted, IcebergTableUnfit
from tidegauge.errors.sinks import FileNotHeld, NothingTakenOut, TableBusy
from tidegauge.evolution import Evolution
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import STAGED, discard, sweep
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import all_staged, check_span
from tidegauge.sinks.iceberg.catalog import CatalogPlace
from tidegauge.sinks.iceberg.columns import ids_in
from tidegauge.sinks.iceberg.fields import widened
from tidegauge.sinks.iceberg.gaining import with_columns
from tidegauge.sinks.iceberg.leaves import IcebergLeaves
from tidegauge.sinks.iceberg.replacement import IcebergSwap
from tidegauge.sinks.iceberg.staging import DATA, HIDDEN, IcebergLeaf
from tidegauge.sinks.iceberg.table import IcebergTable
from tidegauge.sinks.iceberg.table import discard as discard_leaves
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.keyed.merging import merge_job
from tidegauge.sinks.keyed.parting import key_in_files
from tidegauge.sinks.keyed.planning import SIZES, TableLeaf
from tidegauge.sinks.keyed.touching import Changed
from tidegauge.sinks.keyed.working import KeyedWork, SettledChanges, done
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.location import at, names_in, staging
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark
from tidegauge.sinks.working import Workers, alone

__all__ = ["IcebergByKey"]

_ATTEMPTS: Final = 20


class IcebergByKey:
    """A `Table`: the one at `place`, which has the last row of each key.

    lying: how rows lie in its files. swap: puts its first rows in the place of those that the table has; None for
    these. kept: the jobs whose runs are not swept, which a table and its replacement have together.
    """

    def __init__(
        self,
        place: CatalogPlace,
        output: OutputId,
        layout: Keyed,
        lying: FileLayout = HIDDEN,
        *,
        swap: IcebergSwap | None = None,
        kept: set[str] | None = None,
    ) -> None:
        self._place: Final = place
        self._folder: Final = place.folder
        self._output: Final = output
        self._layout: Final = layout
        self._lying: Final = lying
        self._leaves: Final = IcebergLeaves(place, key_in_files(lying, layout.key), lying)
        self._workers: Workers = alone
        self._kept: Final[set[str]] = set() if kept is None else kept
        self._swap = swap
        self._how: Evolution = "strict"
        self._inner = IcebergTable(place, output, lying, layout.key)

    def work_by(self, workers: Workers) -> None:
        """Have merges done by these from now on."""
        self._workers = workers

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        return 0 if self._swap else self._inner.upper

    @property
    def digest(self) -> str | None:
        """The digest of the flow's history up to the upper."""
        return None if self._swap else self._inner.digest

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the table, None where there is none."""
        return None if self._swap else self._inner.schema

    @property
    def edition(self) -> str:
        """The edition that its rows had when it was opened, "" for the first one."""
        return "" if self._swap else self._inner.edition

    @property
    def made(self) -> str:
        """The table's UUID."""
        return "" if self._swap else self._inner.made

    def evolve(self, how: Evolution) -> None:
        """Take rows of other columns in this way from now on."""
        self._how = how
        self._inner.evolve(how)

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that a commit of rows with this schema would add; raise what it would raise of them."""
        return () if self._swap else self._inner.lacking(self._layout.columns(rows_schema(schema)))

    def replacement(self, edition: str) -> IcebergByKey:
        """Return a table that holds nothing, until its first commit takes this one's place."""
        seen = self._inner.upper, self._inner.edition
        swap = IcebergSwap(self._place, self._output, self._lying, seen, edition, self._layout.key)
        found = IcebergByKey(self._place, self._output, self._layout, self._lying, swap=swap, kept=self._kept)
        found.work_by(self._workers)
        found.evolve(self._how)
        return found

    def withdraw(self, edition: str) -> None:
        """Give the rows that are there another edition, so that no replacement which was begun takes their place."""
        self._inner.withdraw(edition)

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
        """Merge the changes in `files` as those of the epochs `[lower, upper)`; see `Table.commit` and the module.

        Also raises what `IcebergTable.commit` raises, `LastUndecided`, `LeafUnreadable`, and what the workers raise.
        """
        if remove:
            raise NothingTakenOut(files=len(remove), table=str(self._place.name))
        check_span(lower, upper, files)
        rows = rows_schema(schema)
        given = columns = widened(self._layout.columns(rows))
        changes = (min(f.first_epoch for f in files), max(f.last_epoch for f in files)) if files else None
        work = KeyedWork(self._folder, self._layout, self._lying, SIZES.with_leaves(self._lying.file_bytes))
        job_of = partial(merge_job, self._output.incarnation, write)
        settled = SettledChanges(work, files, rows, self._present, self._workers, job_of)
        try:
            for attempt in range(_ATTEMPTS):
                if self._swap is None:
                    if not self._inner.awaits(lower, upper, write=write, history=history):
                        break
                    columns = self._inner.taking(given)
                job = job_of(attempt)
                runs, changed = settled.attempt(attempt, columns)
                try:
                    made, gone = self._merged(work, rows, columns, runs, changed, job)
                    about: dict[str, Any] = {"write": write, "history": history, "changes": changes}
                    if self._swap is None:
                        self._inner.commit(lower, upper, columns, made, remove=gone, **about)
                    else:
                        self._inner = self._swap(lower, upper, columns, made, remove=(), **about)
                        self._inner.evolve(self._how)
                        self._swap = None
                except FileNotHeld:
                    self._clear(job)
                except IcebergRowsDeleted as error:  # since the merge was planned
                    self._clear(job)
                    raise IcebergTableUnfit(table=str(self._place.name), feature="delete files") from error
                except BaseException:
                    self._clear(job)
                    raise
                else:
                    break
            else:
                raise TableBusy(table=str(self._place.name), attempts=_ATTEMPTS)
        finally:
            with suppress(OSError, TidegaugeError):
                self.discard(settled.made)
        with suppress(OSError, TidegaugeError):  # they are litter by now, and swept another time
            self.discard(files)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove runs. Files of the table are kept, whatever the caller believes of them."""
        discard(staging(self._folder), [file for file in files if file.path.startswith(f"{STAGED}/")])

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep runs from the sweep if all are as they were staged; say whether they are."""
        there = all_staged(self._folder, files)
        self._kept.update(file.path.split("/")[1] for file in files if there)
        return there

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Remove the runs that earlier drivers of this flow staged and did not commit; `attempt` has the argument."""
        sweep(staging(self._folder), job_mark(self._output.incarnation), confirm, kept=self._kept)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table."""
        self._inner.stand()

    def end(self) -> None:
        """Let go of the catalog's connections."""
        self._inner.end()

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the table's data files, as they were when an epoch was its last; see the module."""
        return [] if self._swap else self._inner.files(as_of=as_of)

    def volume(self) -> Volume:
        """Return how much the table holds."""
        return Volume() if self._swap else self._inner.volume()

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return full paths of the files."""
        return self._inner.uris(files)

    def version_of(self, epoch: int) -> str | None:
        """Return the snapshot that brought the epoch, None where nobody knows it any more."""
        return None if self._swap else self._inner.version_of(epoch)

    def links(self) -> list[Link]:
        """Return the links that commits brought."""
        return self._inner.links()

    def _present(self) -> list[TableLeaf]:
        return [] if self._swap else list(self._leaves.at(self._inner.look).values())

    def _merged(
        self,
        work: KeyedWork,
        rows: pa.Schema,
        columns: pa.Schema,
        runs: Sequence[StagedFile],
        changed: Changed,
        job: str,
    ) -> tuple[list[StagedFile], list[StagedFile]]:
        """Merge settled runs into the leaves that they touch; return the new leaves, and those that are gone."""
        look, present, ids = self._inner.look, self._present(), None
        if look.table is not None and not self._swap:
            after = with_columns(look.table.schema(), columns, last=look.table.metadata.last_column_id)
            ids = ids_in(after, columns)
        begin = IcebergLeaf(ids)
        tasks, leaves = work.tasks(runs, changed, present, columns, rows, job=job, begin=begin)
        return done(tasks, leaves, self._workers)

    def _clear(self, job: str) -> None:
        """Remove what the tasks of a job have written, and no snapshot names. What stays is litter."""
        with suppress(OSError, TidegaugeError):
            names = names_in(at(self._folder) / DATA, f"part-{job}-")
            discard_leaves(self._place, [StagedFile(f"{DATA}/{name}", 0, 0, 0, 0) for name in names])
