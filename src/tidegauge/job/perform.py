"""Performing a need: plan the slices into splits, let the engine stage them, say what came of it.

Runs beside the worker. It keeps nothing and decides nothing that lasts: the stage operator does that, with the
result. A source that cannot be planned is a failure of that source, and the others are staged without it. Two needs
may be performed at once, of different outputs.

Upstream's answers at the look that bound an epoch need not be asked for again right after it: planning gets them, as
long as they are at most `GOOD_FOR` seconds old. Reading detects anything that has changed since, but not an upstream
that was recreated and has as many records. So a source that can tell is asked once more after the last task.

Invariant: staged rows of a source go on only if its upstream is the bound one after they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from tidegauge.env import Env
from tidegauge.errors.base import Definite, TidegaugeError, Transient
from tidegauge.errors.engine import ReadFailed
from tidegauge.job.columns import Columned, by_columns, read_as
from tidegauge.job.durable import without
from tidegauge.job.functions import channel_of, said
from tidegauge.job.groups import Need
from tidegauge.job.past import past_read, remaining
from tidegauge.job.plan import Engine, EpochJob, JobResult, OutputPlan, OutputWork, SourceRead
from tidegauge.operations import carries, check
from tidegauge.reclock.parts import taken
from tidegauge.remap.binding import Bound, Slice
from tidegauge.remap.round import Failure
from tidegauge.sinks.backlog import StagedSpan
from tidegauge.sinks.protocol import Standing, Table
from tidegauge.sinks.stamped import StampedSink
from tidegauge.sources.abilities import Confirming, Cuttable, GoingOn
from tidegauge.sources.protocol import Source, Split
from tidegauge.sources.push.pieces import Pieces
from tidegauge.sources.union import UnionSource

__all__ = ["GOOD_FOR", "OutputSchemas", "Performed", "Performer", "PinnedNeed", "performer"]

NO_PIECES: Final[Mapping[str, Pieces]] = MappingProxyType({})
NO_STAMPS: Final[Mapping[str, int]] = MappingProxyType({})

GOOD_FOR: Final = timedelta(seconds=1)
"""How long an answer of upstream stands for the same question, from when it was asked."""


@dataclass(frozen=True, slots=True)
class PinnedNeed:
    """A need with its pinned ranges: the slices of each source in its epochs and the bindings of each source.

    late: whether it is that of late outputs. past: the output whose table is read, None for the sources. beside:
    whether it is to leave room for other jobs. most: how many positions of the slices are read, of one epoch of one
    source; None for all of them.
    """

    need: Need
    slices: Mapping[str, list[Slice]]
    bounds: Mapping[str, Bound]
    late: bool = False
    past: str | None = None
    beside: bool = False
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Performed:
    """What came of a need: the job's name and result, and the schema of each output that it staged.

    lost: what its sources go on without. last: the last slice that was read, where that was only to be some of them.
    size: how many positions were.
    """

    job: str
    schemas: Mapping[str, pa.Schema]
    result: JobResult
    lost: tuple[Slice, ...] = ()
    last: Slice | None = None
    size: int = 0

    def span(self, output: str, lower: int, upper: int) -> StagedSpan:
        """Return what it has staged for an output, as the epochs `[lower, upper)`."""
        if output not in self.schemas:
            return StagedSpan(lower, upper)
        staged = self.result.staged[output]
        return StagedSpan(lower, upper, self.job, self.schemas[output], staged.files, staged.rows)


Performer = Callable[[PinnedNeed], Performed]


def performer(
    plans: Mapping[str, OutputPlan],
    sources: Mapping[str, Source],
    engine: Engine,
    env: Env,
    *,
    mark: str,
    passed: Mapping[str, Sequence[Slice]],
    lacking: Collection[str],
    tables: Mapping[str, object],
    schemas: OutputSchemas,
    pieces: Mapping[str, Pieces] = NO_PIECES,
    stamps: Mapping[str, int] = NO_STAMPS,
    present: Callable[[str], Table],
    since: int,
) -> Performer:
    """Return the function that performs needs with these sources on this engine. Names of jobs begin with `mark`.

    passed: ranges that nobody reads any more, by source. An epoch with nothing left is committed all the same.
    lacking: the sources whose rows tables may lack. tables: of the outputs. Nothing is staged for one that has
    vanished: `TableUpperMismatch` is raised. schemas: of the outputs on this engine. pieces: of the sources that
    push. stamps: the epochs that the past of outputs has. present: opens the table of an output, to be read. since:
    the epochs up to it are one.
    """
    collecting = {plan.source for plan in plans.values() if plan.channel == "errors"}

    def from_table(pinned: PinnedNeed, past: str) -> tuple[list[SourceRead], list[Failure]]:
        need, other = pinned.need, plans[past]
        try:
            columns = schemas.of(other, pinned.bounds[other.source].schema)
            table = present(past)
            span = {"lower": need.lower, "upper": need.upper, "since": since}
            return [past_read(other.source, past, table, columns, **span, evolution=other.evolution)], []
        except OSError as error:
            failed = ReadFailed(source=other.source, place=f"the table of {past}", detail=said(error))
            return [], [Failure(other.source, None, need.lower, failed)]
        except TidegaugeError as error:
            return [], [Failure(other.source, None, need.lower, error)]

    def perform(pinned: PinnedNeed) -> Performed:
        need, job, past = pinned.need, mark + env.unique()[-16:], pinned.past
        reads, failures, lost = list[SourceRead](), list[Failure](), list[Slice]()
        if past is not None:
            reads, failures = from_table(pinned, past)
        last, size = None, 0
        for name, slices in pinned.slices.items():
            size += sum(piece.size for piece in slices)
            if past is not None:
                continue
            source, bound = sources[name], recent(pinned.bounds[name], now=env.now())
            if pinned.most is not None:
                some = parted(name, source, slices, bound, most=pinned.most)
                if isinstance(some, Failure):
                    failures.append(some)
                    continue
                slices, last, size = some, some[-1], sum(piece.size for piece in some)
            left = without(slices, passed[name]) if name in passed else slices
            parts = by_columns(left, bound)
            planned = planned_by(name, pieces.get(name, source), parts, bound)
            if isinstance(planned, Failure):
                failures.append(planned)
            else:
                splits, gone = planned
                if name in pieces:
                    splits = wanted(splits, {plans[o].channel for o in need.outputs if plans[o].source == name})
                reader = read_as(source, parts, bound)
                whole = any(plans[o].ordered for o in need.outputs if plans[o].source == name)
                collect, lacks = name in collecting, name in lacking
                reads.append(SourceRead(name, reader, bound.schema, splits, collect, whole, lacks))
                lost += gone
        read = {part.name for part in reads}
        works = []
        for name in (name for name in need.outputs if plans[name].source in read):
            try:
                schema = schemas.of(plans[name], pinned.bounds[plans[name].source].schema)
                part = stamped(plans[name], need.lower, stamp=stamps.get(name, 0))
                works.append(OutputWork(part if past is None else going_on(part, plans[past]), schema))
            except Transient:
                raise
            except TidegaugeError as error:  # steps that do not fit columns which were inferred just now
                failures.append(Failure(plans[name].source, name, need.lower, error))
        result = JobResult({})
        for work in works:
            table = tables[work.plan.name]
            if isinstance(table, Standing):
                table.stand()
        if works:
            with env.effect("stage"):
                epoch_job = EpochJob(
                    job, need.lower, need.upper, tuple(reads), tuple(works), late=pinned.late, beside=pinned.beside
                )
                result = engine.submit(epoch_job).result()
            for one in reads if past is None else ():
                at = pinned.slices[one.name][0].epoch
                if (changed := unconfirmed(one, pinned.bounds[one.name], at)) is not None:
                    failures.append(changed)
        found = (*failures, *result.failures)
        if past is not None:
            found = own_failures(found, need.outputs)
        return Performed(
            job,
            {work.plan.name: work.schema for work in works},
            JobResult(result.staged, found, result.records, result.bytes_read),
            tuple(lost),
            last,
            size,
        )

    return perform


def stamped(plan: OutputPlan, lower: int, *, stamp: int) -> OutputPlan:
    """Return the plan of a job for epochs from `lower` on, so that no row has an epoch before `stamp`."""
    return replace(plan, sink=StampedSink(plan.sink, stamp)) if lower < stamp else plan


def going_on(plan: OutputPlan, other: OutputPlan) -> OutputPlan:
    """Return the plan of a job that reads the table of another output, whose steps its rows have been through."""
    return replace(plan, channel="rows", steps=remaining(plan.steps, other.steps) or ())


def own_failures(failures: Iterable[Failure], outputs: Sequence[str]) -> tuple[Failure, ...]:
    """Return the failures of a job that reads a table: trouble with the table is not the source's."""
    return tuple(
        one
        for failure in failures
        for one in ([replace(failure, output=name) for name in outputs] if failure.output is None else [failure])
    )


