"""One merge task: leaves and runs become new leaves, for a part of the keys, in memory that does not grow with them.

    cut     the part is cut into shorter ones, by what row groups say of their keys, so that each has few rows
    read    of each, in the order of the keys: the row groups of leaves and runs that meet it, one after the other
    merge   the last change of each key takes the place of its row, or takes it away (`folding.merged`); what it
            leaves out stays as it was in the row
    write   rows go out sorted by key, into files with disjoint key ranges

In a table that is parted, a task has the leaves of one partition, and there are runs of keys whose rows go away from
it (`keyed.parting`). It looks at the keys of its leaves first: those that have none of them stay.

Invariant: no more is in memory at once than the rows of one short part and one row group, whatever the sizes of the
table, its leaves and the changes. A file whose row groups are large, or not in the order of their keys, as others
write them, is looked through once for where its keys lie, and is then read once for each short part.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Final, Protocol

import pyarrow as pa

from tidegauge.errors.sinks import LeafUnreadable, StagedFileMissing
from tidegauge.evolution import filled
from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.keyed.folding import lasts, merged, sort
from tidegauge.sinks.keyed.keys import Ends, Key, RowGroup, pieces_of, plain, within
from tidegauge.sinks.keyed.layout import AT, GONE, MARKS, Ordering
from tidegauge.sinks.keyed.planning import Merge, Sizes, parted
from tidegauge.sinks.layout.values import PartitionValues, folders
from tidegauge.sinks.location import inside, staging
from tidegauge.sinks.protocol import StagedFile, Stager, job_mark
from tidegauge.sinks.staging import ParquetStager
from tidegauge.sinks.vectors import deleted, places_of

__all__ = ["LeafWriter", "MergeTask", "merge_job", "plain_leaf"]

pc: Final[Any] = library("pyarrow.compute")
pq: Final[Any] = library("pyarrow.parquet")

_BATCH: Final = 32 * 1024
_FEW: Final = 4096
"""So few keys are looked for in the row groups alone that may have them."""
_HELD: Final = -2
_LEAVES: Final = -1
"""The epochs, as of changes, of the table's rows, and of keys whose rows go away."""
_EVERY: Final = 1024
"""Of a file whose keys are in no order, each of this many tells where they lie."""


def merge_job(incarnation: str, write: str, attempt: int | str) -> str:
    """Return the name of a job that no other merge of the flow has."""
    digest = hashlib.blake2b(f"{write}/{attempt}".encode(), digest_size=8).hexdigest()
    return job_mark(incarnation) + digest


class LeafWriter(Protocol):
    """Begins a new leaf of a table; can be pickled."""

    def __call__(self, folder: str, columns: pa.Schema, *, partition: PartitionValues, job: str, task: int) -> Stager:
        """Return the stager of a leaf of a partition with these columns."""
        ...


