"""The files of a table that changes are merged into, and the tasks that do it: a pure decision about ends of keys.

Definitions. A *leaf* is a file of the table, with its ends. Leaves whose ends meet are one *cluster*; so clusters lie
apart, in order. A cluster's *territory* goes from its first key to that of the next one; the first begins without
end, and a table without leaves is one cluster. So the territories part all keys there can be, and what a table holds
of a key, it holds in the cluster of the territory that the key is in.

Law: **merging the changes of each territory into the leaves of its cluster, and nothing else, merges all changes into
the table.** A leaf of a cluster without changes stays. As long as nobody else rewrites files, every cluster is one
leaf, because the files written for a territory are sorted and parted by key; where somebody has (OPTIMIZE packs files
together as they come), leaves meet, are merged as one cluster, and lie apart from then on.

A large cluster is parted by key among several tasks: each takes the rows of all its leaves in its part of the keys.

>>> file = StagedFile("part-0", rows=10, bytes=100, first_epoch=0, last_epoch=0)
>>> found = clusters(TableLeaf(file, Ends((low,), (high,))) for low, high in [(5, 9), (1, 4), (8, 20)])
>>> [(one.low, one.high, len(one.leaves)) for one in found]
[(None, (5,), 1), ((5,), None, 2)]
>>> parted([((1,), 60), ((2,), 60), ((3,), 60)], None, None, most=100)
[(None, (2,)), ((2,), (3,)), ((3,), None)]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from tidegauge.sinks.keyed.keys import Ends, Key, RowGroup
from tidegauge.sinks.layout.values import PartitionValues
from tidegauge.sinks.protocol import StagedFile

__all__ = [
    "SIZES",
    "KeyRange",
    "LeafCluster",
    "Merge",
    "Run",
    "Sizes",
    "TableLeaf",
    "by_partition",
    "clusters",
    "parted",
    "planned",
    "spread",
]

KeyRange: TypeAlias = tuple[Key | None, Key | None]
"""The keys from the first on, before the second; None for without end."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large things become.

    leaf_bytes, leaf_rows: a file of the table. task_bytes: what a task merges, as stored. part_bytes, part_rows: what
    it has in memory at once, besides a row group. few_rows, most_dead: in a table with deletion vectors, up to how
    many rows a leaf is small, and the share of rows that may be dead.

    Each epoch rewrites the leaves it touches, so a small leaf makes small epochs cheap; and a table has a file for
    each, which makes a large one cheap to read. Databricks gives 32 MB to tables that are merged into.
    """

    leaf_bytes: int = 32 << 20
    leaf_rows: int = 1 << 18
    task_bytes: int = 64 << 20
    part_bytes: int = 48 << 20
    part_rows: int = 256 * 1024
    few_rows: int = 1 << 14
    most_dead: float = 0.25

    def with_leaves(self, file_bytes: int | None) -> Sizes:
        """Return these with files of this size, None for the same ones.

        >>> SIZES.with_leaves(64 << 20).leaf_rows == 2 * SIZES.leaf_rows
        True
        """
        if file_bytes is None:
            return self
        rows = max(1, self.leaf_rows * file_bytes // self.leaf_bytes)
        return replace(self, leaf_bytes=file_bytes, leaf_rows=rows, task_bytes=max(self.task_bytes, 2 * file_bytes))


SIZES: Final = Sizes()


@dataclass(frozen=True, slots=True)
class TableLeaf:
    """A file of the table."""

    file: StagedFile
    ends: Ends


@dataclass(frozen=True, slots=True)
class Run:
    """A file of changes, sorted by key. leaves_out: whether some of them leave values out."""

    path: str
    pieces: tuple[RowGroup, ...]
    leaves_out: bool = False

    def within(self, low: Key | None, high: Key | None) -> list[RowGroup]:
        """Return the row groups that may have changes of keys in `[low, high)`."""
        return [piece for piece in self.pieces if piece.ends.meets(low, high)]


@dataclass(frozen=True, slots=True)
class LeafCluster:
    """Leaves whose ends meet, and their territory `[low, high)`."""

    leaves: tuple[TableLeaf, ...]
    low: Key | None = None
    high: Key | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """One task: these leaves and runs are merged, as far as their keys are in `[low, high)`.

    rows: about how many a file that is written gets. keys: runs that name keys alone, whose rows go away. lone:
    whether no other task has rows of these leaves, so that they stay unchanged where nothing concerns them.
    deletions: of each leaf which of its rows are deleted; empty where none are.
    """

    leaves: tuple[str, ...]
    runs: tuple[str, ...]
    low: Key | None
    high: Key | None
    rows: int
    keys: tuple[str, ...] = ()
    lone: bool = False
    deletions: tuple[str, ...] = ()


@dataclass
class _Met:
    """A cluster while it is gathered. high: None for without end."""

    leaves: list[TableLeaf]
    high: Key | None
    low: Key | None = field(init=False)

    def __post_init__(self) -> None:
        self.low = self.leaves[0].ends.low


def by_partition(leaves: Iterable[TableLeaf]) -> dict[PartitionValues, list[TableLeaf]]:
    """Return the leaves of each partition."""
    found: dict[PartitionValues, list[TableLeaf]] = {}
    for leaf in leaves:
        found.setdefault(leaf.file.partition, []).append(leaf)
    return found


def clusters(leaves: Iterable[TableLeaf]) -> list[LeafCluster]:
    """Return the clusters of a table, or of a partition of it, in the order of their keys."""
    found: list[_Met] = []
    for leaf in sorted(leaves, key=lambda one: (one.ends.low is not None, one.ends.low or ())):
        low, high = leaf.ends.low, leaf.ends.high
        last = found[-1] if found else None
        if last is not None and (last.high is None or low is None or low <= last.high):
            last.leaves.append(leaf)
            last.high = None if high is None or last.high is None else max(high, last.high)
        else:
            found.append(_Met([leaf], high))
    if not found:
        return [LeafCluster(())]
    begins = [None, *(one.low for one in found[1:])]
    return [
        LeafCluster(tuple(one.leaves), low, high)
        for one, low, high in zip(found, begins, [*begins[1:], None], strict=True)
    ]


def spread(keys: Iterable[Key], found: Sequence[LeafCluster]) -> set[int]:
    """Return the places of the clusters whose territories keys are in."""
    begins = [one.low for one in found[1:] if one.low is not None]
    return {bisect_right(begins, key) for key in keys}


def planned(
    cluster: LeafCluster,
    runs: Sequence[Run],
    pieces: Sequence[RowGroup],
    sizes: Sizes,
    *,
    keys: Sequence[Run] = (),
) -> list[Merge]:
    """Return the tasks that merge runs into a cluster.

    pieces: the row groups of its leaves, which are only asked for where it is large; see `is_large`. keys: runs of
    keys whose rows go away.
    """
    low, high = cluster.low, cluster.high
    touching = [run for run in runs if run.within(low, high)]
    changes = [piece for run in touching for piece in run.within(low, high)]
    stored = sum(leaf.file.bytes for leaf in cluster.leaves) + sum(piece.stored for piece in changes)
    rows = sum(leaf.file.rows for leaf in cluster.leaves) + sum(piece.rows for piece in changes)
    files = max(1, round(stored / sizes.leaf_bytes), round(rows / sizes.leaf_rows))
    each = -(-rows // files) or 1
    weights = [(piece.ends.low, piece.stored) for piece in (*changes, *pieces) if piece.ends.low is not None]
    parts = parted(weights, low, high, most=sizes.task_bytes)
    found = list[Merge]()
    for part in parts:
        leaves = cluster.leaves if len(cluster.leaves) == 1 else [n for n in cluster.leaves if n.ends.meets(*part)]
        deletions = tuple(leaf.file.deletions for leaf in leaves)
        found.append(
            Merge(
                tuple(leaf.file.path for leaf in leaves),
                tuple(run.path for run in touching if run.within(*part)),
                *part,
                each,
                tuple(run.path for run in keys if cluster.leaves and run.within(*part)),
                lone=len(parts) == 1,
                deletions=deletions if any(deletions) else (),
            )
        )
    return found


def is_large(cluster: LeafCluster, sizes: Sizes) -> bool:
    """Whether the leaves of a cluster are more than one task merges."""
    return sum(leaf.file.bytes for leaf in cluster.leaves) > sizes.task_bytes


def parted(weights: Iterable[tuple[Key, int]], low: Key | None, high: Key | None, *, most: int) -> list[KeyRange]:
    """Return `[low, high)` in parts of about a weight each.

    weights: where keys begin, and how much there is from there on. A part is cut before what would make it too large.
    """
    cuts: list[Key] = []
    sum_up = 0
    for key, weight in sorted(weights):
        before = cuts[-1] if cuts else low
        if sum_up and sum_up + weight > most and (before is None or key > before) and (high is None or key < high):
            cuts.append(key)
            sum_up = 0
        sum_up += weight
    return list(zip([low, *cuts], [*cuts, high], strict=True))
