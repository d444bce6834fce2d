"""Reading tables back, all at one published epoch.

Invariant: every output read as of the same epoch shows the same instant of the timeline: the rows of the epochs up to
it, and nothing of later ones, whatever has been committed since. A read that cannot show that is an error, never
less.

`as_of` is an epoch, or a time (the newest epoch published that was minted by then; a time without a zone is UTC), or
nothing for the newest published epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidegauge.engine import LocalEngine
from tidegauge.env import Env
from tidegauge.errors.base import brief
from tidegauge.errors.command import NotPublished, OutputHasFailed, OutputIsBehind, RowsUnreadable
from tidegauge.errors.flow import InvalidArgument, NeedsSpark
from tidegauge.errors.store import EpochBelowSince
from tidegauge.flow.belonging import check
from tidegauge.flow.seen import table_of
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.job.functions import with_epoch
from tidegauge.looking.inspect import holds, opened
from tidegauge.remap.store import Loaded, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["AsOf", "View", "instant", "read", "read_arrow", "reading", "view_of"]

AsOf: TypeAlias = int | str | datetime | None

_AS_WRITTEN: Final = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
}
"""Options for Spark's reader, whatever its session says: dates are taken literally, and no file may be missing."""


@dataclass(frozen=True, slots=True)
class View:
    """Files that hold every row of the epochs up to `epoch`, perhaps among later ones. `schema` is the table's."""

    epoch: int
    uris: list[str]
    schema: pa.Schema

    def dataset(self) -> Any:
        """Return the files as a dataset."""
        import pyarrow.dataset as ds  # here, for it loads pandas, which takes longer than all the rest

        return ds.dataset(self.uris, format="parquet", schema=self.schema, partitioning=None)


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
    held = holds(loaded, source, table_upper)
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
        return with_epoch(pa.schema([])) if found is None else LocalEngine(threads=0).schema(plan, found)
    return with_epoch(pa.schema([]))


def view_of(flow: FlowSpec, output: str, as_of: AsOf) -> View:
    """Return the files of an output as of an epoch or a time. Raises what `read_arrow` raises."""
    source = flow.output(output).source
    with opened(flow, Env()) as store:
        loaded = store.load(flow.name)
        named = _epoch(store, flow.name, loaded.flow.published, as_of)
        if output not in loaded.outputs or source not in loaded.sources:  # planned: it has not run yet
            raise NotPublished(as_of=f"a row of {output}", published=loaded.flow.published)
        table = table_of(flow, output, loaded)
        check(store, flow, output, table)
    held = holds(loaded, source, table.upper)
    epoch = min(loaded.flow.published, held) - 1 if named is None else named
    _check_held(loaded, output, source, table.upper, epoch)
    schema = table.schema or _columns(flow, output, loaded)
    with reading(output):  # a file that another program has rewritten is asked for its epochs
        files = [file for file in table.files() if file.first_epoch <= epoch]
    return View(epoch, table.uris(files), schema)


def read_arrow(flow: Flow, output: str, *, as_of: AsOf = None) -> pa.Table:
    """Return an output as an Arrow table, as of an epoch or a time. Needs no Spark.

    Raises `NotPublished`, `EpochBelowSince`, `OutputHasFailed`, `OutputIsBehind`, `UnknownName`, `FlowNeverRan`,
    `StoreBehindTable` and `HistoriesDiffer`, and `RowsUnreadable` when a data file is missing or damaged.
    """
    view = view_of(flow.spec, output, as_of)
    if not view.uris:
        return view.schema.empty_table()
    with reading(output):
        return view.dataset().to_table(filter=pc.field("_epoch") <= view.epoch)


def read(spark: Any, flow: Flow, output: str, *, as_of: AsOf = None) -> DataFrame:
    """Return an output as a DataFrame of the given session, as of an epoch or a time. Needs no table format's JARs.

    The frame reads the files that are committed now; later commits do not appear in it. Raises the same errors as
    `read_arrow`.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    view = view_of(flow.spec, output, as_of)
    schema = from_arrow_schema(view.schema, prefer_timestamp_ntz=True)
    if not view.uris:
        return spark.createDataFrame([], schema)  # type: ignore[no-any-return]
    frame = spark.read.options(**_AS_WRITTEN).schema(schema).parquet(*view.uris)
    return frame.where(frame["_epoch"] <= view.epoch)  # type: ignore[no-any-return]
