"""Moving batches and frontiers from a source's clock to the flow's.

A batch that was read for a slice belongs to one epoch as a whole, so stamping it is adding one constant column, and
no row is looked at. A frontier is moved forward by asking which epochs may still receive records.

>>> stamp(pa.record_batch({"id": [1, 2]}), 7).to_pydict()
{'id': [1, 2], '_epoch': [7, 7]}
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tidegauge.errors.flow import ReservedColumn
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.table import RemapTable

__all__ = ["EPOCH", "frontier_to_epoch", "stamp"]

EPOCH: Final = pa.field("_epoch", pa.int64())
"""The column that every row of every output has."""


def stamp(batch: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
    """Return the batch with the column `_epoch` appended. The other columns are shared, not copied.

    Raises `ReservedColumn` when the batch has a column of that name.
    """
    if EPOCH.name in batch.schema.names:
        raise ReservedColumn(where="the batch", column=EPOCH.name)
    return batch.append_column(EPOCH, pa.repeat(pa.scalar(epoch, EPOCH.type), batch.num_rows))


def frontier_to_epoch(table: RemapTable, frontier: Frontier) -> int:
    """Return the first epoch that may still receive records when its source has been read up to `frontier`.

    Definition: `min {e : not R(e) <= frontier}`, and `table.upper` when every bound epoch is complete. The epochs
    below it are complete, whatever the partitions beyond their bindings hold.
    """
    behind = table.frontier.since(frontier)
    waiting = [table.epoch_of(partition, lower) for partition, (lower, _) in behind.items()]
    if table.sealed_at is not None:
        waiting.append(table.sealed_at)
    return table.upper if frontier.sealed else min(waiting, default=table.upper)
