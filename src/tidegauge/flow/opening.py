"""Opening a flow: what the store and the tables say of it becomes the value that rendering starts from.

Invariants. Opening asks only the store and the tables, so after a crash at any instant it finds exactly the durable
state. A table is swept before its upper counts: the sweep may only now reveal an earlier driver's last commit. If
store and table disagree on an output's epochs the table is right, and the store is told; if they do not have one
history, nothing is begun (`belonging`). A table that is away at present keeps no other from being opened (`away`);
its history is checked when it is back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

import pyarrow as pa

from tidegauge.backfill.order import waiting
from tidegauge.backfill.plan import Fill, files_of, steps_of
from tidegauge.errors.base import Transient
from tidegauge.errors.engine import RecordUnparsable
from tidegauge.errors.store import StoreReplaced
from tidegauge.flow.belonging import bound_at, check, check_unseen, note_seen, refuted, whole
from tidegauge.flow.changing import settled_codes
from tidegauge.flow.columns import (
    OutputColumns,
    begun_without,
    changed_columns,
    columns_of_steps,
    evolving,
    fencing,
    found_columns,
)
from tidegauge.flow.replacing import concluded, replaced, under_way
from tidegauge.flow.spec import FlowSpec
from tidegauge.flow.starting import first_given, settled, stays
from tidegauge.flow.taking import taking_from_tables
from tidegauge.job.durable import lacking, passed
from tidegauge.job.plan import OutputPlan
from tidegauge.reclock.slices import as_of, begins, held
from tidegauge.remap.binding import Slice
from tidegauge.remap.round import Failure
from tidegauge.remap.start import StartRecord
from tidegauge.remap.store import (
    Backfill,
    Decisions,
    Lease,
    Loaded,
    Replacement,
    Stall,
    Store,
)
from tidegauge.remap.timeline import Timeline
from tidegauge.sinks.protocol import Keeping, OutputId, Sweeping, Table
from tidegauge.sources.push.source import PushedSource

__all__ = ["Opened", "opened"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A flow with everything durable opened: what rendering starts from.

    tables: of the outputs that are open. away: the others, each with why. failed: sources that have failed.
    outstanding: outputs that failed for their own reasons and are retried, with the epochs. passed: ranges that
    nobody reads any more, by source. lacking: the sources whose rows tables may lack. stalls: the waits that the
    store knows of. uppers: the first epoch that each open output gets. late: those of them that lack epochs which are
    published. fills: the staged past of those that show nothing yet. taking: the late ones that get what they lack
    from another output's table, with the first epoch that this lacks. filling: the outputs with a plan in the store,
    open or not. starts: where the open outputs begin that do not begin with their source. replacing: the outputs
    whose rows are to change places with others; of those that are open the table here holds nothing yet. old: how far
    those rows reach. held: how far tables were seen to be in earlier runs. since: the epochs before it count as one.
    resume: the epoch to read the flow again from. lossless: `Store.noted` from before the store was found to know of
    no loss; -1 where it knows some. decisions: what people decided about outputs. news: in words, which outputs are
    new, changed or gone since the last run. passed_over: the columns that looks have found of sources, where some of
    them are not taken on.
    """

    spec: FlowSpec
    tables: Mapping[str, Table]
    away: Mapping[str, Exception]
    timeline: Timeline
    uppers: Mapping[str, int]
    late: frozenset[str]
    fills: Mapping[str, Fill]
    taking: Mapping[str, int]
    filling: frozenset[str]
    starts: Mapping[str, StartRecord]
    replacing: Mapping[str, Replacement]
    old: Mapping[str, int]
    held: Mapping[str, int]
    since: int
    resume: int
    published: int
    failed: Mapping[str, Failure]
    outstanding: Mapping[str, int]
    passed: Mapping[str, Sequence[Slice]]
    lacking: Collection[str]
    stalls: Sequence[Stall]
    lossless: int
    decisions: Decisions
    news: tuple[str, ...]
    passed_over: Mapping[str, pa.Schema]
    store: Store
    lease: Lease


