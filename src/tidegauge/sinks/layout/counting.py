"""How many partitions a table comes to have: many that are tiny are a mistake, which no epoch alone shows.

A task sees the partitions of its rows in an epoch (`layout.noting`). A column with a new value for each row gives
every epoch a few, and the table a million of them in the end. As many partitions of many rows each are no mistake.

Invariant: a commit after which a table would have more than `MOST` partitions, of fewer than `LEAST` rows each on
average, is refused, and no other one. A table has no more partitions than files: they are only listed where its files
are that many and that small.

>>> count = TablePartitions(FileLayout.of("DeltaSink", "id", None, None), "lake/orders", "shop:orders")
>>> new = [StagedFile(f"part-{n}", 1, 500, 7, 7, partition=(("id", str(n)),)) for n in range(MOST + 1)]
>>> count.check(new, Volume.of(new), lambda: [])
Traceback (most recent call last):
    ...
tidegauge.errors.layout.PartitionsTooSmall: TG-0469: ...
>>> count.check(new, Volume(len(new), rows=2_000_000, bytes=1), lambda: [])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tidegauge.errors.layout import PartitionsTooSmall
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.values import PartitionValues
from tidegauge.sinks.protocol import StagedFile, Volume

__all__ = ["LEAST", "MOST", "TablePartitions"]

MOST: Final = 10_000
LEAST: Final = 100
"""Rows of a partition, on average: below that a reader spends more on finding a file than on reading it."""


class TablePartitions:
    """The partitions of a table, as far as it had to be asked for them."""

    def __init__(self, layout: FileLayout, table: str, output: str) -> None:
        self._layout: Final = layout
        self._table: Final = table
        self._output: Final = output
        self._seen: set[PartitionValues] | None = None
        """Those that the table had when it was asked, and has got since. Some may be gone by now."""

    def many(self, files: int) -> bool:
        """Whether a table with that many files may have too many partitions."""
        return bool(self._layout.partition) and files > MOST

    def check(
        self, files: Sequence[StagedFile], after: Volume | None, present: Callable[[], Iterable[PartitionValues]]
    ) -> None:
        """Raise `PartitionsTooSmall` for files that are about to be committed.

        after: what the table holds then, None where that is not known. present: the partitions that it has now.
        """
        if not files or after is None or not self.many(after.files) or after.rows >= LEAST * after.files:
            return
        new = {file.partition for file in files}
        if self._seen is None or _too_small(len(self._seen | new), after.rows):
            self._seen = set(present())
        self._seen |= new
        if _too_small(found := len(self._seen), after.rows):
            said = {"table": self._table, "output": self._output, "found": found, "rows": after.rows}
            raise PartitionsTooSmall(**said, most=MOST, least=LEAST, partition=self._layout.said)


def _too_small(partitions: int, rows: int) -> bool:
    return partitions > MOST and rows < LEAST * partitions
