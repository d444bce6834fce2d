"""Looking at a flow from outside, whether it runs or not: where it stands, its timeline, what is in an epoch.

Everything here is read from what is durable (the store, the tables) and by asking the sources themselves; nothing is
changed. States and words are those of the running flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow.compute
import pyarrow.parquet

from tidegauge.env import Env
from tidegauge.errors.base import Definite, TidegaugeError, Transient
from tidegauge.errors.command import EpochNotBound, FlowNeverRan
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.running import SourceUnreachable
from tidegauge.pipeline.board import OutputState, SourceState
from tidegauge.pipeline.flow import Dataflow
from tidegauge.reclock.slices import held
from tidegauge.remap.binding import Bound, Detail
from tidegauge.remap.store import EpochRecord, Loaded, Store
from tidegauge.sinks.protocol import OutputId, Table

__all__ = [
    "EpochReport",
    "FlowReport",
    "OutputReport",
    "Place",
    "SliceReport",
    "SourceReport",
    "epochs",
    "explain",
    "locate",
    "status",
]

pc: Final[Any] = pyarrow.compute
pq: Final[Any] = pyarrow.parquet


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A source: its state, how far it is bound and published, and what upstream holds, in `unit`."""

    name: str
    state: SourceState
    unit: str
    partitions: int
    bound: int
    published: int
    end: int
    note: str
    error: TidegaugeError | None

    @property
    def lag(self) -> int:
        """What upstream holds and no table shows, in `unit`."""
        return self.end - self.published


@dataclass(frozen=True, slots=True)
class OutputReport:
    """An output: its state, the first epoch it lacks, how many published epochs that is behind, what it holds."""

    name: str
    source: str
    state: OutputState
    upper: int
    lag: int
    rows: int
    bytes: int
    files: int
    error: TidegaugeError | None


@dataclass(frozen=True, slots=True)
class FlowReport:
    """A flow: `upper` epochs are bound, `published` are published."""

    name: str
    store: str
    running: str
    upper: int
    published: int
    minted_at: datetime | None
    sources: tuple[SourceReport, ...]
    outputs: tuple[OutputReport, ...]


@dataclass(frozen=True, slots=True)
class SliceReport:
    """A range of an epoch: `[lower, upper)` of a partition, with what the source keeps about the partition."""

    source: str
    partition: str
    lower: int
    upper: int
    unit: str
    detail: Detail


@dataclass(frozen=True, slots=True)
class EpochReport:
    """An epoch: when it was minted and published, where its records came from, and how many rows of it went where."""

    epoch: int
    minted_at: datetime
    published_at: datetime | None
    slices: tuple[SliceReport, ...]
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands: its epoch, its partition's path (or key) and its position."""

    epoch: int
    partition: str
    path: str
    position: int


@contextmanager
def opened(flow: Dataflow, env: Env) -> Iterator[Store]:
    """Open the flow's store for reading. Raises `FlowNeverRan`."""
    if not Store.exists(flow.store):  # looking makes nothing
        raise FlowNeverRan(flow=flow.name, store=flow.store)
    store = Store.open(flow.store, env=env)
    try:
        if store.flow(flow.name) is None:
            raise FlowNeverRan(flow=flow.name, store=store.url)
        yield store
    finally:
        store.close()


def table_of(flow: Dataflow, output: str, incarnation: str) -> Table:
    """Open an output's table. Raises `UnknownName`."""
    if output not in flow.outputs:
        raise UnknownName(kind="output", name=output, known=sorted(flow.outputs))
    return flow.outputs[output].sink.open(OutputId(flow.name, output, incarnation))


def holds(loaded: Loaded, source: str, upper: int) -> int:
    """Return the first epoch that an output lacks, given its table's upper and the source that it reads.

    Epochs in which the source holds nothing are held without a commit. From the epoch at which its source has failed
    on, an output holds nothing.
    """
    found = loaded.sources[source]
    first = held(found.table, upper)
    return first if found.failure is None else min(first, found.failure[0])


def status(flow: Dataflow, *, env: Env | None = None) -> FlowReport:
    """Return where a flow stands, asking the sources how far upstream is. Raises `FlowNeverRan`."""
    env = env or Env()
    with opened(flow, env) as store:
        loaded = store.load(flow.name)
        holder = store.holder(flow.name)
        newest = store.epochs(flow.name, limit=1)
    return FlowReport(
        name=flow.name,
        store=store.url,
        running=holder,
        upper=loaded.flow.upper,
        published=loaded.flow.published,
        minted_at=newest[0].minted_at if newest else None,
        sources=tuple(_source(flow, name, loaded, env) for name in flow.sources),
        outputs=tuple(_output(flow, name, loaded) for name in flow.outputs),
    )