def plain_leaf(folder: str, columns: pa.Schema, *, partition: PartitionValues, job: str, task: int) -> Stager:
    """Begin a Parquet file in the table's folder, or in that of a partition."""
    return ParquetStager(staging(folder), folders(partition), columns, job=job, task=task, statistics=True)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A picklable task of a table in `folder` with these columns, in stored form. See `Work`.

    partition: what all rows of its leaves have in the table's partition columns.
    """

    folder: str
    columns: pa.Schema
    ordering: Ordering
    merge: Merge
    sizes: Sizes
    job: str
    task: int
    partition: PartitionValues = ()
    begin: LeafWriter = plain_leaf

    def __call__(self) -> list[StagedFile]:
        """Merge, and return the new leaves; the old ones, by their paths alone, where nothing concerns them.

        Raises `LeafUnreadable`, `StagedFileMissing`, `LastUndecided`, `LeftOutUnknown`.
        """
        out = _Leaves(self)
        try:
            deletions = self.merge.deletions or ("",) * len(self.merge.leaves)
            pairs = zip(self.merge.leaves, deletions, strict=True)
            leaves = [_Reading(self, path, self.columns, deletions=dead) for path, dead in pairs]
            runs = [_Reading(self, path, _changes(self.columns), run=True) for path in self.merge.runs]
            keys = [_Reading(self, path, self._keys, run=True) for path in self.merge.keys]
            if self.merge.lone and leaves and keys and not runs and not self._hold(leaves, keys):
                return [StagedFile(path, 0, 0, 0, 0) for path in self.merge.leaves]
            for low, high in self._short_parts([*leaves, *runs, *keys]):
                for rows in self._merged(leaves, runs, keys, low, high):
                    out.write(rows)
            return out.close()
        except BaseException:
            out.abort()
            raise

    def rows_of(self, keys: Sequence[Key], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the leaves with these keys, in order, and perhaps others. Raises `LeafUnreadable`.

        They have the columns of the key, and those of these names.
        """
        columns = pa.schema([self.columns.field(name) for name in (*self.ordering.key, *names)])
        for path, dead in zip(self.merge.leaves, self.merge.deletions, strict=True):
            yield from _Reading(self, path, columns, deletions=dead).near(keys)

    def lasts(self, table: str) -> Iterator[pa.Table]:
        """Yield the last change of each key, deletions too, in the order of the keys, for tables that merge them.

        table: its name in errors. Raises `StagedFileMissing`, `LastUndecided`.
        """
        runs = [_Reading(self, path, _changes(self.columns), run=True) for path in self.merge.runs]
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

    @property
    def _keys(self) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in self.ordering.key])

    def _hold(self, leaves: Sequence[_Reading], keys: Sequence[_Reading]) -> bool:
        """Whether any of the leaves holds a row of the keys."""
        names = self.ordering.key
        for low, high in self._short_parts(keys):
            wanted = [batch for one in keys for batch in one.read(low, high)]
            few = sorted(key for batch in wanted for key in plain(batch, names)) if _rows(wanted) <= _FEW else None
            exact: set[Key] | None = None
            for held in (batch for leaf in leaves if wanted for batch in leaf.keys(low, high, few)):
                some = _among(held, wanted, names)
                if some.num_rows and len(names) == 1:
                    return True
                if some.num_rows:
                    exact = exact or {key for batch in wanted for key in plain(batch, names)}
                    if not exact.isdisjoint(plain(some, names)):
                        return True
        return False

    def _merged(
        self,
        leaves: Sequence[_Reading],
        runs: Sequence[_Reading],
        keys: Sequence[_Reading],
        low: Key | None,
        high: Key | None,
    ) -> Iterator[pa.Table]:
        """Yield the rows that are left with keys in `[low, high)`, sorted."""
        changes = [batch for run in runs for batch in run.read(low, high)]
        rows = [batch for leaf in leaves for batch in leaf.read(low, high)]
        named = [batch for one in keys for batch in one.read(low, high)] if rows else []
        leaving = [_among(batch, rows, self.ordering.key) for batch in named]
        if changes or _rows(leaving):
            marked = [_marked(filled(batch, self.columns), _LEAVES, gone=True) for batch in leaving]
            held = [_marked(batch, _HELD, gone=False) for batch in rows]
            found = pa.Table.from_batches([*held, *marked, *changes])
            yield merged(found, self.ordering, table=self.folder).select(self.columns.names)
        elif rows:
            yield sort(pa.Table.from_batches(rows), self.ordering.key)


def _changes(columns: pa.Schema) -> pa.Schema:
    return pa.schema([*columns, *MARKS])


def _marked(batch: pa.RecordBatch, at: int, *, gone: bool) -> pa.RecordBatch:
    """Return rows as changes of an epoch."""
    values: Sequence[Any] = (pa.scalar(at, pa.int64()), pa.scalar(gone, pa.bool_()), pa.scalar(None, pa.string()))
    marks = [pa.repeat(value, batch.num_rows) for value in values]
    return pa.RecordBatch.from_arrays([*batch.columns, *marks], schema=pa.schema([*batch.schema, *MARKS]))


