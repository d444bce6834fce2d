"""Replica identities of partitions, as the log tells them: of whose old rows it has less than the root's promises.

The server logs old rows by the identity of the partition, and sends them as those of the root, marked by the identity
of the root. Where that of the partition has fewer columns, the others come as nulls, which nobody had written.

Before the first change of a partition the server describes the root, and directly after it the partition.

Invariant: a table whose last description of each partition has all columns of its own identity is fit.

>>> root, part = TableShape(7, "public", "orders", ("id", "n"), ("id", "n")), ("public", "orders_1", ("id", "n"))
>>> seen = PartitionIdentities()
>>> seen.describe(root, followed=True)
>>> seen.describe(TableShape(8, *part, ("id",)), followed=False)
>>> seen.changes(7)
"the replica identity of its partition public.orders_1 has no column 'n'"
>>> seen.describe(root, followed=True)
>>> seen.describe(TableShape(8, *part, ("id", "n")), followed=False)
>>> seen.changes(7)
''
"""

from __future__ import annotations

from tidegauge.sources.postgres.wire import TableShape

__all__ = ["PartitionIdentities"]


class PartitionIdentities:
    """Those that were described."""

    def __init__(self) -> None:
        self._root: TableShape | None = None
        """The table described last, if it is one that is followed."""
        self._unfit: dict[int, dict[int, str]] = {}

    def describe(self, shape: TableShape, *, followed: bool) -> None:
        """Take in a description, in the order of the log."""
        root, self._root = self._root, shape if followed else None
        if root is None or followed:
            return
        unfit = self._unfit.setdefault(root.oid, {})
        unfit.pop(shape.oid, None)
        if lacking := [name for name in root.keys if name not in shape.keys]:
            name = f"{shape.schema}.{shape.table}"
            unfit[shape.oid] = f"the replica identity of its partition {name} has no column {lacking[0]!r}"

    def changes(self, oid: int) -> str:
        """Take in that a table changes; return why old rows of it cannot be told, "" if they can."""
        self._root = None
        return next(iter(self._unfit[oid].values()), "") if oid in self._unfit else ""
