"""Reading tables back, all at one published epoch; and finding rows by their values, each with where it comes from.

Invariants. Every output read as of the same epoch shows the same instant of the timeline: the rows of the epochs up
to it, and nothing of later ones, whatever has been committed since. A read that cannot show that is an error, never
less. A condition is a column and a value of that column's type, compared for equality by Arrow; nothing that is asked
for is evaluated.

`as_of` is an epoch, or a time (the newest epoch published that was minted by then; a time without a zone is UTC), or
nothing for the newest published epoch.

>>> typed(pa.field("amount", pa.decimal128(10, 2)), "1.5").as_py()
Decimal('1.50')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute
import pyarrow.types as pt

from tidegauge.engine import LocalEngine
from tidegauge.env import Env
from tidegauge.errors.base import TidegaugeError, brief
from tidegauge.errors.command import (
    BeforeStart,
    IncomparableValue,
    NotPublished,
    OutputHasFailed,
    OutputIsBehind,
    RowsUnreadable,
    WithinPast,
)
from tidegauge.errors.flow import InvalidArgument, NeedsSpark, UnknownColumn
from tidegauge.errors.store import EpochBelowSince
from tidegauge.flow.belonging import check, check_unseen, table_of
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.job.functions import with_epoch
from tidegauge.looking.inspect import holds, opened
from tidegauge.looking.locate import Origin, looking
from tidegauge.objects.reading import parquet_rows
from tidegauge.operations import OP
from tidegauge.remap.fromtime.protocol import excerpt
from tidegauge.remap.store import Loaded, Store
from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.protocol import Resident

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "AsOf",
    "Trace",
    "TracedRow",
    "View",
    "instant",
    "read",
    "read_arrow",
    "reading",
    "trace",
    "typed",
    "view_of",
]

AsOf: TypeAlias = int | str | datetime | None
T = TypeVar("T")

_AS_WRITTEN: Final = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
}
"""Options for Spark's reader, whatever its session says: dates are taken literally, and no file may be missing."""

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


@dataclass(frozen=True, slots=True)
class View:
    """Files that hold every row of the epochs up to `epoch`, perhaps among later ones. `schema` is the table's.

    held: the rows themselves, where they are in memory; then there are no files.
    """

    epoch: int
    uris: list[str]
    schema: pa.Schema
    held: pa.Table | None = None

    def dataset(self) -> Any:
        """Return the rows as a dataset."""
        if self.held is not None:
            import pyarrow.dataset as ds  # here, for it loads pandas, which takes longer than all the rest

            return ds.dataset(self.held)
        return parquet_rows(self.uris, self.schema)