def opened(
    flow: FlowSpec,
    store: Store,
    lease: Lease,
    *,
    known: Mapping[str, Exception],
    least: Mapping[str, int],
    now: datetime,
    columns: OutputColumns = columns_of_steps,
    found: Mapping[str, pa.Schema] = MappingProxyType({}),
) -> Opened:
    """Open a flow that is registered.

    known: outputs that are known to be away, and why; they are not tried. least: how far tables were in this run; one
    that is not as far is away. now: the present instant.

    Raises `OutputBelowSince`, `OutputBelowIncarnation`, `StartNotThere`, `StartChanged`, `TimestampsNotThere`,
    `TimestampsChanged`, `CodeChanged`, `StoreBehindTable`, `StoreBehindCompaction`, `HistoriesDiffer`, `LeaseLost`,
    `StoreReplaced`, `SourceColumnsRefused`, `SharedColumnsRefused`, `ColumnsRefused`, and what `Sink.open` raises of
    a table of others.
    """
    noted = store.noted
    loaded = store.load(flow.name)
    _recognise(flow, loaded, store, lease)
    loaded = concluded(flow, store, lease, loaded, away=known)
    replacing = under_way(flow, loaded)
    tables, away, going_on = _tables(flow, loaded, store, lease, known, least, replacing)
    # Ask after opening: an epoch is bound before a table holds it, whoever else is at work.
    bound = bound_at(store, flow.name, tables.values())
    for name, table in tables.items():
        check(store, flow, name, table, bound=bound)
        check_unseen(store, flow, name, table, loaded)
    kept = {name: one for name, one in tables.items() if name not in replacing}
    changed = changed_columns(flow, loaded, tables, columns)
    changed = changed.beside(found_columns(flow, loaded, kept, found, columns))
    after = changed.on(loaded)
    adding = evolving(flow, after, kept, columns)
    starts = settled(flow, loaded, store, lease, tables, now=now)
    # After the check: a table of another history is no witness. After the starts: a table is asked until it is seen.
    note_seen(store, lease, loaded, tables)
    there = {name: table.upper for name, table in tables.items()}
    failed = _failed(flow, loaded, there, store, lease)
    fence = fencing(flow, after, tables, columns)
    news = settled_codes(
        flow, loaded, store, lease, there, starts=starts, at=now, replacing=replacing, adding=adding, fence=fence
    )
    loaded = changed.recorded(loaded, store, lease)
    going_on -= begun_without(flow, loaded, changed, tables, going_on, store, lease)
    tables = {name: replaced(table, replacing.get(name)) for name, table in tables.items()}
    _tell_again(loaded, replacing.keys() & tables.keys(), store, lease)
    uppers = {
        name: first_given(loaded, flow.outputs[name], table.upper, starts, tables) for name, table in tables.items()
    }
    resume = as_of([loaded.flow.published, *uppers.values()], since=loaded.flow.since)
    taking = taking_from_tables(flow, loaded, tables, uppers, failed, starts)
    late = _late(flow, loaded, uppers, failed, taking)
    fills = _fills(flow, loaded, tables, uppers, late, going_on, starts, store, lease, replacing)
    outstanding = {}
    for name, table in tables.items():
        if (left := loaded.outputs[name].outstanding(table.upper)) is not None:
            outstanding[name] = left[0]
        elif loaded.outputs[name].failure is not None:  # the driver died between a commit and this
            store.clear_output_failure(lease, name)
    return Opened(
        spec=flow,
        tables=tables,
        away=away,
        timeline=_timeline(flow, loaded),
        uppers=uppers,
        late=late,
        fills=fills,
        taking=taking,
        starts=starts,
        replacing=replacing,
        old={name: there[name] for name in replacing.keys() & tables.keys()},
        filling=frozenset(fills.keys() | (away.keys() & loaded.backfills.keys())),
        held={name: loaded.outputs[name].held for name in flow.outputs},
        since=loaded.flow.since,
        resume=0 if resume is None else resume,
        published=loaded.flow.published,
        failed=failed,
        outstanding=outstanding,
        passed=passed(loaded),
        lacking=lacking(loaded),
        stalls=loaded.stalls,
        lossless=-1 if loaded.gaps else noted,
        decisions=loaded.decisions,
        news=(*changed.words, *news),
        passed_over=changed.passed_over,
        store=store,
        lease=lease,
    )


