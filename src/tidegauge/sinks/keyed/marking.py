"""One marking task: which rows of some leaves have changed keys, and whether they are marked or written anew.

    find     of each leaf, the places of the rows whose keys runs have, whatever becomes of these keys
    choose   `worth_merging`: a leaf is written anew if it is small, or too much of it would be dead weight
    mark     of every other one, the places go into its deletion vector, with those that it had

No more of a leaf is read than its key columns. The changed rows themselves are merged into new leaves by
`keyed.merging`, together with the leaves that are written anew.

Invariants. A row is marked if and only if its key is one that a run has. No more is in memory at once than the keys
of one row group, as many of runs, and the places of one leaf.

>>> [worth_merging(rows, dead, Sizes()) for rows, dead in [(1_000_000, 90_000), (1_000_000, 300_000), (100, 1)]]
[False, True, True]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.sinks import LeafUnreadable, StagedFileMissing
from tidegauge.evolution import filled
from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.sinks.keyed.keys import Ends, RowGroup, pieces_of, plain, within
from tidegauge.sinks.keyed.planning import Sizes, TableLeaf
from tidegauge.sinks.location import inside, staging
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.vectors import VectorFile, count_of, deleted, text_of

__all__ = ["MarkTask", "overlap", "worth_merging"]

pc: Final[Any] = library("pyarrow.compute")
pq: Final[Any] = library("pyarrow.parquet")

_PLACE: Final = "place="
_PLAIN: Final = re.compile(r"[0-9A-Za-z._=/-]+", re.ASCII)
"""A path that the log has unescaped. Of any other file polars 2.1 does not find the vector, and reads all rows."""


def worth_merging(rows: int, dead: int, sizes: Sizes) -> bool:
    """Whether a leaf with this number of rows, `dead` of them deleted, is written anew rather than marked.

    A small one costs no more than its vector and the next look at it. Of a large one, readers pass over the dead rows
    each time.
    """
    return rows <= sizes.few_rows or dead > sizes.most_dead * rows


@dataclass(frozen=True, slots=True)
class MarkTask:
    """A picklable task of a table in `folder`; `key` has the key columns, in stored form. See `Work`.

    It returns the leaves that have changed keys: with their rows marked, or unchanged, to be written anew.
    """

    folder: str
    key: pa.Schema
    leaves: tuple[TableLeaf, ...]
    runs: tuple[str, ...]
    sizes: Sizes

    def __call__(self) -> list[StagedFile]:
        """Mark. Raises `LeafUnreadable`, `StagedFileMissing`, `DeletedRows`."""
        vectors = VectorFile(staging(self.folder))
        runs = [_ChangedKeys(self, path) for path in self.runs]
        found = list[StagedFile]()
        try:
            for leaf in self.leaves:
                rows = leaf.file.rows + count_of(leaf.file.deletions)
                gone = np.zeros(rows, np.bool_)
                gone[deleted(leaf.file.deletions)] = True
                self._mark(gone, leaf, runs)
                dead = np.flatnonzero(gone)
                if len(dead) == rows - leaf.file.rows:
                    continue
                if _PLAIN.fullmatch(leaf.file.path) is None or worth_merging(rows, len(dead), self.sizes):
                    found.append(leaf.file)
                else:
                    deletions = text_of(self.folder, vectors.add(dead))
                    found.append(replace(leaf.file, rows=rows - len(dead), deletions=deletions))
            vectors.close()
        except BaseException:
            vectors.abort()
            raise
        return found

    def _mark(self, gone: Any, leaf: TableLeaf, runs: Sequence[_ChangedKeys]) -> None:
        """Mark the places of the rows whose keys runs have."""
        if not any(run.any(leaf.ends) for run in runs):
            return
        with self._guarded(leaf), self._opened(leaf.file.path) as file:
            start = 0
            for piece in pieces_of(file, self.key.names):
                keys = None
                for changed in self._gathered(some for run in runs for some in run.keys(piece.ends)):
                    if keys is None:
                        stored = file.read_row_group(piece.number, columns=self.key.names, use_threads=False)
                        keys = self._fitted(stored)
                    gone[start + _matches(keys, changed)] = True
                start += piece.rows

    def _gathered(self, keys: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield keys, as many at once as a part of the table has: each look at a row group takes its time."""
        some, rows = list[pa.Table](), 0
        for one in keys:
            some.append(one)
            rows += one.num_rows
            if rows >= self.sizes.part_rows:
                yield pa.concat_tables(some)
                some, rows = [], 0
        if some:
            yield pa.concat_tables(some)

    def _fitted(self, stored: pa.Table) -> pa.Table:
        """Return keys, of others perhaps, in the types of the table's. Raises `KeyError` for a missing column."""
        if lost := [name for name in self.key.names if name not in stored.schema.names]:
            raise KeyError(lost[0])
        return pa.Table.from_batches([filled(one, self.key) for one in stored.to_batches()], self.key)

    def _opened(self, path: str) -> Any:
        file = readable(inside(self.folder, path))
        return pq.ParquetFile(file, pre_buffer=False, coerce_int96_timestamp_unit="us")  # Spark writes such instants

    @contextmanager
    def _guarded(self, leaf: TableLeaf) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, KeyError, OSError) as error:
            gone = isinstance(error, FileNotFoundError)
            if isinstance(error, OSError) and error.errno and not gone:
                raise  # the disk, which may be back; Arrow says what is wrong with a file without a number
            detail = "it is not there" if gone else f"it is damaged: {' '.join(str(error).split())}"
            raise LeafUnreadable(path=leaf.file.path, table=self.folder, detail=detail) from error


