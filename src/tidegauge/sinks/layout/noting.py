"""The partitions that a task has seen rows of: that each can be one, and that there are not too many in an epoch.

Every partition costs a file, an entry in the table's log, and each reader a look. A column with a value for each row
is a mistake, and an error before a file of it is committed.

>>> noted = NotedPartitions(FileLayout.of("DeltaSink", "id", None, None), "lake/orders", most=2)
>>> rows = pa.record_batch({"id": [7, 8, 9], "_epoch": [0, 0, 1]})
>>> noted.note(rows, epochs=rows.column("_epoch"))
>>> noted.note(rows, epochs=pa.array([1, 1, 1]))
Traceback (most recent call last):
    ...
tidegauge.errors.layout.TooManyPartitions: TG-0433: ...
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.layout import PartitionValueUnfit, TooManyPartitions
from tidegauge.sinks.layout.layout import FileLayout
from tidegauge.sinks.layout.values import problem_of, texts_of

__all__ = ["MOST", "NotedPartitions"]

MOST: Final = 4096
"""How many partitions a task writes in an epoch at most: the days of eleven years, the hours of half a year."""

_AT: Final = "at="
"""No column of rows has such a name."""


class NotedPartitions:
    """What a task has seen of the partitions of a table. most: how many an epoch may have; None for any number."""

    def __init__(self, layout: FileLayout, table: str, *, most: int | None = MOST) -> None:
        self._layout: Final = layout
        self._table: Final = table
        self._most: Final = most
        self._seen: Final[dict[int, set[tuple[str | None, ...]]]] = {}

    def note(self, rows: pa.RecordBatch, *, epochs: Any) -> None:
        """Take note of rows with their partition columns, and of the epochs that they are of.

        Raises `PartitionValueUnfit`, `TooManyPartitions`.
        """
        names = self._layout.names
        if not names or not rows.num_rows:
            return
        kinds = {name: rows.schema.field(name).type for name in names}
        some = pa.Table.from_batches([rows.select(list(names))]).append_column(_AT, epochs)
        found = some.group_by([_AT, *names]).aggregate([])
        told = found.column(_AT).to_pylist()
        texts = [texts_of(found.column(name).combine_chunks()) for name in names]
        least = min(told)
        for epoch in [epoch for epoch in self._seen if epoch < least]:
            del self._seen[epoch]  # rows come in the order of their epochs
        for epoch, *values in zip(told, *texts, strict=True):
            seen = self._seen.setdefault(epoch, set())
            if (key := tuple(values)) in seen:
                continue
            seen.add(key)
            for name, text in zip(names, key, strict=True):
                if self._layout.hidden and not pt.is_date(kinds[name]):
                    continue  # no folder is named by it
                if problem := problem_of(name, text, kinds[name]):
                    shown = None if text is None else text[:200]
                    said = {"epoch": epoch, "table": self._table, "value": shown, "column": name}
                    raise PartitionValueUnfit(**said, problem=problem)
            if self._most is not None and len(seen) > self._most:
                said = {"table": self._table, "epoch": epoch, "found": len(seen), "most": self._most}
                raise TooManyPartitions(**said, partition=self._layout.said)
