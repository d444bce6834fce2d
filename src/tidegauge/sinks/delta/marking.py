"""Deleting the old rows of changed keys by deletion vectors: which leaves tasks look at, and what comes of it.

Invariant: of a leaf that is in neither answer no row has a changed key; of one that is marked, no row is left that
has; of one that is to be merged, nothing was changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from tidegauge.sinks.delta.entry import MarkedFile
from tidegauge.sinks.delta.files import remove_unnamed
from tidegauge.sinks.delta.leaves import DeltaLeaves
from tidegauge.sinks.keyed.marking import MarkTask, overlap
from tidegauge.sinks.keyed.planning import Run, Sizes, TableLeaf
from tidegauge.sinks.protocol import StagedFile
from tidegauge.sinks.vectors import descriptor_of, path_of
from tidegauge.sinks.working import Workers

__all__ = ["discard_vectors", "mark"]

_LEAVES: Final = 8
"""How many leaves of full size a task looks at."""


def mark(
    folder: str,
    key: pa.Schema,
    parts: Iterable[tuple[Sequence[TableLeaf], Sequence[Run]]],
    leaves: DeltaLeaves,
    version: int,
    workers: Workers,
    sizes: Sizes,
) -> tuple[list[MarkedFile], list[TableLeaf]]:
    """Return the leaves of a version with the rows marked that have changed keys, and those to be merged instead.

    key: the key columns, in stored form. parts: leaves, each with the runs that may have changes of their keys.
    """
    tasks = [
        MarkTask(folder, key, tuple(some), tuple(run.path for run in runs), sizes)
        for among, runs in parts
        for some in _grouped(_met(among, runs), sizes)
    ]
    present = leaves.at(version)
    marked, merged = list[MarkedFile](), list[TableLeaf]()
    for file in (file for found in (workers(tasks) if tasks else []) for file in found):
        before = present[file.path]
        if file.name == before.file.name:
            merged.append(before)
        else:
            marked.append(MarkedFile(before.file, file, leaves.added(version, file.path)))
    return marked, merged


def discard_vectors(folder: str, marked: Sequence[MarkedFile]) -> None:
    """Remove the files of vectors that the log does not name."""
    found = {path_of(descriptor_of(one.after.deletions)) for one in marked}
    remove_unnamed(folder, [StagedFile(path, 0, 0, 0, 0) for path in found if path is not None])


def _met(leaves: Sequence[TableLeaf], runs: Sequence[Run]) -> list[TableLeaf]:
    """Return the leaves that runs may have keys of, by the ends of both."""
    pieces = [piece.ends for run in runs for piece in run.pieces]
    return [leaf for leaf in leaves if any(overlap(leaf.ends, ends) for ends in pieces)]


def _grouped(leaves: Sequence[TableLeaf], sizes: Sizes) -> Iterator[list[TableLeaf]]:
    """Yield leaves as tasks look at them."""
    some, rows = list[TableLeaf](), 0
    for leaf in leaves:
        some.append(leaf)
        rows += leaf.file.rows
        if rows >= _LEAVES * sizes.leaf_rows:
            yield some
            some, rows = [], 0
    if some:
        yield some
