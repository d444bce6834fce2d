"""The timeline as data: every binding of a flow as a table, and the epoch of each row of a frame of your own.

Invariants. A row of the table stands for the records `[lower, position)` of one partition of one source; they all
belong to its `epoch` and to no other. The rows of a source are the remap tables of its incarnations, no more and no
less. The end of a source is no row, for it moves no partition. The epoch of a frame's row is a function of the
durable bindings and of the row's partition and position alone: so rows that another job landed from the same upstream
meet, epoch by epoch, those that the flow's outputs hold.

Only the requested rows are read, so one epoch of a million is as quick as one of ten. For a frame the bindings are
read once, when it is made, and go to the tasks with the function: 20 bytes a binding. Works on classic sessions and
through Spark Connect.

>>> BINDINGS.names
['source', 'incarnation', 'epoch', 'partition', 'position', 'lower', 'minted_at', 'published_at']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from tidegauge.engine.arrowtypes import arrow_schema
from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument, ReservedColumn, UnknownColumn, UnknownName
from tidegauge.flow.spec import Flow
from tidegauge.looking.inspect import opened
from tidegauge.reclock.columns import EPOCH, epochs_of
from tidegauge.remap.store.history import BINDINGS
from tidegauge.remap.table import RemapTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BINDINGS", "bindings", "reclock_column"]


@overload
def bindings(
    flow: Flow, *, source: str | None = None, first: int | None = None, last: int | None = None
) -> pa.Table: ...
@overload
def bindings(
    flow: Flow, *, spark: Any, source: str | None = None, first: int | None = None, last: int | None = None
) -> DataFrame: ...
def bindings(
    flow: Flow,
    *,
    spark: Any = None,
    source: str | None = None,
    first: int | None = None,
    last: int | None = None,
) -> pa.Table | DataFrame:
    """Return the bindings of a flow as an Arrow table, or as a DataFrame of the given session.

    Rows are sorted by epoch, source and partition. On compacted history, anything bound before `since` counts as
    bound at `since`.

    Args:
        flow: the flow.
        spark: a session, for a DataFrame; None for an Arrow table.
        source: return only the rows of this source.
        first: the first epoch to return.
        last: the last epoch to return.

    Raises `FlowNeverRan`, `UnknownName` for a source that the flow never had, `InvalidArgument`.
    """
    spec = flow.spec
    if source is not None and not isinstance(source, str):
        raise InvalidArgument(parameter="source", value=source, expected="the name of a source")
    for parameter, epoch in (("first", first), ("last", last)):
        if epoch is not None and (not isinstance(epoch, int) or isinstance(epoch, bool)):
            raise InvalidArgument(parameter=parameter, value=epoch, expected="an epoch")
    with opened(spec, Env()) as store:
        found = store.bindings(spec.name, source=source, first=first, last=last)
    return found if spark is None else _frame(spark, found)


def _frame(spark: Any, found: pa.Table) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    if found.num_rows == 0:
        return spark.createDataFrame([], from_arrow_schema(found.schema))  # type: ignore[no-any-return]
    return spark.createDataFrame(found)  # type: ignore[no-any-return]


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
