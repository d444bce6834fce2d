"""The stream reader of Spark 4.0 and 4.1, which tell nothing of where a query is: a batch has all that is there.

So does a query with `availableNow`: it has one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidegauge.looking.datasource.following import FollowedOutput
from tidegauge.looking.datasource.options import Options
from tidegauge.looking.datasource.planning import planned, read

__all__ = ["UnlimitedReader"]


class UnlimitedReader(DataSourceStreamReader):
    """Follows an output. Each method is Spark's, called in a process of its own for each query; `read` in tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._schema = schema
        self._followed = FollowedOutput(options, schema)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new query begins."""
        return self._followed.initial

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Return where the next batch ends."""
        return self._followed.latest(None, most=None).encode()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the portions of a batch."""
        return planned(self._followed, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a portion."""
        return read(partition, self._schema)