def wanted(splits: Iterable[Split], channels: Collection[str]) -> tuple[Split, ...]:
    """Return the splits that outputs of these channels need; a bad record may be in any."""
    return tuple(split for split in splits if "errors" in channels or channel_of(split) in channels)


def recent(bound: Bound, *, now: datetime) -> Bound:
    """Return the bindings, with upstream's last answer only if that is still good."""
    if bound.last is None or timedelta(0) <= now - bound.last.at < GOOD_FOR:
        return bound
    return replace(bound, last=None)


def parted(name: str, source: Source, slices: list[Slice], bound: Bound, *, most: int) -> list[Slice] | Failure:
    """Return the first of these slices that have about `most` positions; or why the source cannot be asked."""
    try:
        if not isinstance(source, Cuttable):
            return taken(slices, most, size=attrgetter("size"), cut=lambda _piece, _size: None)
        return taken(
            slices,
            most,
            size=lambda piece: source.size(piece, bound),
            cut=lambda piece, size: source.cut(piece, size, bound),
        )
    except Transient as error:
        return Failure(name, None, slices[0].epoch, error)
    except OSError as error:
        failed = ReadFailed(source=name, place=slices[0].partition, detail=said(error))
        return Failure(name, None, slices[0].epoch, failed)


def plan(
    name: str, source: Source | Pieces, slices: list[Slice], bound: Bound
) -> tuple[tuple[Split, ...], Sequence[Slice]] | Failure:
    """Return the splits of a source, and what of its slices is lost; or why it cannot be read."""
    left = slices
    try:
        try:
            gone = source.lost(slices, bound) if isinstance(source, GoingOn) else ()
            left = without(slices, gone) if gone else slices
            return tuple(source.plan(left, bound)), gone
        except Definite as error:
            return first_failure(name, source, left or slices, bound, error)
    except Transient as error:
        return Failure(name, None, slices[0].epoch, error)
    except OSError as error:
        failed = ReadFailed(source=name, place=slices[0].partition, detail=said(error))
        return Failure(name, None, slices[0].epoch, failed)


