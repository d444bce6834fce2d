"""Which clusters of leaves runs of changes concern: by the ends of row groups, and by keys where these do not say.

Runs are sorted, so most of their row groups lie within one cluster's territory. Of one that lies in several the keys
are read, a row group at a time; so a small epoch with keys far apart concerns the leaves of these keys, not all
between them.

Invariant: `touched` gives every cluster that a run has a change for; `met` gives every cluster with a leaf that can
hold a row of a key, and no others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tidegauge.errors.sinks import StagedFileMissing
from tidegauge.lazy import library
from tidegauge.leftout import LEFT
from tidegauge.objects.reading import readable
from tidegauge.sinks.commits import staged_status
from tidegauge.sinks.keyed.keys import Key, RowGroup, pieces_of, plain, within
from tidegauge.sinks.keyed.parting import home_of
from tidegauge.sinks.keyed.planning import (
    LeafCluster,
    Merge,
    Run,
    Sizes,
    TableLeaf,
    clusters,
    is_large,
    planned,
    spread,
)
from tidegauge.sinks.layout.values import PartitionValues
from tidegauge.sinks.location import inside
from tidegauge.sinks.protocol import StagedFile

__all__ = ["Changed", "changed_in", "met", "planned_in", "run_of", "some_within", "touched"]

pc: Final[Any] = library("pyarrow.compute")
pq: Final[Any] = library("pyarrow.parquet")

_SEARCHES: Final = 50
"""To look for a key in a row group takes about this many times as long as to look one of its keys up."""


class Changed(NamedTuple):
    """The runs of changes of each partition, and those of keys alone of each home; see `keyed.parting`."""

    own: dict[PartitionValues, list[Run]]
    keys: dict[PartitionValues, list[Run]]

    @property
    def leaves_out(self) -> bool:
        """Whether changes leave values out, which the rows from before have."""
        return any(run.leaves_out for runs in self.own.values() for run in runs)


def changed_in(folder: str, files: Iterable[StagedFile], key: Sequence[str], names: Sequence[str]) -> Changed:
    """Return what runs change. names: the table's partition columns. Raises `StagedFileMissing`."""
    found = Changed({}, {})
    for file in files:
        into = found.keys if len(file.partition) < len(names) else found.own
        into.setdefault(file.partition, []).append(run_of(folder, file, key))
    return found


def planned_in(
    folder: str,
    key: Sequence[str],
    names: Sequence[str],
    changed: Changed,
    leaves: Mapping[PartitionValues, list[TableLeaf]],
    sizes: Sizes,
) -> Iterator[tuple[PartitionValues, LeafCluster, list[Merge]]]:
    """Yield each cluster that has changes, with its partition and the tasks that merge these into it.

    names: the columns that a key's home is made of.
    """
    own, keys = changed.own, changed.keys
    concerned = [of for of in {**leaves, **own} if of in own or home_of(of, names) in keys]
    parts = {of: clusters(leaves.get(of, ())) for of in concerned}
    places = {of: touched(folder, key, own.get(of, ()), found) for of, found in parts.items()}
    for home, some in keys.items():
        near = [(parts[of], places[of]) for of in concerned if home_of(of, names) == home]
        met(folder, key, some, near)
    for of, found in parts.items():
        leaving = keys.get(home_of(of, names), ())
        for number in sorted(places[of]):
            cluster = found[number]
            asked = cluster.leaves if is_large(cluster, sizes) else ()
            pieces = [piece for leaf in asked for piece in _pieces(folder, leaf, key)]
            yield of, cluster, planned(cluster, own.get(of, ()), pieces, sizes, keys=leaving)


def _pieces(folder: str, leaf: TableLeaf, key: Sequence[str]) -> list[RowGroup]:
    with (
        suppress(OSError, pa.ArrowException),
        pq.ParquetFile(readable(inside(folder, leaf.file.path))) as opened,
    ):
        return pieces_of(opened, key)
    return []  # the task that merges it will tell


def run_of(folder: str, file: StagedFile, key: Sequence[str]) -> Run:
    """Return what a run says of its keys. Raises `StagedFileMissing`."""
    staged_status(folder, file)
    try:
        with pq.ParquetFile(readable(inside(folder, file.path))) as opened:
            return Run(file.path, tuple(pieces_of(opened, key)), leaves_out=_leaves_out(opened))
    except pa.ArrowException as error:
        problem = f"is damaged: {' '.join(str(error).split())}"
        raise StagedFileMissing(path=file.path, table=folder, problem=problem) from error


