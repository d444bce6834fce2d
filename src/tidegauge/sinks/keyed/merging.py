"""One merge task: leaves and runs become new leaves, for a part of the keys, in memory that does not grow with them.

    cut     the part is cut into shorter ones, by what row groups say of their keys, so that each has few rows
    read    of each, in the order of the keys: the row groups of leaves and runs that meet it, one after the other
    merge   the last change of each key takes the place of its row, or takes it away (`folding.merged`)
    write   rows go out sorted by key, into files with disjoint key ranges

Invariant: no more is in memory at once than the rows of one short part and one row group, whatever the sizes of the
table, its leaves and the changes. A file whose row groups are large, or not in the order of their keys, as others
write them, is looked through once for where its keys lie, and is then read once for each short part.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.sinks import LeafUnreadable, StagedFileMissing
from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.sinks.keyed.folding import lasts, merged, sort
from tidegauge.sinks.keyed.keys import Ends, Key, RowGroup, pieces_of, plain, within
from tidegauge.sinks.keyed.layout import AT, GONE, Ordering
from tidegauge.sinks.keyed.planning import Merge, Sizes, parted
from tidegauge.sinks.location import inside, staging
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.staging import ParquetStager

__all__ = ["MergeTask"]

pc: Final[Any] = library("pyarrow.compute")
pq: Final[Any] = library("pyarrow.parquet")

_BATCH: Final = 32 * 1024
_EVERY: Final = 1024
"""Of a file whose keys are in no order, each of this many tells where they lie."""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A picklable task of a table in `folder` with these columns, in stored form. See `Work`."""

    folder: str
    columns: pa.Schema
    ordering: Ordering
    merge: Merge
    sizes: Sizes
    job: str
    task: int

    def __call__(self) -> list[StagedFile]:
        """Merge, and return the new leaves. Raises `LeafUnreadable`, `StagedFileMissing`, `LastUndecided`."""
        out = _Leaves(self)
        try:
            leaves = [_Reading(self, path, changes=False) for path in self.merge.leaves]
            runs = [_Reading(self, path, changes=True) for path in self.merge.runs]
            for low, high in self._short_parts([*leaves, *runs]):
                for rows in self._merged(leaves, runs, low, high):
                    out.write(rows)
            return out.close()
        except BaseException:
            out.abort()
            raise

    def lasts(self, table: str) -> Iterator[pa.Table]:
        """Yield the last change of each key, deletions too, in the order of the keys, for tables that merge them.

        table: its name in errors. Raises `StagedFileMissing`, `LastUndecided`.
        """
        runs = [_Reading(self, path, changes=True) for path in self.merge.runs]
        for low, high in self._short_parts(runs):
            if found := [batch for run in runs for batch in run.read(low, high)]:
                yield lasts(pa.Table.from_batches(found), self.ordering, table=table)

    def _short_parts(self, files: Sequence[_Reading]) -> list[tuple[Key | None, Key | None]]:
        """Return the part of the keys in parts that are merged at once."""
        low, high = self.merge.low, self.merge.high
        share = self.sizes.part_bytes / max(1, self.sizes.part_rows)
        weights = [
            (key, max(loaded, int(rows * share)))
            for file in files
            for key, rows, loaded in file.spread()
            if (low is None or key > low) and (high is None or key < high)
        ]
        return parted(weights, low, high, most=self.sizes.part_bytes)

    def _merged(
        self, leaves: Sequence[_Reading], runs: Sequence[_Reading], low: Key | None, high: Key | None
    ) -> Iterator[pa.Table]:
        """Yield the rows that are left with keys in `[low, high)`, sorted."""
        changes = [batch for run in runs for batch in run.read(low, high)]
        rows = [batch for leaf in leaves for batch in leaf.read(low, high)]
        if changes:
            found = pa.Table.from_batches([*map(_as_change, rows), *changes])
            yield merged(found, self.ordering, table=self.folder).select(self.columns.names)
        elif rows:
            yield sort(pa.Table.from_batches(rows), self.ordering.key)