def _rows(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _among(batch: pa.RecordBatch, others: Sequence[pa.RecordBatch], key: Sequence[str]) -> pa.RecordBatch:
    """Return the rows whose value in each column of the key others have: those with their keys, and perhaps more."""
    for name in key:
        values = pa.chunked_array([one.column(name) for one in others])
        batch = batch.filter(pc.is_in(batch.column(name), value_set=values))
    return batch


class _Reading:
    """A leaf or a run that is read, as rows of these columns. sorted: whether its row groups are small, and in the
    order of their keys.

    It is only open while it is read: there may be many.
    """

    def __init__(
        self, task: MergeTask, path: str, columns: pa.Schema, *, run: bool = False, deletions: str = ""
    ) -> None:
        self._dead: Final = deleted(deletions)
        self._task: Final = task
        self._path: Final = path
        self._run: Final = run
        self._columns: Final = columns
        self._key: Final = task.ordering.key
        with self._guarded(), self._opened() as file:
            self._pieces: Final[list[RowGroup]] = pieces_of(file, self._key)
        self._starts: Final = list(accumulate((piece.rows for piece in self._pieces), initial=0))
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
        for piece, batch in self._alive(pieces):
            mask = None if piece.ends.inside(low, high) else within(batch, self._key, low, high)
            rows = batch if mask is None else batch.filter(mask)
            if rows.num_rows:
                found.append(rows)
        return found

    def near(self, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the row groups that may have one of these keys, in order."""
        for _, batch in self._alive([piece for piece in self._pieces if _may_have(piece.ends, keys)]):
            yield batch

    def _alive(self, pieces: Sequence[RowGroup]) -> Iterator[tuple[RowGroup, pa.RecordBatch]]:
        """Yield the rows of row groups that are not deleted."""
        if not pieces:
            return
        with self._guarded(), self._opened() as file:
            for piece in pieces:
                start = self._starts[piece.number]
                for stored in _batches(file, [piece.number], self._columns.names):
                    left = places_of(self._dead, start, stored.num_rows)
                    start += stored.num_rows
                    yield piece, self._fitted(stored if left is None else stored.filter(left))

    def keys(self, low: Key | None, high: Key | None, few: Sequence[Key] | None) -> Iterator[pa.RecordBatch]:
        """Yield the keys in `[low, high)`, and others.

        few: the keys that are asked for, in order, if they are few: only row groups that may have one are read.
        """
        pieces = [piece for piece in self._near(low, high) if piece.ends.meets(low, high)]
        groups = [piece.number for piece in pieces if few is None or _may_have(piece.ends, few)]
        if groups:
            with self._guarded(), self._opened() as file:
                yield from _batches(file, groups, list(self._key))

    def _fitted(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows, of others perhaps, with the table's columns. Raises `KeyError` for one that they must have."""
        needed = [name for name in (*self._key, EPOCH, AT, GONE) if name in self._columns.names]
        if lost := [name for name in needed if name not in stored.schema.names]:
            raise KeyError(lost[0])
        return filled(stored, self._columns)

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
            if self._run:
                raise StagedFileMissing(path=self._path, table=table, problem=detail) from error
            raise LeafUnreadable(path=self._path, table=table, detail=f"it {detail}") from error


def _batches(file: Any, groups: list[int], names: list[str]) -> Iterator[pa.RecordBatch]:
    return file.iter_batches(batch_size=_BATCH, row_groups=groups, columns=names, use_threads=False)  # type: ignore[no-any-return]


class _Leaves:
    """The files that a task writes, one after the other."""

    def __init__(self, task: MergeTask) -> None:
        self._task: Final = task
        self._left = 0
        self._open: Stager | None = None
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

    def _begin(self) -> Stager:
        task = self._task
        return task.begin(task.folder, task.columns, partition=task.partition, job=task.job, task=task.task)

    def _finish(self) -> None:
        if self._open is not None:
            self._staged += [replace(file, partition=self._task.partition) for file in self._open.close()]
            self._open = None


def _may_have(ends: Ends, keys: Sequence[Key]) -> bool:
    """Whether any of these keys, in order, lies between the ends."""
    first = 0 if ends.low is None else bisect.bisect_left(keys, ends.low)
    return first < len(keys) and (ends.high is None or keys[first] <= ends.high)


def _in_order(pieces: Sequence[RowGroup]) -> bool:
    """Whether the ends of row groups are known, and none begins before another one has ended."""
    ends: list[Ends] = [piece.ends for piece in pieces]
    if any(one.low is None or one.high is None for one in ends):
        return False
    return all(one.high is not None and two.low is not None and one.high <= two.low for one, two in pairwise(ends))