class _ChangedKeys:
    """The keys of a run: its row groups are in their order, and the last ones that were read are kept."""

    def __init__(self, task: MarkTask, path: str) -> None:
        self._task: Final = task
        self._path: Final = path
        self._kept: dict[int, pa.Table] = {}
        with self._opened() as file:
            self._pieces: Final[list[RowGroup]] = pieces_of(file, task.key.names)

    def any(self, ends: Ends) -> bool:
        """Whether it has a key between these ends, both included."""
        names = self._task.key.names
        for keys in self.keys(ends):
            below = None if ends.low is None else within(keys, names, None, ends.low)
            first = 0 if below is None else pc.sum(below).as_py() or 0
            if first < keys.num_rows and (ends.high is None or plain(keys.slice(first, 1), names)[0] <= ends.high):
                return True
        return False

    def keys(self, ends: Ends) -> Iterator[pa.Table]:
        """Yield the keys of the row groups that may have some between these ends."""
        met = [piece.number for piece in self._pieces if overlap(piece.ends, ends)]
        for number in met:
            if number not in self._kept:
                if len(self._kept) * self._pieces[number].rows > self._task.sizes.part_rows:
                    self._kept.clear()
                with self._opened() as file:
                    found = file.read_row_group(number, columns=self._task.key.names, use_threads=False)
                self._kept[number] = found.combine_chunks()
            yield self._kept[number]

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with pq.ParquetFile(readable(inside(self._task.folder, self._path)), pre_buffer=False) as file:
                yield file
        except (pa.ArrowException, FileNotFoundError) as error:
            problem = f"is gone or damaged: {' '.join(str(error).split())}"
            raise StagedFileMissing(path=self._path, table=self._task.folder, problem=problem) from error


def overlap(one: Ends, two: Ends) -> bool:
    """Whether there may be a key between both ends of the one and of the other.

    >>> one = Ends((1,), (5,))
    >>> overlap(one, Ends((5,), (9,))), overlap(one, Ends((6,), (9,))), overlap(one, Ends())
    (True, False, True)
    """
    before = one.high is not None and two.low is not None and one.high < two.low
    behind = one.low is not None and two.high is not None and one.low > two.high
    return not (before or behind)


def _matches(keys: pa.Table, changed: pa.Table) -> Any:
    """Return the places of the keys that are among the changed ones."""
    names = keys.schema.names
    if len(names) == 1:
        held, wanted = keys.column(0), changed.column(0).combine_chunks()
        if pt.is_integer(held.type) and not held.null_count:
            numbers = held.to_numpy()
            if (numbers[1:] > numbers[:-1]).all():  # as we write them: then it takes a look for each changed key
                some = wanted.to_numpy()
                found = np.searchsorted(numbers, some)
                found[found == len(numbers)] = 0
                return found[numbers[found] == some]
        mask = pc.is_in(held, value_set=wanted)
        return np.flatnonzero(mask.combine_chunks().to_numpy(zero_copy_only=False))
    placed = keys.append_column(_PLACE, pa.array(np.arange(keys.num_rows)))
    return placed.join(changed, names, join_type="left semi", use_threads=False).column(_PLACE).to_numpy()
