"""The stream reader of Spark 4.2 and newer, which tells where a query is and how much it may read.

Spark takes no limits but its own kinds, and has none of epochs: `ReadMaxRows` stands for it, and means epochs.

Invariant: a batch keeps to the limit that Spark gives with the question: all that is there, at most that many epochs,
or nothing newer than the epochs that were there when a query with `availableNow` began.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidegauge.looking.datasource.following import FollowedOutput
from tidegauge.looking.datasource.offsets import Offset
from tidegauge.looking.datasource.options import Options
from tidegauge.looking.datasource.planning import planned, read

__all__ = ["LimitedReader"]


class LimitedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows an output. Each method is Spark's, called in a process of its own for each query; `read` in tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._followed = FollowedOutput(options, schema)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new query begins."""
        return self._followed.initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a batch has at most."""
        most = self._options.epochs
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take the present epochs for all that there are."""
        self._followed.stop_at_present()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._followed.latest(Offset.decode(start), most=most).encode()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return how far the output can be had, for the query's progress."""
        return self._followed.newest().encode()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the portions of a batch."""
        return planned(self._followed, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a portion."""
        return read(partition, self._schema)
