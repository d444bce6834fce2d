"""Small files of a table that is appended to, packed within partitions: which of them, and their rows in a new order.

A sorted table is packed in runs: files that were written together, and have parts of the sorted rows each. So its
packs have disjoint ranges of the sorted columns, and files that are in order already are read about once.

A file with many deleted rows is packed by itself: the new one has no deletion vector.

Invariants. A pack is of one partition. `PackedRows` gives the rows of its files, each as often as they have it, in
memory that does not grow with them; those of sorted tables in the order of the sorted columns.

>>> small = [StagedFile(f"part-{n}.parquet", 3, 900, n, n, partition=(("day", "1"),)) for n in range(8)]
>>> [[file.first_epoch for file in pack.files] for pack in packs_of(small, FileLayout())]
[[0, 1, 2, 3, 4, 5, 6, 7]]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.sinks import TableUnavailable
from tidegauge.errors.upkeep import CannotPack
from tidegauge.evolution import filled
from tidegauge.lazy import library
from tidegauge.objects.reading import readable
from tidegauge.sinks.layout.clustering import clustered
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.stager import GATHERED_BYTES
from tidegauge.sinks.layout.values import PartitionValues, constants
from tidegauge.sinks.location import inside
from tidegauge.sinks.packing import TARGET, FileSize, packs
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.upkeep import Pack
from tidegauge.sinks.vectors import count_of, deleted, places_of

__all__ = ["PackedRows", "packed_as", "packs_of", "purged"]

pq: Final[Any] = library("pyarrow.parquet")

_BATCH: Final = 32 * 1024
_RUN: Final = 4
"""Of how many files a sorted pack is, at least: a filter on a sorted column reads about one of them."""
_DEAD: Final = 0.1
"""A file with a greater share of deleted rows is written anew by itself."""
_NUMBERED: Final = re.compile(r"(part-.*)-\d{3,}\.parquet", re.ASCII)


def packs_of(files: Sequence[StagedFile], lying: FileLayout) -> list[Pack]:
    """Return which files are worth packing, given in the table's order."""
    found = [pack for some in _by_partition(files) for pack in _packs(some, lying)]
    return [*found, *(Pack((file,)) for file in purged(files, found))]


def purged(files: Sequence[StagedFile], packed: Sequence[Pack]) -> list[StagedFile]:
    """Return the files with many deleted rows, but for those that are packed with others."""
    taken = {file.path for pack in packed for file in pack.files}
    return [
        file
        for file in files
        if file.path not in taken and (dead := count_of(file.deletions)) > _DEAD * (file.rows + dead)
    ]