def planned_by(
    name: str, source: Source | Pieces, parts: Sequence[tuple[pa.Schema | None, list[Slice]]], bound: Bound
) -> tuple[tuple[Split, ...], Sequence[Slice]] | Failure:
    """Return the splits of slices, each planned by the columns of its records, and as `plan`."""
    found = [plan(name, source, slices, replace(bound, schema=schema)) for schema, slices in parts]
    failures = [one for one in found if isinstance(one, Failure)]
    if failures:
        return min(failures, key=lambda one: (not isinstance(one.error, Transient), one.epoch))
    whole = [one for one in found if not isinstance(one, Failure)]
    return tuple(split for splits, _ in whole for split in splits), [hole for _, gone in whole for hole in gone]


def unconfirmed(read: SourceRead, bound: Bound, epoch: int) -> Failure | None:
    """Return the failure of a source, at an epoch, unless upstream says that it is the one that is bound."""
    name, source = read.name, read.source.source if isinstance(read.source, Columned) else read.source
    if not isinstance(source, Confirming):
        return None
    try:
        if isinstance(source, UnionSource):
            source.confirm_read(read.splits, bound)
        else:
            source.confirm(bound)
    except (Definite, Transient) as error:
        return Failure(name, None, epoch, error)
    except OSError as error:
        return Failure(name, None, epoch, ReadFailed(source=name, place="its upstream", detail=said(error)))
    return None


def first_failure(name: str, source: Source | Pieces, slices: list[Slice], bound: Bound, error: Definite) -> Failure:
    """Return the failure of a source whose slices cannot all be planned, at the first such epoch."""
    epochs = sorted({piece.epoch for piece in slices})
    for epoch in epochs:
        try:
            source.plan([piece for piece in slices if piece.epoch == epoch], bound)
        except Definite as found:
            return Failure(name, None, epoch, found)
    return Failure(name, None, epochs[0], error)


class OutputSchemas:
    """The columns of outputs on an engine, found once for those of a source. In any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine
        self._known: Final[dict[str, tuple[pa.Schema, pa.Schema]]] = {}

    def rowwise(self, plan: OutputPlan, source_schema: pa.Schema) -> bool:
        """Whether each row of an output is made of one record, so that its epochs can be staged in parts."""
        try:
            return self._engine.rowwise(plan, source_schema)
        except TidegaugeError:  # the first job says what is wrong with its steps
            return False

    def known(self, plan: OutputPlan, source_schema: pa.Schema) -> pa.Schema | None:
        """Return the columns of an output, None where its steps or its sink raise: the first job will."""
        try:
            return self.of(plan, source_schema)
        except TidegaugeError:
            return None

    def of(self, plan: OutputPlan, source_schema: pa.Schema) -> pa.Schema:
        """Return the columns of an output, or raise; see `output_schema`."""
        known = self._known.get(plan.name)
        if known is None or not known[0].equals(source_schema):
            known = self._known[plan.name] = (source_schema, output_schema(plan, source_schema, self._engine))
        return known[1]


def output_schema(plan: OutputPlan, source_schema: pa.Schema, engine: Engine) -> pa.Schema:
    """Return the columns of an output, `_epoch` last, or raise the error of its steps or for its sink."""
    schema = engine.schema(plan, source_schema)
    check(schema, f"output {plan.name!r}")
    if carries(schema):
        plan.check_applied()
    plan.sink.check(schema)
    return schema
