"""Small leaves of a table by key, packed in the order of their keys: by the merge that commits use, without changes.

Where leaves are marked rather than merged, they are packed one by one, not by clusters: their ends meet, and no two
have a key.

Invariant: a pack is of one partition, of clusters that follow each other (`planning`), and of all their leaves.

>>> from tidegauge.sinks.keyed.keys import Ends
>>> from tidegauge.sinks.keyed.planning import SIZES
>>> from tidegauge.sinks.protocol import StagedFile
>>> leaves = [TableLeaf(StagedFile(f"part-{n}", 3, 900, n, n), Ends((2 * n,), (2 * n + 1,))) for n in range(8)]
>>> [len(pack.files) for pack in packs_of_leaves(leaves, SIZES)]
[8]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidegauge.sinks.keyed.planning import LeafCluster, Merge, Sizes, TableLeaf, by_partition, clusters, planned
from tidegauge.sinks.layout.packing import purged
from tidegauge.sinks.packing import GROWTH, FileSize, packs
from tidegauge.sinks.upkeep import Pack

__all__ = ["packs_of_leaves"]


def packs_of_leaves(leaves: Sequence[TableLeaf], sizes: Sizes, *, marked: bool = False) -> list[Pack]:
    """Return which leaves are worth packing. `Pack.how` has the merges that do it.

    marked: whether old rows are marked deleted in leaves.
    """
    found = list[Pack]()
    for some in by_partition(leaves).values():
        present = _apart(some, sizes) if marked else clusters(some)
        worth = packs([_size(one, sizes) for one in present], target=sizes.leaf_bytes)
        found += [_pack(present[which.start : which.stop], sizes) for which in worth]
    by_path = {leaf.file.path: leaf for leaf in leaves}
    alone = purged([leaf.file for leaf in leaves], found)
    return [*found, *(_pack([LeafCluster((by_path[file.path],))], sizes) for file in alone)]


def _apart(leaves: Iterable[TableLeaf], sizes: Sizes) -> list[LeafCluster]:
    """Return leaves one by one: first those that may grow, in the order of their keys, then the others."""

    def place(leaf: TableLeaf) -> tuple[bool, bool, Any]:
        large = leaf.file.rows * GROWTH > sizes.leaf_rows
        return large, leaf.ends.low is not None, leaf.ends.low or ()

    return [LeafCluster((leaf,)) for leaf in sorted(leaves, key=place)]


def _size(cluster: LeafCluster, sizes: Sizes) -> FileSize:
    """Return how much the leaves of a cluster hold. Those with as many rows as a leaf has are as large as one."""
    rows = sum(leaf.file.rows for leaf in cluster.leaves)
    stored = sum(leaf.file.bytes for leaf in cluster.leaves)
    return FileSize(rows, max(stored, rows * sizes.leaf_bytes // sizes.leaf_rows))


def _pack(neighbours: Sequence[LeafCluster], sizes: Sizes) -> Pack:
    """Return the pack of clusters that follow each other: they are merged as one, and no changes into it."""
    leaves = tuple(leaf for one in neighbours for leaf in one.leaves)
    together = LeafCluster(leaves, neighbours[0].low, neighbours[-1].high)
    merges: tuple[Merge, ...] = tuple(planned(together, (), (), sizes))
    return Pack(tuple(leaf.file for leaf in leaves), merges)