def _leaves_out(run: Any) -> bool:
    """Whether changes of an open run leave values out. Earlier versions wrote none that do."""
    names = run.schema_arrow.names
    if LEFT not in names:
        return False
    about = run.metadata
    at = next(n for n in range(about.num_columns) if about.schema.column(n).path == LEFT)
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    return any(group.column(at).statistics.null_count < group.num_rows for group in groups)


def touched(folder: str, key: Sequence[str], runs: Iterable[Run], found: Sequence[LeafCluster]) -> set[int]:
    """Return the places of the clusters whose territories have keys of runs."""
    places = set[int]()
    for run in runs:
        doubtful = list[int]()
        for piece in run.pieces:
            low, high = piece.ends.low, piece.ends.high
            near = spread([low, high], found) if low is not None and high is not None else set[int]()
            if len(near) == 1:
                places |= near
            elif not near or not places >= set(range(min(near), max(near) + 1)):
                doubtful.append(piece.number)
        if doubtful:
            places |= _places(folder, key, run, doubtful, found)
    return places


def met(
    folder: str, key: Sequence[str], runs: Iterable[Run], several: Sequence[tuple[Sequence[LeafCluster], set[int]]]
) -> None:
    """Add the places of the clusters with a leaf that has a key of runs between its ends.

    several: the clusters of each partition, and the places of those that are known to be concerned.
    """
    for run in runs:
        doubtful: dict[int, list[tuple[TableLeaf, int, set[int]]]] = {}
        for found, places in several:
            for number, cluster in enumerate(found):
                if number in places:
                    continue
                for leaf in cluster.leaves:
                    for piece in run.pieces:
                        if _overlap(leaf, piece.ends.low, piece.ends.high):
                            doubtful.setdefault(piece.number, []).append((leaf, number, places))
        for group, keys in _keys(folder, key, run, sorted(doubtful)):
            for leaf, number, places in doubtful[group]:
                if number not in places and some_within(leaf, keys):
                    places.add(number)


def _overlap(leaf: TableLeaf, low: Key | None, high: Key | None) -> bool:
    ends = leaf.ends
    apart = (ends.high is not None and low is not None and ends.high < low) or (
        high is not None and ends.low is not None and ends.low > high
    )
    return not apart


def some_within(leaf: TableLeaf, keys: Sequence[Key]) -> bool:
    """Whether any of these keys, in order, lies between the ends of a leaf."""
    low, high = leaf.ends.low, leaf.ends.high
    first = 0 if low is None else bisect_left(keys, low)
    return first < len(keys) and (high is None or keys[first] <= high)


def _keys(folder: str, key: Sequence[str], run: Run, groups: Sequence[int]) -> Iterator[tuple[int, list[Key]]]:
    """Yield the keys of row groups of a run, in order."""
    if not groups:
        return
    with pq.ParquetFile(readable(inside(folder, run.path))) as opened:
        for group in groups:
            yield group, plain(opened.read_row_group(group, columns=[*key], use_threads=False), key)


def _places(
    folder: str, key: Sequence[str], run: Run, groups: Sequence[int], found: Sequence[LeafCluster]
) -> set[int]:
    """Return the places of the clusters that row groups of a run have changes of, by their keys."""
    places = set[int]()
    with pq.ParquetFile(readable(inside(folder, run.path))) as opened:
        for batch in opened.iter_batches(row_groups=list(groups), columns=[*key], use_threads=False):
            ends = spread(plain(batch.take(pa.array([0, batch.num_rows - 1])), key), found)
            between = range(min(ends), max(ends) + 1)
            if len(between) * _SEARCHES > batch.num_rows:
                places |= spread(plain(batch, key), found)
            else:
                places |= {at for at in between if _any(batch, key, found[at].low, found[at].high)}
    return places


def _any(batch: pa.RecordBatch, key: Sequence[str], low: Key | None, high: Key | None) -> bool:
    mask = within(batch, key, low, high)
    return mask is None or bool(pc.any(mask).as_py())
