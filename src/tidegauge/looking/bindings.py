"""The timeline as a table: every binding of a flow, for those who would rather query than ask.

Invariant: a row stands for the records `[lower, position)` of one partition of one source, all of which belong to its
`epoch` and to no other. The rows of a source are the remap tables of its incarnations, no more and no less. The end
of a source is no row, for it moves no partition.

Only the requested rows are read, so one epoch of a million is as quick as one of ten.

>>> BINDINGS.names
['source', 'incarnation', 'epoch', 'partition', 'position', 'lower', 'minted_at', 'published_at']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.flow import InvalidArgument
from tidegauge.flow.spec import Flow
from tidegauge.looking.inspect import opened
from tidegauge.remap.store.history import BINDINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BINDINGS", "bindings"]


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