def _recognise(flow: FlowSpec, loaded: Loaded, store: Store, lease: Lease) -> None:
    """See that a store knows what this driver has registered: an older one may have been put in its place since."""
    gone = [*flow.sources.keys() - loaded.sources.keys(), *flow.outputs.keys() - loaded.outputs.keys()]
    if gone:
        lease.renew()  # whoever has it by now may have dropped an output
        names = ", ".join(map(repr, sorted(gone)))
        raise StoreReplaced(url=store.url, detail=f"it does not know {names}, which this process had registered")


def _tables(
    flow: FlowSpec,
    loaded: Loaded,
    store: Store,
    lease: Lease,
    known: Mapping[str, Exception],
    least: Mapping[str, int],
    replacing: Mapping[str, Replacement],
) -> tuple[dict[str, Table], dict[str, Exception], set[str]]:
    """Return the tables of the outputs that can be opened, why the others cannot be, and whose backfill goes on."""
    tables: dict[str, Table] = {}
    going_on: set[str] = set()
    away = dict(known)
    for name, plan in flow.outputs.items():
        if name in away:
            continue
        output = OutputId(flow.name, name, loaded.flow.incarnation)
        try:
            table = plan.sink.open(output)
            whole(table, output, plan.sink, held=loaded.outputs[name].held, least=least.get(name, 0))
            backfill = loaded.backfills.get(name)
            found = replacing.get(name)
            same = plan.past not in replacing  # else the units are of rows that the past may soon not have
            if backfill is not None and same and _goes_on(backfill, replaced(table, found), plan, loaded, found):
                going_on.add(name)
            elif backfill is not None:
                store.end_backfill(lease, name)
            if isinstance(table, Sweeping):  # before its upper counts: it may see what earlier drivers committed
                table.sweep(lease.renew)
        except (OSError, Transient) as error:
            away[name] = error
        else:
            tables[name] = table
    return tables, away, going_on


def _failed(
    flow: FlowSpec, loaded: Loaded, uppers: Mapping[str, int], store: Store, lease: Lease
) -> dict[str, Failure]:
    """Return the sources that have failed for good.

    A bad record that is collected by now is no failure any more, nor is one that a table has got past.
    """
    failed: dict[str, Failure] = {}
    collecting, past = flow.collecting, refuted(flow, loaded, uppers)
    for name in flow.sources:
        failure = loaded.sources[name].failure
        if failure is None:
            continue
        if name in past or (name in collecting and isinstance(failure[1], RecordUnparsable)):
            store.clear_failure(lease, name)
        else:
            failed[name] = Failure(name, None, *failure)
    return failed


def _timeline(flow: FlowSpec, loaded: Loaded) -> Timeline:
    return Timeline(
        {name: loaded.sources[name].table for name in flow.sources},
        upper=loaded.flow.upper,
        details={name: loaded.sources[name].details for name in flow.sources},
        schemas={name: loaded.sources[name].schema for name in flow.sources},
        identities={name: loaded.sources[name].identity for name in flow.sources},
        states={name: loaded.sources[name].state for name in flow.sources},
        incarnations={name: loaded.sources[name].incarnation for name in flow.sources},
        earlier={name: loaded.sources[name].earlier for name in flow.sources},
    )


