"""Rows of a table by their keys: looked up in the leaves whose ends they lie between, of the partitions they are in.

Invariant: a key without a row is not among those found; one with a row that others marked deleted has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.sinks.keyed.keys import Key, plain
from tidegauge.sinks.keyed.layout import Ordering
from tidegauge.sinks.keyed.merging import MergeTask
from tidegauge.sinks.keyed.parting import key_in_files
from tidegauge.sinks.keyed.planning import Merge, Sizes, TableLeaf, by_partition
from tidegauge.sinks.keyed.touching import some_within
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.splitting import split

__all__ = ["LeafRows"]

_PLACE: Final = "place="


@dataclass(frozen=True, slots=True)
class LeafRows:
    """Those in `folder`. columns: of the table. key: what tells its rows apart. partition columns are made of it."""

    folder: str
    columns: pa.Schema
    key: tuple[str, ...]
    lying: FileLayout
    leaves: Iterable[TableLeaf]
    sizes: Sizes

    def __call__(self, keys: pa.Table, names: Sequence[str]) -> Mapping[int, Mapping[str, Any]]:
        """Return by the places of keys the values of their rows, in some columns. Raises `LeafUnreadable`."""
        present = by_partition(self.leaves)
        [batch] = keys.append_column(_PLACE, pa.array(np.arange(keys.num_rows))).combine_chunks().to_batches()
        parted = pa.Table.from_batches([self.lying.parted(batch)])
        narrow, found = key_in_files(self.lying, self.key), dict[int, Mapping[str, Any]]()
        for of, some in split(parted, self.lying.names):
            places: dict[Key, list[int]] = {}
            for key, place in zip(plain(some, narrow), some.column(_PLACE).to_pylist(), strict=True):
                places.setdefault(key, []).append(place)
            wanted = sorted(places)
            near = [leaf for leaf in present.get(of, ()) if some_within(leaf, wanted)]
            merge = Merge(
                tuple(leaf.file.path for leaf in near),
                (),
                None,
                None,
                0,
                deletions=tuple(leaf.file.deletions for leaf in near),
            )
            task = MergeTask(
                self.folder, self.lying.stored(self.columns), Ordering(narrow), merge, self.sizes, "", 0, of
            )
            for rows in task.rows_of(wanted, names):
                for at, key in enumerate(plain(rows, narrow)):
                    for place in places.get(key, ()):
                        found[place] = {name: rows.column(name)[at].as_py() for name in names}
        return found
