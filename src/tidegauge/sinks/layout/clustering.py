"""The rows of several files in one order, in memory that does not grow with them.

    keys     the sorted columns alone are read of all files, and sorted: that says where each row belongs
    pieces   the rows of one piece of that order after the other are read, from the row groups that have some of them

Files that are sorted already are read about once. One in no order is read once for each piece; it is sorted from then
on.

Law: what comes out is `arranged` of all rows of the files, one after the other.

>>> groups = [pa.table({"n": [3, 9]}), pa.table({"n": [1]}), pa.table({"n": [2]})]
>>> found = clustered([len(group) for group in groups], lambda at, names: groups[at].select(names), ["n"], ["n"], 2)
>>> [piece["n"].to_pylist() for piece in found]
[[1, 2], [3, 9]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.lazy import library

__all__ = ["clustered"]

pc: Final[Any] = library("pyarrow.compute")


def clustered(
    counts: Sequence[int],
    read: Callable[[int, Sequence[str]], pa.Table],
    names: Sequence[str],
    sort: Sequence[str],
    at_once: int,
) -> Iterator[pa.Table]:
    """Yield the rows of row groups in the order of the columns `sort`, this many in a piece.

    counts: how many rows each row group has. read: returns columns of one of them, all in the same types.
    """
    if not sum(counts):
        return
    keys = pa.concat_tables([read(at, sort) for at in range(len(counts))])
    order = np.asarray(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in sort])).astype(np.int64)
    del keys
    ends = np.cumsum(np.asarray(counts, np.int64))
    for start in range(0, len(order), max(1, at_once)):
        wanted = order[start : start + max(1, at_once)]
        places = np.sort(wanted)
        groups = np.searchsorted(ends, places, side="right")
        found = [
            read(int(at), names).take(pa.array(places[groups == at] - (ends[at] - counts[at])))
            for at in np.unique(groups)
        ]
        yield pa.concat_tables(found).take(pa.array(np.searchsorted(places, wanted)))
