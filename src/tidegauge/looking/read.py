"""Reading tables back, all at one published epoch; and finding rows by their values, each with where it comes from.

Invariants. Every output read as of the same epoch shows the same instant of the timeline: the rows of the epochs up
to it, and nothing of later ones, whatever has been committed since. A read that cannot show that is an error, never
less. A condition is a column and a value of that column's type, compared for equality by Arrow; nothing that is asked
for is evaluated.

`as_of` is what `asof` says: an epoch, a time, positions of sources, or nothing for the newest published epoch.

>>> typed(pa.field("amount", pa.decimal128(10, 2)), "1.5").as_py()
Decimal('1.50')
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute
import pyarrow.types as pt

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import (
    IncomparableValue,
    RowsUnreadable,
)
from tidegauge.errors.flow import UnknownColumn
from tidegauge.errors.sinks import DeletedRows
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.looking.asof import AsOf
from tidegauge.looking.locate import Origin, looking
from tidegauge.looking.view import View, reading, view_of
from tidegauge.remap.fromtime.protocol import excerpt
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.layout.values import PartitionValues, constants, unfolded
from tidegauge.sinks.vectors import live_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Trace",
    "TracedRow",
    "frame_of",
    "read",
    "read_arrow",
    "trace",
    "typed",
]

T = TypeVar("T")

_AS_WRITTEN: Final = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
}
"""Options for Spark's reader, whatever its session says: dates are taken literally, and no file may be missing."""

_BEYOND_ASCII: Final = re.compile("%[89A-Fa-f]")

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


def read_arrow(flow: Flow, output: str, *, as_of: AsOf = None) -> pa.Table:
    """Return an output as an Arrow table, as of an epoch, a time, or positions of sources. Needs no Spark.

    Raises `NotPublished`, `BeforeStart`, `WithinPast`, `EpochBelowSince`, `OutputHasFailed`, `OutputIsBehind`,
    `UnknownName`, `FlowNeverRan`, `StoreBehindTable` and `HistoriesDiffer`; `NotYetBound` and `UnknownPartition` for
    positions that no epoch has; and `RowsUnreadable` when a data file is
    missing or damaged.
    """

    def rows(view: View) -> pa.Table:
        return view.rows(pc.field("_epoch") <= view.epoch).to_table()

    return _seen(flow.spec, output, as_of, rows)


def _seen(flow: FlowSpec, output: str, as_of: AsOf, rows: Callable[[View], T]) -> T:
    """Return the rows that a view of an output gives, or a later view where its files were taken away meanwhile."""
    view = view_of(flow, output, as_of)
    while True:
        try:
            with reading(output):
                return rows(view)
        except (RowsUnreadable, DeletedRows):
            later = view_of(flow, output, as_of)
            if set(view.uris) <= set(later.uris):
                raise
            view = later


def read(spark: Any, flow: Flow, output: str, *, as_of: AsOf = None) -> DataFrame:
    """Return an output as a DataFrame of the given session, as of an epoch, a time, or positions of sources.

    It needs no table format's JARs.

    The frame reads the files that are committed now; later commits do not appear in it. If one replaces all rows of
    a Parquet table, Spark finds these files no longer: ask for a new frame. Raises the same errors as `read_arrow`.
    """
    return frame_of(spark, view_of(flow.spec, output, as_of))


def frame_of(spark: Any, view: View) -> DataFrame:
    """Return the rows of a view as a DataFrame of the given session."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(view.schema, prefer_timestamp_ntz=True)
    if view.held:
        rows = view.held.filter(pc.field("_epoch") <= view.epoch)
        return spark.createDataFrame(rows, schema)  # type: ignore[no-any-return]
    if not view.uris:
        return spark.createDataFrame([], schema)  # type: ignore[no-any-return]
    frame = _frame(spark, view, schema)
    return frame.where(frame["_epoch"] <= view.epoch)  # type: ignore[no-any-return]


def _frame(spark: Any, view: View, schema: Any) -> Any:
    """Return the rows of a view's files.

    Spark takes the values of partition columns from the names of folders, and skips folders by them. Where files lie
    elsewhere, as other writers may put them, those of each partition are read by themselves.
    """
    from pyspark.sql.functions import decode, encode, lit

    if view.deletions:
        return _marked(spark, view, schema)
    if not view.partitions:
        return spark.read.options(**_AS_WRITTEN).schema(schema).parquet(*view.uris)
    groups: dict[_Folders | PartitionValues, list[str]] = {}
    for uri, values in zip(view.uris, view.partitions, strict=True):
        groups.setdefault(_folders(uri, values) or values, []).append(uri)
    frames = []
    for where, uris in groups.items():
        base = {"basePath": where.base} if isinstance(where, _Folders) else {}
        reader = spark.read.options(**_AS_WRITTEN, **base)
        if isinstance(where, _Folders):
            frame = reader.schema(schema).parquet(*uris)
            names = [name for name, _ in view.partitions[0] if schema[name].dataType.typeName() == "string"]
            for name in names if where.escaped else ():  # Spark takes each escaped byte for a character
                frame = frame.withColumn(name, decode(encode(frame[name], "ISO-8859-1"), "UTF-8"))
        else:
            frame = reader.schema(_without(schema, where)).parquet(*uris)
            for name, text in where:
                frame = frame.withColumn(name, lit(text).cast(schema[name].dataType))
        frames.append(frame.select(*schema.names))
    return reduce(lambda one, other: one.union(other), frames)


def _marked(spark: Any, view: View, schema: Any) -> Any:
    """Return the rows that are left of a view's files: each task reads some of these as we do, for Spark cannot."""
    files = view.pieces()
    read = partial(_left, files=files, columns=view.schema)
    return spark.range(0, len(files), 1, len(files)).mapInArrow(read, schema)


