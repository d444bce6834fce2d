"""What every stream reader does with a batch, whatever the version of Spark: plan its portions, and read one.

Invariant: a portion is read with the columns that the query was declared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tidegauge.looking.datasource.columns import arrow_columns
from tidegauge.looking.datasource.following import FollowedOutput
from tidegauge.looking.datasource.offsets import Offset
from tidegauge.looking.datasource.portions import TaskPortion

__all__ = ["planned", "read"]


def planned(followed: FollowedOutput, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
    """Return the portions of a batch between two offsets, for Spark. Raises what `FollowedOutput.portions` raises."""
    upper = Offset.decode(end)
    portions = [] if upper is None else followed.portions(Offset.decode(start), upper)
    return [InputPartition(portion) for portion in portions]


def read(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a portion as Spark wants them; none for the one that Spark makes where there is none."""
    if isinstance(partition.value, TaskPortion):
        yield from partition.value.batches(arrow_columns(schema))