def packed_as(lying: FileLayout) -> FileLayout:
    """Return how the rows of a pack are written, which come in the order of the sorted columns."""
    return replace(lying, sort=(), file_bytes=lying.file_bytes or TARGET // _RUN) if lying.sort else lying


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The rows of packs of a table in `folder`, with these columns."""

    folder: str
    columns: pa.Schema
    lying: FileLayout

    def __call__(self, pack: Pack) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a pack. Raises `CannotPack`."""
        return self._sorted(pack) if self._sort else self._in_turn(pack)

    def _in_turn(self, pack: Pack) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a pack as its files have them. Raises `CannotPack`."""
        for file in pack.files:
            dead, start = deleted(file.deletions), 0
            with self._opened(file) as opened:
                stored = self.lying.stored(self.columns).names
                for batch in opened.iter_batches(batch_size=_BATCH, columns=stored, use_threads=False):
                    left = places_of(dead, start, batch.num_rows)
                    start += batch.num_rows
                    rows = batch if left is None else batch.filter(left)
                    yield _whole(rows, self.columns, self._held(file))

    def _sorted(self, pack: Pack) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a pack in the order of the sorted columns. Raises `CannotPack`."""
        groups: list[tuple[StagedFile, int, int, Any]] = []
        size = 0
        for file in pack.files:
            with self._opened(file) as opened:
                about = [opened.metadata.row_group(number) for number in range(opened.metadata.num_row_groups)]
            dead, start = deleted(file.deletions), 0
            for number, group in enumerate(about):
                left = places_of(dead, start, group.num_rows)
                groups.append((file, number, group.num_rows if left is None else left.true_count, left))
                start += group.num_rows
            size += sum(group.total_byte_size for group in about)

        def read(at: int, names: Sequence[str]) -> pa.Table:
            file, number, _, left = groups[at]
            wanted = pa.schema([self.columns.field(name) for name in names])
            held = {name: value for name, value in self._held(file).items() if name in names}
            with self._opened(file) as opened:
                stored = self.lying.stored(wanted).names
                found = opened.read_row_group(number, columns=stored, use_threads=False)
            found = (found if left is None else found.filter(left)).combine_chunks()
            [batch] = found.to_batches() or [pa.RecordBatch.from_pylist([], schema=found.schema)]
            return pa.Table.from_batches([_whole(batch, wanted, held)])

        counts = [count for _, _, count, _ in groups]
        at_once = max(1, sum(counts) * GATHERED_BYTES // max(size, 1))
        for rows in clustered(counts, read, self.columns.names, self._sort, at_once):
            yield from rows.to_batches(max_chunksize=_BATCH)

    def _held(self, file: StagedFile) -> Mapping[str, pa.Scalar[Any]]:
        """Return the values that all rows of a file have, and that it does not hold itself."""
        return {} if self.lying.hidden else constants(file.partition, self.columns)

    @property
    def _sort(self) -> list[str]:
        return [name for name in self.lying.sort if name in self.columns.names]

    @contextmanager
    def _opened(self, file: StagedFile) -> Iterator[Any]:
        """Open a file, our own or another writer's. Raises `CannotPack` for what it does not have."""
        path = inside(self.folder, file.path)
        try:
            # Spark writes such instants; and in one thread, for a live flow has the others.
            with closing(
                pq.ParquetFile(readable(path), pre_buffer=False, coerce_int96_timestamp_unit="us")
            ) as opened:
                yield opened
        except FileNotFoundError as error:
            raise CannotPack(path=file.path, table=self.folder, detail="it is not there") from error
        except pa.ArrowException as error:
            detail = " ".join(str(error).split())
            raise CannotPack(path=file.path, table=self.folder, detail=detail) from error
        except OSError as error:
            raise TableUnavailable(table=self.folder, detail=str(error)) from error


def _packs(files: Sequence[StagedFile], lying: FileLayout) -> list[Pack]:
    """Return the packs of one partition's files.

    Sorted ones are packed in runs: files that were written together, and have parts of the sorted rows each.
    """
    size = lying.file_bytes
    runs = _runs(files) if lying.sort else [(file,) for file in files]
    target = max(TARGET, _RUN * (size or 0)) if lying.sort else size or TARGET
    sizes = [FileSize(sum(file.rows for file in run), sum(file.bytes for file in run)) for run in runs]
    found = packs(sizes, target=target)
    return [Pack(tuple(file for run in runs[some.start : some.stop] for file in run)) for some in found]


def _by_partition(files: Sequence[StagedFile]) -> Iterator[Sequence[StagedFile]]:
    """Yield the files of each partition, in the order that they have."""
    found: dict[PartitionValues, list[StagedFile]] = {}
    for file in files:
        found.setdefault(file.partition, []).append(file)
    yield from found.values()


def _runs(files: Sequence[StagedFile]) -> list[tuple[StagedFile, ...]]:
    """Return the files that one task has written, by their names, each alone that others have written.

    >>> names = ["part-a-00000-000.parquet", "part-b-00000-000.parquet", "part-a-00000-001.parquet"]
    >>> [[file.path[5] for file in run] for run in _runs([StagedFile(name, 1, 1, 0, 0) for name in names])]
    [['a', 'a'], ['b']]
    """
    found: dict[str, list[StagedFile]] = {}
    for file in files:
        name = _NUMBERED.fullmatch(file.path.rpartition("/")[2])
        found.setdefault(file.path if name is None else name[1], []).append(file)
    return [tuple(run) for run in found.values()]


def _whole(batch: pa.RecordBatch, columns: pa.Schema, held: Mapping[str, pa.Scalar[Any]]) -> pa.RecordBatch:
    """Return rows as others may have stored them with these columns, in this order; null in what a file lacks.

    held: the values of columns that all rows have.
    """
    if batch.schema.equals(columns):
        return batch
    for name, value in held.items():
        batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
    return filled(batch, columns)
