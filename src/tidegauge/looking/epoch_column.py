"""The epoch of data that is in a lake already: a column that anybody can add who knows where each row came from.

Invariant: `_epoch` is a function of the durable bindings and of the row's partition and position alone. So rows that
another job landed from the same upstream meet, epoch by epoch, those that the flow's outputs hold.

The bindings are read once, when the frame is made, and go to the tasks with the function: 20 bytes a binding. Works
on classic sessions and through Spark Connect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegauge.engine.arrowtypes import arrow_schema
from tidegauge.env import Env
from tidegauge.errors.flow import ReservedColumn, UnknownColumn, UnknownName
from tidegauge.flow.spec import Flow
from tidegauge.looking.inspect import opened
from tidegauge.reclock.columns import EPOCH, epochs_of
from tidegauge.remap.table import RemapTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["reclock_column"]


@dataclass(frozen=True, slots=True)
class _EpochColumn:
    """What a task does: each batch with its epochs as one more column. The others are not copied."""

    table: RemapTable
    partition: str
    position: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            epochs = epochs_of(self.table, batch.column(self.partition), batch.column(self.position))
            yield batch.append_column(EPOCH, epochs)


def reclock_column(
    df: DataFrame, flow: Flow, source: str, *, partition: str = "_partition", position: str = "_offset"
) -> DataFrame:
    """Return the frame with a column `_epoch`: the epoch of each row, by the bindings of a source.

    `_epoch` is null if the partition is not known, or if the position is not bound yet. Later bindings do not appear
    in this frame.

    Args:
        df: rows of the same upstream that another job landed.
        flow: the flow whose bindings to use.
        source: the name of the source.
        partition: the column with the partition, as `metadata=True` writes it: text, or an integer for its decimal
            text.
        position: the column with the position: an integer.

    Raises `UnknownColumn`, `ReservedColumn` when the frame has an `_epoch`, `InvalidArgument` for columns of other
    types, `FlowNeverRan`, and `UnknownName` for a source that the flow never had.
    """
    spec = flow.spec
    from pyspark.sql.types import LongType, StructField, StructType

    schema = df.schema
    for column in (partition, position):
        if column not in schema.names:
            raise UnknownColumn(column=column, where="reclock_column", known=schema.names)
    if any(name.lower() == EPOCH.name for name in schema.names):
        raise ReservedColumn(where="the frame", column=EPOCH.name)
    with opened(spec, Env()) as store:
        sources = store.load(spec.name).sources
    if source not in sources:
        raise UnknownName(kind="source", name=source, known=sorted(sources))
    table = sources[source].table
    places = arrow_schema(StructType([schema[column] for column in (partition, position)]), where="the frame")
    empty: list[Any] = [pa.array([], field.type) for field in places]
    epochs_of(table, *empty)  # refuses what the tasks would refuse
    fields = [*schema.fields, StructField(EPOCH.name, LongType())]
    return df.mapInArrow(_EpochColumn(table, partition, position), StructType(fields))