def _source(flow: Dataflow, name: str, loaded: Loaded, env: Env) -> SourceReport:
    source = flow.sources[name]
    if name not in loaded.sources:  # new in the flow, which has not run since
        return SourceReport(name, "starting", source.unit, 0, 0, 0, 0, "", None)
    found = loaded.sources[name]
    bound = found.table.frontier
    upper = loaded.flow.published if found.failure is None else min(loaded.flow.published, found.failure[0])
    end, note, error = bound, "", None if found.failure is None else found.failure[1]
    state: SourceState = "failed" if error is not None else "sealed" if bound.sealed else "running"
    if state == "running":
        try:
            probe = source.probe(Bound(frontier=bound, details=found.details, schema=found.schema), now=env.now())
        except TidegaugeError as raised:
            state, error = ("failed" if isinstance(raised, Definite) else "stalled"), raised
        except OSError as raised:
            state, error = "stalled", SourceUnreachable(source=name, error=type(raised).__name__, detail=str(raised))
        else:
            end, note = probe.end, probe.note
            state = "starting" if not bound and not end else state
    return SourceReport(
        name=name,
        state=state,
        unit=source.unit,
        partitions=len(bound),
        bound=sum(bound.values()),
        published=sum(found.table.inverse(upper).values()),
        end=sum(end.values()),
        note=note,
        error=error,
    )


def _output(flow: Dataflow, name: str, loaded: Loaded) -> OutputReport:
    plan = flow.outputs[name]
    published = loaded.flow.published
    if name not in loaded.outputs or plan.source not in loaded.sources:  # new in the flow, which has not run since
        return OutputReport(name, plan.source, "planned", 0, published, 0, 0, 0, None)
    try:
        table = table_of(flow, name, loaded.flow.incarnation)
        files = table.files()
    except TidegaugeError as refused:  # one table that cannot be read does not hide the others
        state: OutputState = "stalled" if isinstance(refused, Transient) else "failed"
        return OutputReport(name, plan.source, state, 0, published, 0, 0, 0, refused)
    failure = loaded.sources[plan.source].failure or loaded.outputs[name].outstanding(table.upper)
    upper = holds(loaded, plan.source, table.upper)
    return OutputReport(
        name=name,
        source=plan.source,
        state="failed" if failure is not None else "live" if upper >= published else "catching_up",
        upper=upper,
        lag=max(0, published - upper),
        rows=sum(file.rows for file in files),
        bytes=sum(file.bytes for file in files),
        files=len(files),
        error=None if failure is None else failure[1],
    )


def epochs(
    flow: Dataflow, *, first: int | None = None, last: int | None = None, limit: int | None = None
) -> list[tuple[EpochRecord, Mapping[str, int]]]:
    """Return epochs in order, each with how many positions of each source it binds. Raises `FlowNeverRan`."""
    with opened(flow, Env()) as store:
        loaded = store.load(flow.name)
        records = store.epochs(flow.name, first=first, last=last, limit=limit)
    if not records:
        return []
    sizes: dict[int, dict[str, int]] = {record.epoch: {} for record in records}
    for name, source in loaded.sources.items():
        for piece in source.table.slices(records[0].epoch, records[-1].epoch + 1):
            sizes[piece.epoch][name] = sizes[piece.epoch].get(name, 0) + piece.size
    return [(record, sizes[record.epoch]) for record in records]


def explain(flow: Dataflow, epoch: int) -> EpochReport:
    """Return what is in an epoch, where it came from and where it went.

    Raises `EpochNotBound` for one never minted.
    """
    with opened(flow, Env()) as store:
        loaded = store.load(flow.name)
        records = store.epochs(flow.name, first=epoch, last=epoch)
    if not records:
        raise EpochNotBound(epoch=epoch, flow=flow.name, upper=loaded.flow.upper)
    slices = [
        SliceReport(
            source=name,
            partition=piece.partition,
            lower=piece.lower,
            upper=piece.upper,
            unit=flow.sources[name].unit if name in flow.sources else "positions",
            detail=source.details.get(piece.partition, {}),
        )
        for name, source in loaded.sources.items()
        for piece in source.table.slices(epoch, epoch + 1)
    ]
    rows = {name: rows_of(table_of(flow, name, loaded.flow.incarnation), epoch) for name in flow.outputs}
    return EpochReport(epoch, records[0].minted_at, records[0].published_at, tuple(slices), rows)


def rows_of(table: Table, epoch: int) -> int:
    """Return how many rows of an epoch a table holds. Reads the column `_epoch` of the files that may have some."""
    count = 0
    for file in table.files():
        if file.first_epoch == file.last_epoch == epoch:
            count += file.rows
        elif file.first_epoch <= epoch <= file.last_epoch:
            column = pq.read_table(table.uris([file])[0], columns=["_epoch"], partitioning=None).column("_epoch")
            count += pc.sum(pc.equal(column, epoch)).as_py() or 0
    return count


def locate(flow: Dataflow, source: str, partition: str, position: int) -> Place:
    """Return the epoch of a record and where it stands upstream. Raises `UnknownName`, `NotYetBound`."""
    with opened(flow, Env()) as store:
        loaded = store.load(flow.name)
    if source not in loaded.sources:
        raise UnknownName(kind="source", name=source, known=sorted(loaded.sources))
    found = loaded.sources[source]
    detail = found.details.get(partition, {})
    epoch = found.table.epoch_of(partition, position)
    return Place(epoch, partition, str(detail.get("path", partition)), position)