@contextmanager
def reading(output: str) -> Iterator[None]:
    """Read data files of an output. Raises `RowsUnreadable` for one that is missing or damaged."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise RowsUnreadable(output=output, detail=brief(error)) from error


def instant(as_of: str | datetime) -> datetime:
    """Return the point in time that a text names; one without a zone is UTC. Raises `InvalidArgument`."""
    try:
        time = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
    except ValueError:
        raise InvalidArgument(
            parameter="as_of", value=as_of, expected="an epoch or a time like 2026-11-20 17:00"
        ) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def _epoch(store: Store, flow: str, published: int, as_of: AsOf) -> int | None:
    """Return the epoch that `as_of` names, None for the newest one."""
    if as_of is None:
        if published == 0:
            raise NotPublished(as_of="the newest epoch", published=0)
        return None
    if isinstance(as_of, bool) or not isinstance(as_of, int | str | datetime):
        raise InvalidArgument(parameter="as_of", value=as_of, expected="an epoch or a time like 2026-11-20 17:00")
    epoch = as_of if isinstance(as_of, int) else store.epoch_at(flow, instant(as_of))
    if epoch is None or not 0 <= epoch < published:
        raise NotPublished(as_of=as_of, published=published)
    return epoch


def _check_held(loaded: Loaded, output: str, source: str, table_upper: int, epoch: int) -> None:
    if max(epoch, 0) < (since := loaded.flow.since):  # before its first epoch an output is empty
        raise EpochBelowSince(source=source, epoch=epoch, since=since)
    start = loaded.outputs[output].start
    if start is not None and max(epoch, 0) < start.epoch:
        raise BeforeStart(output=output, start=start.epoch, said=start.said, as_of=epoch)
    if start is not None and start.stamps is not None and max(epoch, 0) < start.stamp:
        raise WithinPast(output=output, stamp=start.stamp, said=start.stamps.said, as_of=epoch)
    held = holds(loaded, source, loaded.outputs[output].reached(table_upper))
    if epoch < held:
        return
    for failure in (loaded.sources[source].failure, loaded.outputs[output].outstanding(table_upper)):
        if failure is not None and epoch >= failure[0]:
            raise OutputHasFailed(output=output, epoch=failure[0], as_of=epoch, detail=failure[1].summary)
    raise OutputIsBehind(output=output, upper=held, as_of=epoch)


def _columns(flow: FlowSpec, output: str, loaded: Loaded) -> pa.Schema:
    """Return the columns of a published output that holds no row yet, and so has no table.

    They are `_epoch` alone where nobody knows the source's columns yet, or only Spark knows what the steps make of
    them.
    """
    plan = flow.outputs[output]
    found = flow.sources[plan.source].schema or loaded.sources[plan.source].schema
    with suppress(NeedsSpark):
        if found is not None:  # operations are applied to a table, and are no column of it
            schema = LocalEngine(threads=0).schema(plan, found)
            return pa.schema([field for field in schema if field.name != OP])
    return with_epoch(pa.schema([]))


def view_of(flow: FlowSpec, output: str, as_of: AsOf, *, env: Env | None = None) -> View:
    """Return the files of an output as of an epoch or a time. Raises what `read_arrow` raises."""
    source = flow.output(output).source
    with opened(flow, env or Env()) as store:
        loaded = store.load(flow.name)
        named = _epoch(store, flow.name, loaded.flow.published, as_of)
        if output not in loaded.outputs or source not in loaded.sources:  # planned: it has not run yet
            raise NotPublished(as_of=f"a row of {output}", published=loaded.flow.published)
        table = table_of(flow, output, loaded)
        check(store, flow, output, table)
        check_unseen(store, flow, output, table, loaded)
    known = loaded.outputs[output]
    held = holds(loaded, source, known.reached(table.upper))
    filled = output in loaded.backfills or known.start is not None
    if named is None and filled and not table.upper and held < loaded.flow.published:
        raise OutputIsBehind(output=output, upper=held, as_of=loaded.flow.published - 1)  # not: there are no rows
    epoch = min(loaded.flow.published, held) - 1 if named is None else named
    past = loaded.outputs.get(flow.outputs[output].past or "")
    if past is not None and past.held and not table.upper and epoch < loaded.sources[source].began_at:
        raise OutputIsBehind(output=output, upper=0, as_of=epoch)  # it gets what that holds of an old upstream
    _check_held(loaded, output, source, table.upper, epoch)
    while True:
        schema = table.schema or _columns(flow, output, loaded)
        with reading(output):  # a file that another program has rewritten is asked for its epochs
            files = [file for file in table.files(as_of=epoch) if file.first_epoch <= epoch]
        if isinstance(table, Resident):
            return View(epoch, [], schema, table.rows(files))
        uris = table.uris(files)
        if table.schema in (None, schema):  # else all of its rows were replaced between the two looks
            return View(epoch, uris, schema)


def read_arrow(flow: Flow, output: str, *, as_of: AsOf = None) -> pa.Table:
    """Return an output as an Arrow table, as of an epoch or a time. Needs no Spark.

    Raises `NotPublished`, `BeforeStart`, `WithinPast`, `EpochBelowSince`, `OutputHasFailed`, `OutputIsBehind`,
    `UnknownName`, `FlowNeverRan`, `StoreBehindTable` and `HistoriesDiffer`, and `RowsUnreadable` when a data file is
    missing or damaged.
    """

    def rows(view: View) -> pa.Table:
        if not view.uris and not view.held:
            return view.schema.empty_table()
        return view.dataset().to_table(filter=pc.field("_epoch") <= view.epoch)

    return _seen(flow.spec, output, as_of, rows)


def _seen(flow: FlowSpec, output: str, as_of: AsOf, rows: Callable[[View], T]) -> T:
    """Return the rows that a view of an output gives, or a later view where its files were taken away meanwhile."""
    view = view_of(flow, output, as_of)
    while True:
        try:
            with reading(output):
                return rows(view)
        except RowsUnreadable:
            later = view_of(flow, output, as_of)
            if set(view.uris) <= set(later.uris):
                raise
            view = later


def read(spark: Any, flow: Flow, output: str, *, as_of: AsOf = None) -> DataFrame:
    """Return an output as a DataFrame of the given session, as of an epoch or a time. Needs no table format's JARs.

    The frame reads the files that are committed now; later commits do not appear in it. If one replaces all rows of
    a Parquet table, Spark finds these files no longer: ask for a new frame. Raises the same errors as `read_arrow`.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    view = view_of(flow.spec, output, as_of)
    schema = from_arrow_schema(view.schema, prefer_timestamp_ntz=True)
    if view.held:
        rows = view.held.filter(pc.field("_epoch") <= view.epoch)
        return spark.createDataFrame(rows, schema)  # type: ignore[no-any-return]
    if not view.uris:
        return spark.createDataFrame([], schema)  # type: ignore[no-any-return]
    frame = spark.read.options(**_AS_WRITTEN).schema(schema).parquet(*view.uris)
    return frame.where(frame["_epoch"] <= view.epoch)  # type: ignore[no-any-return]


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
        return view.epoch, view.dataset().head(limit + 1, filter=condition).to_pylist()

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
