"""How many rows of an epoch a table holds.

Invariant: rows are counted by the epochs that they carry, wherever others have moved them within the table.
"""

from __future__ import annotations

from typing import Final

from tidegauge.lazy import library
from tidegauge.sinks.protocol import Table

__all__ = ["rows_of"]

pc: Final = library("pyarrow.compute")
pq: Final = library("pyarrow.parquet")


def rows_of(table: Table, epoch: int, *, since: int = 0) -> int:
    """Return how many rows of an epoch a table holds; those of all epochs up to `since` count as of that one.

    Reads the column `_epoch` of the files that hold some of them and some of others.
    """
    count, first = 0, 0 if epoch == since else epoch
    for file in table.files():
        if first <= file.first_epoch and file.last_epoch <= epoch:
            count += file.rows
        elif file.first_epoch <= epoch and first <= file.last_epoch:
            column = pq.read_table(table.uris([file])[0], columns=["_epoch"], partitioning=None).column("_epoch")
            there = pc.and_(pc.greater_equal(column, first), pc.less_equal(column, epoch))
            count += pc.sum(there).as_py() or 0
    return count