def _as_change(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of the table as changes that were before all others."""
    count = batch.num_rows
    return batch.append_column(AT, pa.repeat(pa.scalar(-1, pa.int64()), count)).append_column(
        GONE,
        pa.repeat(pa.scalar(False, pa.bool_()), count),  # noqa: FBT003 - a value
    )


class _Reading:
    """A leaf or a run that is read. sorted: whether its row groups are small, and in the order of their keys.

    It is only open while it is read: there may be many.
    """

    def __init__(self, task: MergeTask, path: str, *, changes: bool) -> None:
        self._task: Final = task
        self._path: Final = path
        self._changes: Final = changes
        columns = task.columns
        if changes:
            columns = pa.schema([*columns, pa.field(AT, pa.int64()), pa.field(GONE, pa.bool_())])
        self._columns: Final = columns
        self._key: Final = task.ordering.key
        with self._guarded(), self._opened() as file:
            self._pieces: Final[list[RowGroup]] = pieces_of(file, self._key)
        sizes = task.sizes
        small = all(one.rows <= sizes.part_rows and one.loaded <= sizes.part_bytes for one in self._pieces)
        self.sorted: Final = small and _in_order(self._pieces)

    def spread(self) -> list[tuple[Key, int, int]]:
        """Return where keys lie: from a key on, the number of rows and their bytes in memory."""
        if self.sorted:
            return [(p.ends.low, p.rows, p.loaded) for p in self._pieces if p.ends.low is not None]
        rows = max(1, sum(piece.rows for piece in self._pieces))
        size = sum(piece.loaded for piece in self._pieces)
        found = list[tuple[Key, int, int]]()
        with self._guarded(), self._opened() as file:
            for batch in _batches(file, [piece.number for piece in self._pieces], list(self._key)):
                every = batch.take(pa.array(range(0, batch.num_rows, _EVERY)))
                found += [(key, _EVERY, size * _EVERY // rows) for key in plain(every, self._key)]
        return found

    def read(self, low: Key | None, high: Key | None) -> list[pa.RecordBatch]:
        """Return the rows with keys in `[low, high)`."""
        pieces = [piece for piece in self._near(low, high) if piece.ends.meets(low, high)]
        found = list[pa.RecordBatch]()
        if not pieces:
            return found
        with self._guarded(), self._opened() as file:
            for piece in pieces:
                whole = piece.ends.inside(low, high)
                for stored in _batches(file, [piece.number], self._columns.names):
                    batch = _cast(stored, self._columns)
                    mask = None if whole else within(batch, self._key, low, high)
                    rows = batch if mask is None else batch.filter(mask)
                    if rows.num_rows:
                        found.append(rows)
        return found

    def _near(self, low: Key | None, high: Key | None) -> list[RowGroup]:
        """Return the row groups that may meet `[low, high)`: where they are in order, no others."""
        if not self.sorted:
            return self._pieces
        first = 0 if low is None else bisect.bisect_left(self._pieces, low, key=lambda one: one.ends.high or ())
        last = None if high is None else bisect.bisect_left(self._pieces, high, key=lambda one: one.ends.low or ())
        return self._pieces[first:last]

    def _opened(self) -> Any:
        path = readable(inside(self._task.folder, self._path))
        return pq.ParquetFile(path, pre_buffer=False, coerce_int96_timestamp_unit="us")  # Spark writes such instants

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Raise what it means that the file cannot be read."""
        table = self._task.folder
        try:
            yield
        except (pa.ArrowException, KeyError, OSError) as error:
            gone = isinstance(error, FileNotFoundError)
            if isinstance(error, OSError) and error.errno and not gone:
                raise  # the disk, which may be back; Arrow says what is wrong with a file without a number
            detail = "is not there" if gone else f"is damaged: {' '.join(str(error).split())}"
            if self._changes:
                raise StagedFileMissing(path=self._path, table=table, problem=detail) from error
            raise LeafUnreadable(path=self._path, table=table, detail=f"it {detail}") from error


def _batches(file: Any, groups: list[int], names: list[str]) -> Iterator[pa.RecordBatch]:
    return file.iter_batches(batch_size=_BATCH, row_groups=groups, columns=names, use_threads=False)  # type: ignore[no-any-return]


class _Leaves:
    """The files that a task writes, one after the other."""

    def __init__(self, task: MergeTask) -> None:
        self._task: Final = task
        self._left = 0
        self._open: ParquetStager | None = None
        self._staged: list[StagedFile] = []

    def write(self, rows: pa.Table) -> None:
        """Add rows, in the order of their keys."""
        start = 0
        while start < rows.num_rows:
            if self._open is None or self._left == 0:
                self._finish()
                self._open, self._left = self._begin(), self._task.merge.rows
            piece = rows.slice(start, self._left)
            for batch in piece.to_batches():
                self._open.write(batch)
            start += piece.num_rows
            self._left -= piece.num_rows

    def close(self) -> list[StagedFile]:
        """Finish, and return the files."""
        self._finish()
        return self._staged

    def abort(self) -> None:
        """Remove the files written so far."""
        if self._open is not None:
            self._open.abort()
        place = staging(self._task.folder)
        for file in self._staged:
            place.remove(file.path)

    def _begin(self) -> ParquetStager:
        task = self._task
        return ParquetStager(staging(task.folder), "", task.columns, job=task.job, task=task.task, statistics=True)

    def _finish(self) -> None:
        if self._open is not None:
            self._staged += self._open.close()
            self._open = None


def _cast(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return rows as others may have stored them with these columns, in this order. Raises `KeyError`."""
    if batch.schema.equals(columns):
        return batch
    arrays = [batch.column(field.name).cast(field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _in_order(pieces: Sequence[RowGroup]) -> bool:
    """Whether the ends of row groups are known, and none begins before another one has ended."""
    ends: list[Ends] = [piece.ends for piece in pieces]
    if any(one.low is None or one.high is None for one in ends):
        return False
    return all(one.high is not None and two.low is not None and one.high <= two.low for one, two in pairwise(ends))
