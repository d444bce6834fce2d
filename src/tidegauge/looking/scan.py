"""Scanning a source: the records of its bound epochs, read from upstream once more, for you alone.

A scan reads the same ranges as the jobs that fill the tables, so a record has the epoch that it has there: a scan as
of an epoch has the rows that an output without steps holds as of that epoch. It plans nothing, holds nothing and
leaves nothing behind, and needs no lease, so the flow may run meanwhile.

Invariant. The same epochs give the same rows each time, or an error that says why upstream cannot give them any more:
never fewer. What the flow has noted as lost (`gaps`) is not of its epochs, here as in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from tidegauge.engine.arrowtypes import carried, spark_schema
from tidegauge.engine.parts import dealt
from tidegauge.env import Env
from tidegauge.errors.command import EpochNotBound, NotPublished, NotScannable
from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import EpochBelowSince
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.job.columns import by_columns, read_as
from tidegauge.job.durable import passed, without
from tidegauge.job.functions import with_epoch
from tidegauge.job.plan import SourceRead
from tidegauge.job.scanned import scanned
from tidegauge.looking.asof import instant
from tidegauge.looking.inspect import opened
from tidegauge.reclock.slices import told_apart
from tidegauge.remap.binding import Bound, Slice
from tidegauge.remap.store import Loaded, Store
from tidegauge.sources.abilities import GoingOn
from tidegauge.sources.push.source import PushedSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Between", "Moment", "Scan", "planned", "scan", "scan_arrow"]

Moment: TypeAlias = int | str | datetime
"""An epoch, or a time; one without a zone is UTC."""
Between: TypeAlias = tuple[Moment, Moment]

_EXPECTED: Final = 'an epoch, a time like 2026-11-20 17:00, or "now"'
_TICK: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan reads: splits of a source, and the bindings that pin them."""

    read: SourceRead
    bound: Bound

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows: those of the source, and `_epoch`."""
        return with_epoch(self.read.schema)


def scan_arrow(
    flow: Flow,
    source: str,
    *,
    as_of: Moment | Literal["now"] | None = None,
    between: Between | None = None,
    env: Env | None = None,
) -> pa.RecordBatchReader:
    """Return the rows of a source, with their epochs, as a reader of Arrow batches. Needs no Spark.

    Args:
        flow: the flow of the source.
        source: its name.
        as_of: the last epoch of the scan, or a time: the last epoch that was minted by then. None for the newest
            published epoch, as `read` has it; "now" for the newest that is bound.
        between: the first epoch and the one after the last, or times: the epochs that were minted from the first on
            and before the second.
        env: the world, for tests.

    Rows come in the order of their epochs. Raises `EpochNotBound`, `EpochBelowSince` for epochs that were compacted,
    `NotScannable` for those that upstream does not give again, `NotPublished`, `UnknownName`, `FlowNeverRan`,
    `InvalidArgument`; and, also while you read, what a run says of a source that it cannot read.
    """
    found = planned(flow.spec, source, as_of=as_of, between=between, env=env or Env())
    return pa.RecordBatchReader.from_batches(found.schema, scanned(found.read, found.bound, found.schema))


def scan(
    spark: Any,
    flow: Flow,
    source: str,
    *,
    as_of: Moment | Literal["now"] | None = None,
    between: Between | None = None,
    env: Env | None = None,
) -> DataFrame:
    """Return the rows of a source, with their epochs, as a DataFrame of the given session, read in its tasks.

    The epochs are chosen now; upstream is read when the frame is, each time. Arguments and errors are those of
    `scan_arrow`.
    """
    from tidegauge.engine.spark.hops import pack_scan, scanning
    from tidegauge.engine.spark.session import slots

    found = planned(flow.spec, source, as_of=as_of, between=between, env=env or Env())
    columns = carried(found.schema, where=f"source {source!r}")
    schema = spark_schema(columns)
    if not found.read.splits:
        return spark.createDataFrame([], schema)  # type: ignore[no-any-return]
    tasks = [pack_scan(part, found.bound) for part in dealt((found.read,), tasks=slots(spark) * 4)]
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(scanning(tasks, columns), schema)  # type: ignore[no-any-return]


def planned(flow: FlowSpec, source: str, *, as_of: Moment | None, between: Between | None, env: Env) -> Scan:
    """Return what a scan reads. Raises what `scan_arrow` raises before it reads."""
    upstream = flow.source(source)
    if as_of is not None and between is not None:
        raise InvalidArgument(parameter="between", value=between, expected="either it or as_of")
    with opened(flow, env) as store:
        loaded = store.load(flow.name)
        epochs = _epochs(store, flow.name, loaded, as_of, between)
    if isinstance(upstream, PushedSource):
        raise _not(source, epochs, "it pushes its records, each of them once")
    found = loaded.sources.get(source)
    schema = upstream.schema or (None if found is None else found.schema)
    if found is None or schema is None:
        raise NotPublished(as_of=f"a record of {source}", published=loaded.flow.published)
    slices = _slices(loaded, source, epochs)
    lost = upstream.lost(slices, found.bound) if slices and isinstance(upstream, GoingOn) else ()
    if lost:
        raise _not(source, range(lost[0].epoch, lost[-1].epoch + 1), "it has deleted some of their records")
    bound = replace(found.bound, schema=schema)
    parts = by_columns(slices, bound)
    splits = tuple(split for columns, some in parts for split in upstream.plan(some, replace(bound, schema=columns)))
    reader = read_as(upstream, parts, bound)
    return Scan(SourceRead(source, reader, schema, splits, source in flow.collecting), found.bound)


def _epochs(store: Store, flow: str, loaded: Loaded, as_of: Moment | None, between: Between | None) -> range:
    """Return the epochs of a scan."""
    if between is not None:
        if not isinstance(between, tuple) or len(between) != 2:
            raise InvalidArgument(parameter="between", value=between, expected="two epochs, or two times")
        first, stop = (_epoch(store, flow, "between", one, before=True) + 1 for one in between)
    elif as_of is None:
        first, stop = 0, loaded.flow.published
    elif as_of == "now":
        first, stop = 0, loaded.flow.upper
    else:
        first, stop = 0, _epoch(store, flow, "as_of", as_of, before=False) + 1
    if stop > loaded.flow.upper:
        raise EpochNotBound(epoch=stop - 1, flow=flow, upper=loaded.flow.upper)
    return range(first, max(first, stop))


def _epoch(store: Store, flow: str, parameter: str, value: Any, *, before: bool) -> int:
    """Return the last epoch up to a moment, or before it; -1 for none."""
    if isinstance(value, bool) or not isinstance(value, int | str | datetime):
        raise InvalidArgument(parameter=parameter, value=value, expected=_EXPECTED)
    if isinstance(value, int):
        if value < 0:
            raise InvalidArgument(parameter=parameter, value=value, expected=_EXPECTED)
        return value - before
    found = store.epoch_at(flow, instant(value) - (_TICK if before else timedelta(0)))
    return -1 if found is None else found


def _slices(loaded: Loaded, source: str, epochs: range) -> list[Slice]:
    """Return what upstream is to give for some epochs. Raises `EpochBelowSince`, `NotScannable`."""
    found, since = loaded.sources[source], loaded.flow.since
    if not epochs:
        return []
    first = told_apart(epochs, since=since, folded=found.folded)
    if first is None:
        raise EpochBelowSince(source=source, epoch=min(epochs.start, since - 1), since=since)
    known: Mapping[str, list[Slice]] = passed(loaded)
    slices = without(found.slices(first, epochs.stop) if first < epochs.stop else [], known.get(source, []))
    if over := [piece.epoch for piece in slices if piece.epoch < found.began_at]:
        raise _not(source, range(over[0], over[-1] + 1), "their upstream was recreated")
    return slices


def _not(source: str, epochs: range, detail: str) -> NotScannable:
    return NotScannable(source=source, first=epochs.start, last=epochs.stop - 1, detail=detail)
