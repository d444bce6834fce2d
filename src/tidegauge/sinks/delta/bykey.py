"""A Delta table with one row for each key: a commit merges the changes of its epochs into the table's own files.

    stage      tasks write changes as runs (`keyed.runs`), which no log ever names
    plan       the driver looks which leaves can hold a changed key, by the ends that the log has of them
    merge      tasks of the engine write these leaves anew, with the changes in them (`keyed.merging`)
    commit     one entry of the log takes the old leaves out and puts the new ones in, with the output's upper

Invariants. The merge is made of the leaves of one version, in the turn of its epochs. Its entry is made only while
the table holds every leaf that was merged, and has the upper that the merge began from. Otherwise nothing is changed,
and the merge is planned again: others may have packed leaves together meanwhile. So a crash leaves the old table or
the new one, and staged files are litter. A row that others delete stays deleted until its key is changed again.

*Deletion vectors.* In a table that has them, old rows are marked deleted (`delta.marking`). Changes are merged into
those leaves alone that are small, or would be too dead. Where changes leave values out, nothing is marked: the merge
reads the old rows, which have these.

*Which leaves.* Those whose territories have keys of the runs (`keyed.touching`).

*Partitions.* Leaves are of one partition each, and those of each are clusters of their own. The changes are settled
first: each key's last one goes into a run of its partition (`keyed.parting`). Where the key does not say the whole
partition, a row may have come from any other: all leaves that can hold a changed key, by the ends of theirs, are
looked at, in tasks, and those that do hold one are written anew.

*As of an epoch.* Each commit tells the first and the last epoch of its changes. Before the first the table was as
before the commit, from the last one on as with it; in between nobody can tell (`delta.asof`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.sinks import FileNotHeld, NothingTakenOut, TableBusy
from tidegauge.evolution import Evolution
from tidegauge.lazy import library
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import STAGED, discard, sweep
from tidegauge.sinks.columns import rows_schema
from tidegauge.sinks.commits import all_staged, check_span
from tidegauge.sinks.delta.columns import NARROW
from tidegauge.sinks.delta.entry import MarkedFile
from tidegauge.sinks.delta.files import remove_unnamed
from tidegauge.sinks.delta.leaves import DeltaLeaves
from tidegauge.sinks.delta.log import DeltaLog
from tidegauge.sinks.delta.marking import discard_vectors, mark
from tidegauge.sinks.delta.replacement import DeltaSwap
from tidegauge.sinks.evolving import grown
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.keyed.merging import merge_job
from tidegauge.sinks.keyed.parting import home_of, homes
from tidegauge.sinks.keyed.planning import SIZES, TableLeaf, by_partition
from tidegauge.sinks.keyed.touching import Changed
from tidegauge.sinks.keyed.working import KeyedWork, SettledChanges, done
from tidegauge.sinks.layout.layout import AS_IT_COMES, FileLayout
from tidegauge.sinks.layout.values import folders
from tidegauge.sinks.location import at, names_in, staging
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark
from tidegauge.sinks.working import Workers, alone

__all__ = ["DeltaByKey"]

pq: Final[Any] = library("pyarrow.parquet")

_ATTEMPTS: Final = 20


class DeltaByKey:
    """A `Table`: the Delta table in `folder`, which has the last row of each key.

    swap: what puts the rows that it gets in the place of those that are there, None where they follow these. inner:
    the table's log, where it is open. kept: the jobs whose runs are not swept, which a table and its replacement have
    together.
    """

    def __init__(
        self,
        folder: str,
        output: OutputId,
        layout: Keyed,
        lying: FileLayout = AS_IT_COMES,
        *,
        vectors: bool = False,
        swap: DeltaSwap | None = None,
        inner: DeltaLog | None = None,
        kept: set[str] | None = None,
    ) -> None:
        self._vectors: Final = vectors
        self._folder: Final = folder
        self._output: Final = output
        self._layout: Final = layout
        self._place: Final = staging(folder)
        self._lying: Final = lying
        self._work: Final = KeyedWork(folder, layout, lying, SIZES.with_leaves(lying.file_bytes))
        self._leaves: Final = DeltaLeaves(folder, self._work.key)
        self._workers: Workers = alone
        self._how: Evolution = "strict"
        self._kept: Final[set[str]] = set() if kept is None else kept
        self._swap: DeltaSwap | None = swap
        self._inner: DeltaLog = inner or self._opened()

    def _opened(self) -> DeltaLog:
        return DeltaLog(
            self._folder,
            self._output,
            key=self._layout.key,
            held=self._leaves.names,
            layout=self._lying,
            vectors=self._vectors,
        )

    def work_by(self, workers: Workers) -> None:
        """Have merges done by these from now on."""
        self._workers = workers

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        return 0 if self._swap else self._inner.upper

    @property
    def digest(self) -> str | None:
        """The first digits of the digest of the flow's history up to the upper, None where the log has none."""
        return None if self._swap else self._inner.digest

    @property
    def schema(self) -> pa.Schema | None:
        """The present columns of the table, None before it is there."""
        return None if self._swap else self._inner.schema

    def evolve(self, how: Evolution) -> None:
        """Take rows of other columns in this way from now on."""
        self._how = how
        self._inner.evolve(how)

    def lacking(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that a commit of rows with this schema would add; raise what it would raise of them."""
        columns = self._lying.columns(self._layout.columns(rows_schema(schema)))
        return () if self._swap else self._inner.lacking(columns)

    @property
    def edition(self) -> str:
        """The first digits of the edition that its rows had when it was opened, "" for the first one."""
        return "" if self._swap else self._inner.edition

    @property
    def made(self) -> str:
        """The table's id."""
        return "" if self._swap else self._inner.made

    def replacement(self, edition: str) -> DeltaByKey:
        """Return a table that holds nothing, until its first commit takes this one's place."""
        seen = self._inner.upper, self._inner.edition
        swap = DeltaSwap(self._folder, self._output, self._lying, seen, edition, self._layout.key, self._opened)
        found = DeltaByKey(
            self._folder,
            self._output,
            self._layout,
            self._lying,
            vectors=self._vectors,
            swap=swap,
            inner=self._inner,
            kept=self._kept,
        )
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

        Also raises what `DeltaLog.commit` raises, `LastUndecided`, `LeafUnreadable`, and what the workers raise.
        """
        if remove:
            raise NothingTakenOut(files=len(remove), table=self._folder)
        check_span(lower, upper, files)
        rows = rows_schema(schema)
        columns = self._lying.columns(self._layout.columns(rows))
        changes = (min(f.first_epoch for f in files), max(f.last_epoch for f in files)) if files else None
        job_of = partial(merge_job, self._output.incarnation, write)
        settled = SettledChanges(self._work, files, rows, lambda: self._present().values(), self._workers, job_of)
        try:
            for attempt in range(_ATTEMPTS):
                self._check(lower, history)
                columns = self._grown(columns)
                job = job_of(attempt)
                runs, changed = settled.attempt(attempt, columns)
                marked, present = self._marked(changed, columns)
                tasks, leaves = self._work.tasks(runs, changed, present, columns, rows, job=job)
                try:
                    made, gone = done(tasks, leaves, self._workers)
                    about: dict[str, Any] = {"write": write, "history": history, "changes": changes}
                    if self._swap is None:
                        self._inner.commit(lower, upper, columns, made, remove=gone, marked=marked, **about)
                    else:
                        self._inner = self._swap(lower, upper, columns, made, remove=gone, **about)
                        self._inner.evolve(self._how)
                        self._swap = None
                except FileNotHeld:
                    self._clear(job, leaves.values(), runs, marked)
                except BaseException:
                    self._clear(job, leaves.values(), runs, marked)
                    raise
                else:
                    with suppress(OSError, TidegaugeError):  # they are litter by now, and swept another time
                        self.discard(files)
                    return
            raise TableBusy(table=self._folder, attempts=_ATTEMPTS)
        finally:
            with suppress(OSError, TidegaugeError):
                self.discard(settled.made)

    def discard(self, files: Sequence[StagedFile]) -> None:
        """Remove runs. Files of the table are kept, whatever the caller believes of them."""
        discard(self._place, [file for file in files if file.path.startswith(f"{STAGED}/")])

    def keep(self, files: Sequence[StagedFile]) -> bool:
        """Keep runs from the sweep if all are as they were staged; say whether they are."""
        there = all_staged(self._folder, files)
        self._kept.update(file.path.split("/")[1] for file in files if there)
        return there

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Remove the runs that earlier drivers of this flow staged and did not commit; `attempt` has the argument."""
        sweep(self._place, job_mark(self._output.incarnation), confirm, kept=self._kept)

    def stand(self) -> None:
        """Raise `TableUpperMismatch` where nothing is left of the table."""
        self._inner.stand()

    def end(self) -> None:
        """Wait for the checkpoint under way."""
        self._inner.end()

    def files(self, *, as_of: int | None = None) -> list[StagedFile]:
        """Return the table's data files, as they were when an epoch was its last; see the module."""
        return [] if self._swap else self._inner.files(as_of=as_of)

    def volume(self) -> Volume:
        """Return how much the table holds."""
        return Volume() if self._swap else self._inner.volume()

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return absolute paths of the files."""
        return self._inner.uris(files)

    def version_of(self, epoch: int) -> str | None:
        """Return the number of the version that brought the epoch, None when the log no longer has its entry."""
        return None if self._swap else self._inner.version_of(epoch)

    def links(self) -> list[Link]:
        """Return the links that the table's log and its folder `_tidegauge` have."""
        return self._inner.links()

    # -- the plan

    def _check(self, lower: int, history: History) -> None:
        """Raise unless the table can be given epochs from `lower` on, before anything is merged for them."""
        if self._swap is None:
            self._inner.check(lower, history)
        else:
            self._swap.check(lower)

    def _grown(self, columns: pa.Schema) -> pa.Schema:
        """Return the columns of the table once it has changes to these: its rows are read, and written, with them.

        Raises `TableSchemaChanged`, `ColumnsRefused`, before any is.
        """
        present = None if self._swap else self._inner.schema
        if present is None:
            return columns
        return grown(
            present, columns, self._how, place=self._folder, output=str(self._output), narrow=NARROW, nests=True
        )

    def _marked(self, changed: Changed, columns: pa.Schema) -> tuple[list[MarkedFile], Iterable[TableLeaf]]:
        """Mark old rows deleted; return the leaves that have them, and those that the changes are merged into."""
        present = self._present().values()
        marks = self._swap is None and self._inner.marks
        if not marks or not self._work.key or not (changed.own or changed.keys) or changed.leaves_out:
            return [], present
        key = pa.schema([columns.field(name) for name in self._work.key])
        home = homes(self._lying, self._layout.key)
        parts = [
            (leaves, [*changed.own.get(of, ()), *changed.keys.get(home_of(of, home), ())])
            for of, leaves in by_partition(present).items()
        ]
        return mark(self._folder, key, parts, self._leaves, self._inner.version, self._workers, self._work.sizes)

    def _present(self) -> dict[str, TableLeaf]:
        return dict(self._leaves.at(self._inner.version)) if self.upper else {}

    # -- what was staged

    def _clear(
        self,
        job: str,
        leaves: Iterable[StagedFile],
        runs: Iterable[StagedFile],
        marked: Sequence[MarkedFile],
    ) -> None:
        """Remove what the tasks of a job have written, and the log does not name. What stays is litter."""
        with suppress(OSError, TidegaugeError):
            discard_vectors(self._folder, marked)
            partitions = {file.partition for file in (*leaves, *runs)}
            places = sorted({folders(of) for of in partitions if len(of) == len(self._lying.names)})
            found = list[StagedFile]()
            for place in places or [""]:
                with suppress(FileNotFoundError):
                    names = names_in(at(self._folder) / place if place else at(self._folder), f"part-{job}-")
                    paths = [f"{place}/{name}" if place else name for name in names]
                    found += [StagedFile(path, 0, 0, 0, 0) for path in paths]
            remove_unnamed(self._folder, found)