def _left(
    numbers: Iterator[pa.RecordBatch], *, files: Sequence[tuple[str, PartitionValues, str]], columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are left of the files with these numbers."""
    for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
        uri, values, deletions = files[number]
        yield from live_rows(uri, columns, constants(values, columns), deletions)


@dataclass(frozen=True, slots=True)
class _Folders:
    """Folders of partitions, below `base`. escaped: whether texts in their names have escaped bytes beyond ASCII."""

    base: str
    escaped: bool


def _folders(uri: str, values: PartitionValues) -> _Folders | None:
    """Return the folders that a file is in, None where Spark would not read its values from their names."""
    parts = uri.split("/")
    at = len(parts) - 1 - len(values)
    if at < 1 or tuple(map(unfolded, parts[at:-1])) != values:
        return None
    names = "/".join(parts[at:-1])
    escaped = _BEYOND_ASCII.search(names) is not None
    return _Folders("/".join(parts[:at]), escaped) if names.isascii() or not escaped else None


def _without(schema: Any, values: PartitionValues) -> Any:
    names = {name for name, _ in values}
    return type(schema)([field for field in schema if field.name not in names])


@dataclass(frozen=True, slots=True)
class TracedRow:
    """A row by its columns, with its origin; or with the error that says why it has none in this flow."""

    row: Mapping[str, Any]
    origin: Origin | None
    error: TidegaugeError | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows of an output that have the values asked for; `more` when there are others besides.

    epoch: the newest one that was looked at.
    """

    output: str
    epoch: int
    rows: tuple[TracedRow, ...]
    more: bool


def trace(flow: Flow, output: str, values: Mapping[str, str], *, limit: int) -> Trace:
    """Return at most `limit` rows that have these values, given as text, in these columns.

    A row that the flow does not know is returned with the error that says so.

    Raises `UnknownColumn`, `IncomparableValue`, `RowsUnreadable`, and what `read_arrow` raises.
    """
    spec = flow.spec

    def matching(view: View) -> tuple[int, list[dict[str, Any]]]:
        for column in values:
            if column not in view.schema.names:
                raise UnknownColumn(column=excerpt(column), where=f"the trace of {output}", known=view.schema.names)
        equal = [pc.field(column) == typed(view.schema.field(column), text) for column, text in values.items()]
        condition = reduce(and_, equal, pc.field(EPOCH) <= view.epoch)
        return view.epoch, view.rows(condition).head(limit + 1).to_pylist()

    epoch, rows = _seen(spec, output, None, matching)
    found: list[TracedRow] = []
    with looking(spec) as look:
        for row in rows[:limit]:
            try:
                found.append(TracedRow(row, look.origin(output, row)))
            except TidegaugeError as refused:
                found.append(TracedRow(row, None, refused))
    return Trace(output, epoch, tuple(found), len(rows) > limit)


def typed(column: pa.Field, text: str) -> pa.Scalar[Any]:
    """Return the value that a text is in a column's type; an instant without a zone is UTC, bytes are UTF-8.

    Raises `IncomparableValue`.
    """
    try:
        value = _parsed(column.type, text)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise _incomparable(column, text, " ".join(str(error).split())) from error
    if value is None:
        raise _incomparable(column, text, "values of this type are not compared")
    if pt.is_floating(column.type) and not math.isfinite(value.as_py()):
        raise _incomparable(column, text, "it is no finite number")
    return value


def _parsed(kind: Any, text: str) -> Any:
    """Return a text as a value of a type, None for types whose values have parts. The text may be any."""
    if pt.is_timestamp(kind):
        time = datetime.fromisoformat(text)
        if kind.tz is None and time.tzinfo is not None:
            raise ValueError("the column's times have no zone")
        return pa.scalar(time, kind)  # one without a zone is UTC to Arrow
    if pt.is_nested(kind):
        return None
    return pa.scalar(text, pa.string()).cast(kind)


def _incomparable(column: pa.Field, text: str, detail: str) -> IncomparableValue:
    said = {"column": column.name, "type": str(column.type), "value": excerpt(text), "detail": excerpt(detail)}
    return IncomparableValue(**said)