def _late(
    flow: FlowSpec,
    loaded: Loaded,
    uppers: Mapping[str, int],
    failed: Mapping[str, Failure],
    taking: Collection[str],
) -> frozenset[str]:
    """Return the open outputs that lack published epochs, by the first epochs that they get.

    Of those that are neither paused nor wait for others none is late if all lack some: there is nobody to keep from
    waiting. From the epoch on at which its source has failed, an output lacks nothing. What a source pushes comes
    once for all its outputs, so none of them is late. taking: outputs that get what they lack from another's table,
    and are late until then in any case: what the timeline says of it may be of another upstream.
    """
    read = {name: flow.outputs[name].source for name in uppers}
    ends = {name: failure.epoch for name, failure in failed.items()}
    published = loaded.flow.published
    found = {
        name
        for name, upper in uppers.items()
        if not isinstance(flow.sources[read[name]], PushedSource)
        and held(loaded.sources[read[name]].table, upper) < min(published, ends.get(read[name], published))
    }
    here = {name: "live" if name in uppers and read[name] not in failed else "" for name in flow.outputs}
    here |= dict.fromkeys([*found, *taking, *loaded.decisions.paused], "")
    after = {name: plan.after for name, plan in flow.outputs.items()}
    paused = loaded.decisions.paused.keys() | waiting(after, here, late=found)
    nobody = found >= uppers.keys() - paused - set(taking)
    return frozenset((found & paused if nobody else found) | set(taking))


def _tell_again(loaded: Loaded, replacing: Collection[str], store: Store, lease: Lease) -> None:
    """Have the new rows' commits tell all losses, as the old ones' did, which may be cleared away."""
    for name in replacing if loaded.gaps else ():
        store.record_told(lease, name, 0)


def _goes_on(
    backfill: Backfill, table: Table, plan: OutputPlan, loaded: Loaded, replacement: Replacement | None
) -> bool:
    """Whether a table is still to be filled, by its present steps and source, and has its staged files."""
    source, planned, output = loaded.sources[plan.source], backfill.plan, loaded.outputs[plan.name]
    first = begins(output.begins, since=loaded.flow.since, folded=source.folded)
    steps = steps_of(plan, source.incarnation, edition=_edition(replacement), columns=source.columns_since)
    same = (planned.start, planned.steps) == (first, steps) and stays(plan, output)
    left = backfill.units or held(source.table, planned.start) <= planned.cutover
    if source.failure is not None and Fill.of(backfill).straddles(source.failure[0]):
        return False  # one unit has rows that would be shown and rows that must not be
    return bool(not table.upper and same and left and isinstance(table, Keeping) and table.keep(files_of(backfill)))


def _fills(
    flow: FlowSpec,
    loaded: Loaded,
    tables: Mapping[str, Table],
    uppers: Mapping[str, int],
    late: Collection[str],
    going_on: Collection[str],
    starts: Mapping[str, StartRecord],
    store: Store,
    lease: Lease,
    replacing: Mapping[str, Replacement],
) -> dict[str, Fill]:
    """Return the fills of tables that hold nothing: those with a plan that goes on, and late ones, which get one.

    So do others whose past has one epoch, if there is any past: a plan for nothing would end with the first record
    only, and hold back compaction until then. So do those that are to take another's place, and with nothing, too. A
    table that cannot keep its staged files shows its epochs as it gets them.
    """
    found: dict[str, Fill] = {}
    for name, table in tables.items():
        plan, stamp = flow.outputs[name], _moving(starts.get(name), uppers[name])
        some = held(loaded.sources[plan.source].table, uppers[name]) < loaded.flow.upper
        wanted = name in late or name in going_on or name in replacing or (stamp and some)
        if table.upper or not isinstance(table, Keeping) or not wanted:
            continue
        source = loaded.sources[plan.source]
        edition = _edition(replacing.get(name))
        steps = steps_of(plan, source.incarnation, edition=edition, columns=source.columns_since)
        made = store.begin_backfill(lease, name, start=uppers[name], steps=steps, mode=plan.stamps.mode)
        found[name] = Fill.of(made, stamp=stamp)
    return found


def _moving(start: StartRecord | None, first: int) -> int:
    """Return the epoch that all rows of earlier ones have, 0 where the first one that is given is not earlier."""
    return start.stamp if start is not None and first < start.stamp else 0


def _edition(replacement: Replacement | None) -> str:
    return "" if replacement is None else replacement.edition
