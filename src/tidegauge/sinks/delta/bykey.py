"""A Delta table with one row for each key: a commit merges the changes of its epochs into the table's own files.

    stage      tasks write changes as runs (`keyed.runs`), which no log ever names
    plan       the driver looks which leaves can hold a changed key, by the ends that the log has of them
    merge      tasks of the engine write these leaves anew, with the changes in them (`keyed.merging`)
    commit     one entry of the log takes the old leaves out and puts the new ones in, with the output's upper

Invariants. The merge is made of the leaves of one version, in the turn of its epochs. Its entry is made only while
the table holds every leaf that was merged, and has the upper that the merge began from. Otherwise nothing is changed,
and the merge is planned again: others may have packed leaves together meanwhile. So a crash leaves the old table or
the new one, and staged files are litter. A row that others delete stays deleted until its key is changed again.

*Which leaves.* Runs are sorted, so most of their row groups lie within one cluster's territory, and their ends say
so. Of a row group with keys of several, the keys are read; so a small epoch with keys far apart touches the leaves of
these keys, not all between them.

*As of an epoch.* Each commit tells the first and the last epoch of its changes. Before the first the table was as
before the commit, from the last one on as with it; in between nobody can tell (`delta.asof`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.sinks import FileNotHeld, NothingTakenOut, StagedFileMissing, TableBusy, TableSchemaChanged
from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.remap.history import NO_HISTORY, History, Link
from tidegauge.sinks.attempt import STAGED, discard, sweep
from tidegauge.sinks.columns import differences, rows_schema
from tidegauge.sinks.commits import all_staged, check_span, staged_status
from tidegauge.sinks.delta.files import remove_unnamed
from tidegauge.sinks.delta.leaves import DeltaLeaves
from tidegauge.sinks.delta.log import DeltaLog
from tidegauge.sinks.delta.replacement import DeltaReplacement
from tidegauge.sinks.keyed.keys import Key, pieces_of, plain, within
from tidegauge.sinks.keyed.layout import Keyed
from tidegauge.sinks.keyed.merging import MergeTask
from tidegauge.sinks.keyed.planning import (
    SIZES,
    LeafCluster,
    Merge,
    Run,
    TableLeaf,
    clusters,
    is_large,
    planned,
    spread,
)
from tidegauge.sinks.location import at, inside, names_in, staging
from tidegauge.sinks.protocol import OutputId, StagedFile, Volume, job_mark
from tidegauge.sinks.working import Workers, alone

__all__ = ["DeltaByKey"]

pq: Final[Any] = library("pyarrow.parquet")
pc: Final[Any] = library("pyarrow.compute")

_ATTEMPTS: Final = 20


class DeltaByKey:
    """A `Table`: the Delta table in `folder`, which has the last row of each key.

    inner: the replacement of the rows that it has, None for these. kept: the jobs whose runs are not swept, which a
    table and its replacement have together.
    """

    def __init__(
        self,
        folder: str,
        output: OutputId,
        layout: Keyed,
        *,
        inner: DeltaReplacement | None = None,
        kept: set[str] | None = None,
    ) -> None:
        self._folder: Final = folder
        self._output: Final = output
        self._layout: Final = layout
        self._place: Final = staging(folder)
        self._leaves: Final = DeltaLeaves(folder, layout.key)
        self._workers: Workers = alone
        self._kept: Final[set[str]] = set() if kept is None else kept
        self._inner: DeltaLog | DeltaReplacement = inner or self._opened()

    def _opened(self) -> DeltaLog:
        return DeltaLog(
            self._folder, self._output, key=self._layout.key, held=lambda version: self._leaves.at(version).keys()
        )

    def work_by(self, workers: Workers) -> None:
        """Have merges done by these from now on."""
        self._workers = workers

    @property
    def upper(self) -> int:
        """The first epoch that the table does not hold, by the last commit seen of it."""
        return self._inner.upper

    @property
    def digest(self) -> str | None:
        """The first digits of the digest of the flow's history up to the upper, None where the log has none."""
        return self._inner.digest

    @property
    def schema(self) -> pa.Schema | None:
        """The present columns of the table, None before it is there."""
        return self._inner.schema

    @property
    def edition(self) -> str:
        """The first digits of the edition that its rows had when it was opened, "" for the first one."""
        return self._inner.edition if isinstance(self._inner, DeltaLog) else ""

    def replacement(self, edition: str) -> DeltaByKey:
        """Return a table that holds nothing, until its first commit takes this one's place."""
        if not isinstance(before := self._inner, DeltaLog):
            raise TypeError("a replacement is not replaced")
        found: list[DeltaByKey] = []
        inner = DeltaReplacement(
            self._folder,
            self._output,
            before,
            edition,
            key=self._layout.key,
            after=lambda: found[0]._opened(),  # noqa: SLF001 - of this class
        )
        found.append(DeltaByKey(self._folder, self._output, self._layout, inner=inner, kept=self._kept))
        found[0].work_by(self._workers)
        return found[0]

    def withdraw(self, edition: str) -> None:
        """Give the rows that are there another edition, so that no replacement which was begun takes their place."""
        if isinstance(self._inner, DeltaLog):
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
        columns = self._layout.columns(rows)
        changes = (min(f.first_epoch for f in files), max(f.last_epoch for f in files)) if files else None
        for attempt in range(_ATTEMPTS):
            self._inner.check(lower, history)
            self._check_columns(columns)
            runs = [self._run(file) for file in files]
            merges = list(self._merges(runs))
            gone = {path: leaf for _, leaves in merges for path, leaf in leaves.items()}
            job = self._job(write, attempt)
            tasks = [
                MergeTask(self._folder, columns, self._layout.ordering(rows), merge, SIZES, job, number)
                for number, merge in enumerate(merge for found, _ in merges for merge in found)
            ]
            try:
                made = [file for staged in (self._workers(tasks) if tasks else []) for file in staged]
                self._inner.commit(
                    lower,
                    upper,
                    columns,
                    made,
                    remove=[leaf.file for leaf in gone.values()],
                    write=write,
                    history=history,
                    changes=changes,
                )
            except FileNotHeld:
                self._clear(job)
            except BaseException:
                self._clear(job)
                raise
            else:
                with suppress(OSError, TidegaugeError):  # they are litter by now, and swept another time
                    self.discard(files)
                return
        raise TableBusy(table=self._folder, attempts=_ATTEMPTS)

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
        return self._inner.files(as_of=as_of)

    def volume(self) -> Volume:
        """Return how much the table holds."""
        return self._inner.volume()

    def uris(self, files: Sequence[StagedFile]) -> list[str]:
        """Return absolute paths of the files."""
        return self._inner.uris(files)

    def version_of(self, epoch: int) -> str | None:
        """Return the number of the version that brought the epoch, None when the log no longer has its entry."""
        return self._inner.version_of(epoch)

    def links(self) -> list[Link]:
        """Return the links that the table's log and its folder `_tidegauge` have."""
        return self._inner.links()

    # -- the plan

    def _check_columns(self, columns: pa.Schema) -> None:
        """Raise `TableSchemaChanged` before rows of the table are read as rows of these columns."""
        present = self._inner.schema
        if present is not None and (detail := differences(present, columns)):
            raise TableSchemaChanged(table=self._folder, output=str(self._output), detail=detail)

    def _run(self, file: StagedFile) -> Run:
        """Return what a run says of its keys. Raises `StagedFileMissing`."""
        staged_status(self._folder, file)
        try:
            with pq.ParquetFile(readable(inside(self._folder, file.path))) as opened:
                return Run(file.path, tuple(pieces_of(opened, self._layout.key)))
        except pa.ArrowException as error:
            problem = f"is damaged: {' '.join(str(error).split())}"
            raise StagedFileMissing(path=file.path, table=self._folder, problem=problem) from error

    def _merges(self, runs: Sequence[Run]) -> Iterator[tuple[list[Merge], dict[str, TableLeaf]]]:
        """Yield the tasks for each cluster that has changes, with its leaves."""
        found = clusters(self._present().values())
        for number in sorted(self._touched(runs, found)):
            cluster = found[number]
            asked = cluster.leaves if is_large(cluster, SIZES) else ()
            pieces = [piece for leaf in asked for piece in self._pieces(leaf)]
            leaves = {leaf.file.path: leaf for leaf in cluster.leaves}
            yield planned(cluster, runs, pieces, SIZES), leaves

    def _present(self) -> dict[str, TableLeaf]:
        return dict(self._leaves.at(self._inner.version)) if self._inner.upper else {}

    def _pieces(self, leaf: TableLeaf) -> list[Any]:
        with (
            suppress(OSError, pa.ArrowException),
            pq.ParquetFile(readable(inside(self._folder, leaf.file.path))) as opened,
        ):
            return pieces_of(opened, self._layout.key)
        return []  # whoever merges it will tell

    def _touched(self, runs: Sequence[Run], found: Sequence[LeafCluster]) -> set[int]:
        """Return the places of the clusters that runs have changes of."""
        touched = set[int]()
        for run in runs:
            doubtful = list[int]()
            for piece in run.pieces:
                low, high = piece.ends.low, piece.ends.high
                near = spread([low, high], found) if low is not None and high is not None else set[int]()
                if len(near) == 1:
                    touched |= near
                elif not near or not touched >= set(range(min(near), max(near) + 1)):
                    doubtful.append(piece.number)
            if doubtful:
                touched |= self._places(run, doubtful, found)
        return touched

    def _places(self, run: Run, groups: Sequence[int], found: Sequence[LeafCluster]) -> set[int]:
        """Return the places of the clusters that row groups of a run have changes of, by their keys."""
        places, key = set[int](), self._layout.key
        with pq.ParquetFile(readable(inside(self._folder, run.path))) as opened:
            for batch in opened.iter_batches(row_groups=list(groups), columns=[*key], use_threads=False):
                ends = spread(plain(batch.take(pa.array([0, batch.num_rows - 1])), key), found)
                between = range(min(ends), max(ends) + 1)
                if len(between) * _SEARCHES > batch.num_rows:
                    places |= spread(plain(batch, key), found)
                else:
                    places |= {at for at in between if self._any(batch, found[at].low, found[at].high)}
        return places

    def _any(self, batch: pa.RecordBatch, low: Key | None, high: Key | None) -> bool:
        mask = within(batch, self._layout.key, low, high)
        return mask is None or bool(pc.any(mask).as_py())

    # -- what was staged

    def _job(self, write: str, attempt: int) -> str:
        """Return the name of a job that no other merge has."""
        digest = hashlib.blake2b(f"{write}/{attempt}".encode(), digest_size=8).hexdigest()
        return job_mark(self._output.incarnation) + digest

    def _clear(self, job: str) -> None:
        """Remove what the tasks of a job have written, and the log does not name. What stays is litter."""
        with suppress(OSError, TidegaugeError):
            names = names_in(at(self._folder), f"part-{job}-")
            remove_unnamed(self._folder, [StagedFile(name, 0, 0, 0, 0) for name in names])


_SEARCHES: Final = 50
"""To look for a key in a row group takes about this many times as long as to look one of its keys up."""
