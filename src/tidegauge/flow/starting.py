"""Where the outputs of a flow begin, and which epoch their past has: settled once, durable before any work, and never
again while a table holds rows.

    the store knows where   the flow says       the table holds rows    the table holds nothing
    it begins
    yes                     the same            it stays                it stays
    yes                     something else      refused                 settled anew
    no                      nothing             with its source         with its source
    no                      something           refused                 settled

A store that was put back to before the output was made knows of no start, and has not seen the table: then the table
is asked, whose commits tell where it begins. So does a table from which a store is recovered.

Invariant: no restart, backup, recovery or change of the flow moves the beginning of a table that holds rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from tidegauge.errors.history import DamagedHistory
from tidegauge.errors.outputs import (
    OutputBelowIncarnation,
    OutputBelowSince,
    StartChanged,
    TimestampsChanged,
    TimestampsNotThere,
)
from tidegauge.errors.push import StreamForgotten
from tidegauge.flow.spec import FlowSpec
from tidegauge.job.durable import left_behind
from tidegauge.job.plan import OutputPlan
from tidegauge.reclock.slices import begins
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.history import Link
from tidegauge.remap.stamps import FAITHFUL
from tidegauge.remap.start import WITH_SOURCE, StampRecord, StartRecord, start_text
from tidegauge.remap.store import Lease, Loaded, LoadedOutput, Store
from tidegauge.remap.table import RemapTable
from tidegauge.remap.times import EpochTimes
from tidegauge.sinks.protocol import Keeping, Table
from tidegauge.sources.push.protocol import LaterStreams
from tidegauge.sources.push.source import PushedSource

__all__ = ["first_given", "settled", "stays", "told"]


def stays(plan: OutputPlan, known: LoadedOutput) -> bool:
    """Whether an output begins where the store knows it to begin, and its past has the epoch that the store knows."""
    return _said(plan) == _kept(known.start) and plan.stamps.said == _stamped(known.start)


def settled(
    flow: FlowSpec, loaded: Loaded, store: Store, lease: Lease, tables: Mapping[str, Table], *, now: datetime
) -> dict[str, StartRecord]:
    """Return where the outputs with these tables begin; those that begin with their source are left out, unless their
    past has an epoch.

    New ones are durable by then. Raises `StartNotThere`, `StartChanged`, `TimestampsNotThere`, `TimestampsChanged`,
    `StreamForgotten`.
    """
    found: dict[str, StartRecord] = {}
    for name, table in tables.items():
        plan, known = flow.outputs[name], loaded.outputs[name]
        start = known.start
        if start is None and table.upper and not known.held:
            with suppress(DamagedHistory):  # a flow that names a start is then refused, as the store knows of none
                start = told(name, table.links())
        _check_known(plan, flow.sources[plan.source], start, table)
        if table.upper:
            _check(plan, start)
        else:
            times = partial(store.times, flow.name)
            other = None if plan.past is None else found.get(plan.past, loaded.outputs[plan.past].start)
            start = _begun(plan, flow.sources[plan.source], start, other, loaded, times=times, now=now)
            stamps = _past(flow, plan, start, loaded, table, times=times, now=now)
            start = replace(start, stamps=stamps)
        if start == _WITH_SOURCE:
            start = None
        if start != known.start:
            store.record_start(lease, name, start)
        if start is not None:
            found[name] = start
    return found


def _check(plan: OutputPlan, start: StartRecord | None) -> None:
    """Raise unless the rows of a table began, and have the epochs, that the flow says."""
    if (now := _said(plan)) != (before := _kept(start)):
        raise StartChanged(output=plan.name, now=start_text(now), before=start_text(before))
    if (said := plan.stamps.said) != (kept := _stamped(start)):
        raise TimestampsChanged(output=plan.name, now=start_text(said), before=start_text(kept))


def _begun(
    plan: OutputPlan,
    source: object,
    known: StartRecord | None,
    other: StartRecord | None,
    loaded: Loaded,
    *,
    times: Callable[[], EpochTimes],
    now: datetime,
) -> StartRecord:
    """Return where an output without rows begins. other: where the one does from whose table it gets its past."""
    if other is not None and other.said == _said(plan):
        return replace(other, stamps=None if known is None else known.stamps)
    if known is not None and known.said == _said(plan):
        return known
    if plan.start is None:
        return StartRecord(WITH_SOURCE, _came(plan, source, loaded.sources[plan.source].table))
    epoch = plan.start.epoch(plan.name, loaded.sources[plan.source].table, times=times, now=now)
    start = StartRecord(plan.start.said, epoch)
    if pieces := left_behind(loaded, plan.source, epoch):
        raise start.gone(plan.name, last=pieces[-1].epoch)
    return start


def _came(plan: OutputPlan, source: object, table: RemapTable) -> int:
    """Return the epoch with which the stream of an output begins, which is 0 unless it came later."""
    later = _later(source)
    if plan.channel not in later:
        return 0
    if (place := later[plan.channel]) is None:
        return table.upper
    last = [(partition, position - 1) for partition, position in place.items() if position]
    bound = [table.epoch_of(*one) if one[1] < table.frontier[one[0]] else table.upper for one in last]
    return min(bound, default=0)


def _later(source: object) -> Mapping[str, Frontier | None]:
    """Return the streams of a source that came later, see `LaterStreams`."""
    inner = source.source if isinstance(source, PushedSource) else None
    return inner.later() if isinstance(inner, LaterStreams) else {}


def _check_known(plan: OutputPlan, source: object, start: StartRecord | None, table: Table) -> None:
    """Raise `StreamForgotten` where an output begins with a stream that came later, and the source knows it not.

    Or where it knows less of it than the table: the stream is yet to join, and the table has rows of it.
    """
    later = _later(source)
    came = start is not None and start.said == WITH_SOURCE and bool(start.epoch)
    known = plan.channel in later
    if (came and not known) or (known and later[plan.channel] is None and table.upper and table.volume().rows):
        raise StreamForgotten(output=plan.name, source=plan.source, stream=plan.channel)


def _past(
    flow: FlowSpec,
    plan: OutputPlan,
    start: StartRecord,
    loaded: Loaded,
    table: Table,
    *,
    times: Callable[[], EpochTimes],
    now: datetime,
) -> StampRecord | None:
    """Return which epoch the past of an output without rows has.

    Where its source has failed, it is an epoch before that: the output ends there.
    """
    stamps, failure = plan.stamps, loaded.sources[plan.source].failure
    if stamps != FAITHFUL and start.stamps is not None and start.stamps.said == stamps.said:
        return start.stamps
    since, published = loaded.flow.since, loaded.flow.published
    first = max(start.epoch, since)
    if failure is not None:
        published = min(published, failure[0])
    epoch = stamps.epoch(plan.name, first=first, since=since, published=published, times=times, now=now)
    if epoch > first:
        text = start_text(stamps.said)
        if not isinstance(table, Keeping):
            why = "its sink cannot hide its rows until all of the past is in"
            raise TimestampsNotThere(output=plan.name, timestamps=text, why=why)
        if isinstance(flow.sources[plan.source], PushedSource):
            why = f"source {plan.source!r} is pushed, and its records come once, for all outputs"
            raise TimestampsNotThere(output=plan.name, timestamps=text, why=why)
    return stamps.record(epoch)


def told(output: str, links: Iterable[Link]) -> StartRecord | None:
    """Return where an output begins, by the links that its table has; None where that is with its source."""
    return next((link.starts[output] for link in links if output in link.starts), None)


def _said(plan: OutputPlan) -> str:
    return WITH_SOURCE if plan.start is None else plan.start.said


def _kept(start: StartRecord | None) -> str:
    return WITH_SOURCE if start is None else start.said


def _stamped(start: StartRecord | None) -> str:
    return FAITHFUL.said if start is None or start.stamps is None else start.stamps.said


_WITH_SOURCE: Final = StartRecord(WITH_SOURCE, 0)


def first_given(
    loaded: Loaded, plan: OutputPlan, upper: int, starts: Mapping[str, StartRecord], tables: Mapping[str, Table]
) -> int:
    """Return the first epoch that an output is given now, by its table's upper, or by where it begins.

    Raises `OutputBelowSince`, and `OutputBelowIncarnation`; `StartNotThere` for one that holds nothing.
    """
    since, start = loaded.flow.since, starts.get(plan.name)
    stands = upper or (0 if start is None else start.epoch)
    first = begins(stands, since=since, folded=loaded.sources[plan.source].folded)
    if first is None and not upper and start is not None:
        raise start.compacted(plan.name, since=since)
    if first is None:
        raise OutputBelowSince(output=plan.name, upper=upper, since=since)
    past = None if plan.past is None else tables.get(plan.past)
    pieces = left_behind(loaded, plan.source, stands)
    if pieces and (past is None or past.upper <= pieces[-1].epoch):
        raise OutputBelowIncarnation(
            output=plan.name,
            source=plan.source,
            first=pieces[0].epoch,
            last=pieces[-1].epoch,
            positions=sum(piece.size for piece in pieces),
        )
    return first
