"""Looking at a flow from outside, whether it runs or not: its state, its timeline, the content of an epoch.

Everything here comes from durable state (the store, the tables) and from asking the sources themselves.

Invariants. Nothing is changed. States and words are those of the running flow. Rows are counted by the epochs that
they carry, wherever others have moved them within the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from tidegauge.backfill.order import waiting
from tidegauge.backfill.plan import Fill
from tidegauge.backfill.progress import progress
from tidegauge.env import Env
from tidegauge.errors.base import Definite, TidegaugeError, Transient
from tidegauge.errors.command import EpochNotBound, FlowNeverRan
from tidegauge.errors.running import SourceUnreachable
from tidegauge.errors.sinks import OutputIsNoTable, TableUnavailable
from tidegauge.flow.belonging import bound_at, check, check_unseen, table_of
from tidegauge.flow.replacing import made, under_way
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.job.durable import left_behind
from tidegauge.lazy import library
from tidegauge.looking.owners import SharedWith
from tidegauge.looking.reports import EpochReport, Epochs, FlowReport, OutputReport, SliceReport, SourceReport
from tidegauge.looking.retained import retained
from tidegauge.objects.reading import readable
from tidegauge.reclock.slices import begins, held
from tidegauge.remap.binding import Observation, Slice
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.mint import checked_observation
from tidegauge.remap.store import Loaded, LoadedSource, Pause, Stall, Store, shown
from tidegauge.sinks.location import at
from tidegauge.sinks.protocol import Table
from tidegauge.sinks.vectors import deleted, places_of
from tidegauge.sources.abilities import Acknowledged, from_time_of
from tidegauge.sources.protocol import Source

if TYPE_CHECKING:
    from tidegauge.flow.board import OutputCondition, SourceCondition

__all__ = ["epochs", "explain", "holds", "observed", "opened", "outputs", "rows_of", "slice_report", "status"]

pc: Final = library("pyarrow.compute")
pq: Final = library("pyarrow.parquet")

Reported = TypeVar("Reported", SourceReport, OutputReport)


def rows_of(table: Table, epoch: int, *, since: int = 0) -> int:
    """Return how many rows of an epoch a table holds; those of all epochs up to `since` count as of that one.

    Reads the column `_epoch` of the files that hold some of them and some of others.
    """
    count, first = 0, 0 if epoch == since else epoch
    for file in table.files():
        if first <= file.first_epoch and file.last_epoch <= epoch:
            count += file.rows
        elif file.first_epoch <= epoch and first <= file.last_epoch:
            [path] = table.uris([file])
            rows = pq.read_table(readable(at(path)), columns=["_epoch"], partitioning=None)
            left = places_of(deleted(file.deletions), 0, rows.num_rows)
            column = (rows if left is None else rows.filter(left)).column("_epoch")
            there = pc.and_(pc.greater_equal(column, first), pc.less_equal(column, epoch))
            count += pc.sum(there).as_py() or 0
    return count


@contextmanager
def opened(flow: FlowSpec, env: Env) -> Iterator[Store]:
    """Open the flow's store for reading. Raises `FlowNeverRan`."""
    if env.connect is None and not Store.exists(flow.store):  # looking makes nothing
        raise FlowNeverRan(flow=flow.name, store=shown(flow.store))
    store = Store.open(flow.store, env=env)
    try:
        if store.flow(flow.name) is None:
            raise FlowNeverRan(flow=flow.name, store=store.url)
        yield store
    finally:
        store.close()


def holds(loaded: Loaded, source: str, upper: int) -> int:
    """Return the first epoch that an output lacks that stands at `upper`, given the source that it reads.

    Epochs without records of the source are held without a commit. From the epoch at which its source has failed
    on, an output holds nothing. Only an output that holds some epochs can lack compacted ones, or those of an
    incarnation that is over.
    """
    found = loaded.sources[source]
    begin = begins(upper, since=loaded.flow.since, folded=found.folded)
    first = upper if begin is None else held(found.table, begin)
    ends = [piece.epoch for piece in left_behind(loaded, source, upper)]
    return min([first, *ends] if found.failure is None else [first, *ends, found.failure[0]])


def status(flow: Flow, *, env: Env | None = None) -> FlowReport:
    """Return where a flow stands, asking the sources how far upstream is. Raises `FlowNeverRan`."""
    spec = flow.spec
    env = env or Env()
    with opened(spec, env) as store:
        loaded = store.load(spec.name)
        holder, silent = store.holder(spec.name), store.silent(spec.name)
        waits = {(s.kind, s.name): s for s in loaded.stalls} if holder or silent else {}
        holds = tuple(store.holds(spec.name))
        owner = SharedWith.of(spec, store)
        newest = store.epochs(spec.name, limit=1)
        found = _outputs(
            spec, loaded, store, {name: stall for (kind, name), stall in waits.items() if kind == "output"}
        )
    return FlowReport(
        name=spec.name,
        store=store.url,
        running=holder,
        upper=loaded.flow.upper,
        published=loaded.flow.published,
        minted_at=newest[0].minted_at if newest else None,
        sources=tuple(
            _stalled(_source(spec, name, loaded, env, driven=bool(holder), owner=owner), waits.get(("source", name)))
            for name in spec.sources
        ),
        outputs=found,
        since=loaded.flow.since,
        holds=holds,
        silent=silent,
    )


def outputs(flow: Flow, *, env: Env | None = None) -> tuple[OutputReport, ...]:
    """Return where the outputs of a flow stand, without asking the sources. Raises `FlowNeverRan`."""
    spec = flow.spec
    with opened(spec, env or Env()) as store:
        loaded = store.load(spec.name)
        driven = store.holder(spec.name) or store.silent(spec.name)
        stalls = {stall.name: stall for stall in loaded.stalls if driven and stall.kind == "output"}
        return _outputs(spec, loaded, store, stalls)


def _outputs(flow: FlowSpec, loaded: Loaded, store: Store, stalls: Mapping[str, Stall]) -> tuple[OutputReport, ...]:
    tables = {name: _table(flow, name, loaded) for name in flow.outputs}
    there = [table for table in tables.values() if table is not None and not isinstance(table, Exception)]
    bound = bound_at(store, flow.name, there)  # after opening: an epoch is bound before a table holds it
    return _ordered(
        flow,
        loaded,
        [
            _stalled(_paused(_output(flow, name, loaded, table, store, bound), loaded), stalls.get(name))
            for name, table in tables.items()
        ],
    )


def _ordered(flow: FlowSpec, loaded: Loaded, found: Sequence[OutputReport]) -> tuple[OutputReport, ...]:
    """Return reports with what the outputs wait for by their order."""
    after = {name: plan.after for name, plan in flow.outputs.items() if plan.after}
    late = {one.name for one in found if one.upper < loaded.flow.published}
    waits = waiting(after, {one.name: one.state for one in found}, late=late)
    return tuple(
        replace(_with_pauses(one, Pause(one.name, "order", None)), waits_for=waits[one.name])
        if one.name in waits
        else one
        for one in found
    )


def _paused(report: OutputReport, loaded: Loaded) -> OutputReport:
    """Return a report with the reasons to pause its output."""
    decided = (pause for pause in loaded.decisions.pauses if pause.reason != "add")
    pauses = tuple(pause for pause in decided if pause.output == report.name)
    if loaded.decisions.rate == 0 and report.upper < loaded.flow.published:
        pauses = (*pauses, Pause(report.name, "rate", None))
    return _with_pauses(report, *pauses)


def _with_pauses(report: OutputReport, *pauses: Pause) -> OutputReport:
    """Return a report with more reasons to pause its output."""
    paused = (*report.paused, *pauses)
    state = "paused" if paused and report.error is None else report.state
    return replace(report, state=state, paused=paused)


def _stalled(report: Reported, stall: Stall | None) -> Reported:
    """Return a report with what the driver says: it may wait for what can be reached from here."""
    if stall is None or report.state in ("failed", "sealed", "paused"):
        return report
    return replace(report, state="stalled", error=report.error or stall.error, since=stall.since)


def _source(
    flow: FlowSpec, name: str, loaded: Loaded, env: Env, *, driven: bool, owner: SharedWith | None
) -> SourceReport:
    source = flow.sources[name]
    if name not in loaded.sources:  # new in the flow, which has not run since
        return SourceReport(name, "starting", source.unit, 0, 0, 0, 0, "", None)
    found = loaded.sources[name]
    bound = found.table.frontier
    upper = loaded.flow.published if found.failure is None else min(loaded.flow.published, found.failure[0])
    end, note, error = bound, "", None if found.failure is None else found.failure[1]
    healthy: SourceCondition = "running" if driven else "idle"
    state: SourceCondition = "failed" if error is not None else "sealed" if bound.sealed else healthy
    if owner is not None:
        if state == healthy:
            end, note = owner.says(name, bound)
    elif state == healthy:
        try:
            seen = observed(flow, name, loaded, env)
        except TidegaugeError as raised:
            state, error = ("failed" if isinstance(raised, Definite) else "stalled"), raised
        except OSError as raised:
            state, error = "stalled", SourceUnreachable(source=name, error=type(raised).__name__, detail=str(raised))
        else:
            end, note = (
                seen.end,
                "; ".join(filter(None, [seen.note, _untold(source, found.table.inverse(upper))])),
            )
            state = "starting" if not bound and not end else state
    kept, unknown = retained(source) if owner is None else (None, "")
    return SourceReport(
        name=name,
        state=state,
        unit=source.unit,
        partitions=len(bound),
        bound=sum(bound.values()),
        published=sum(found.table.inverse(upper).values()),
        end=sum(end.values()),
        note="; ".join(filter(None, [note, unknown])),
        error=error,
        required=name in flow.required,
        incarnation=found.incarnation,
        lost=sum(gap.size for gap in loaded.gaps if gap.source == name),
        held_back=None if kept is None else kept.size,
        held_back_limit=None if kept is None else kept.limit,
        ending=kept is not None and kept.ending,
    )


def observed(flow: FlowSpec, name: str, loaded: Loaded, env: Env) -> Observation:
    """Return what upstream of a source says of itself now, as the flow would see it. Raises as a tick does."""
    source, bound = flow.sources[name], loaded.sources[name].bound
    return checked_observation(name, from_time_of(source), bound, source.probe(bound, now=env.now()))


def _untold(source: Source, frontier: Frontier) -> str:
    """Return which published positions upstream was not told of, if the source can say that."""
    return source.unacknowledged(frontier) if isinstance(source, Acknowledged) else ""


def _table(flow: FlowSpec, name: str, loaded: Loaded) -> Table | TidegaugeError | OSError | None:
    """Open an output's table; or return why it cannot be. None for one that is new in the flow, which has not run."""
    if name not in loaded.outputs or flow.outputs[name].source not in loaded.sources:
        return None
    try:
        return table_of(flow, name, loaded)
    except (TidegaugeError, OSError) as refused:  # one table that cannot be read does not hide the others
        return refused


def _output(
    flow: FlowSpec,
    name: str,
    loaded: Loaded,
    table: Table | TidegaugeError | OSError | None,
    store: Store,
    bound: Mapping[int, str],
) -> OutputReport:
    plan = flow.outputs[name]
    published = loaded.flow.published
    if table is None:
        return OutputReport(name, plan.source, "planned", 0, loaded.flow.upper, 0, 0, 0, None)
    try:
        if isinstance(table, TidegaugeError | OSError):
            raise table
        check(store, flow, name, table, bound=bound)
        check_unseen(store, flow, name, table, loaded)
        volume = table.volume()
    except OSError as away:
        error = TableUnavailable(table=plan.sink.identity, detail=str(away))
        return OutputReport(name, plan.source, "stalled", 0, loaded.flow.upper, 0, 0, 0, error)
    except TidegaugeError as refused:
        state: OutputCondition = "stalled" if isinstance(refused, Transient) else "failed"
        return OutputReport(name, plan.source, state, 0, loaded.flow.upper, 0, 0, 0, refused)
    failure = loaded.sources[plan.source].failure or loaded.outputs[name].outstanding(table.upper)
    upper = holds(loaded, plan.source, loaded.outputs[name].reached(table.upper))
    replacing = name in under_way(flow, loaded) and not made(table, loaded.decisions.replacements[name])
    backfill = loaded.backfills.get(name) if replacing or not table.upper else None
    past: OutputCondition = "catching_up" if backfill is None else "backfilling"
    return OutputReport(
        name=name,
        source=plan.source,
        state="failed" if failure is not None else past if replacing or upper < published else "live",
        upper=upper,
        lag=max(0, loaded.flow.upper - upper),
        rows=volume.rows,
        bytes=volume.bytes,
        files=volume.files,
        filled=None if backfill is None else progress(Fill.of(backfill), loaded.sources[plan.source].table),
        replacing=replacing,
        error=None if failure is None else failure[1],
        start=loaded.outputs[name].start,
        coded_at=tuple(one.epoch for one in loaded.outputs[name].codes[1:]),
    )


def epochs(flow: Flow, *, first: int | None = None, last: int | None = None, limit: int | None = None) -> Epochs:
    """Return epochs in order, each with how many positions of each source it binds. Raises `FlowNeverRan`.

    The epochs that were compacted away are left out; the first one left has all that they had.
    """
    spec = flow.spec
    with opened(spec, Env()) as store:
        loaded = store.load(spec.name)
        first = max(loaded.flow.since, first or 0)
        newest = loaded.flow.upper - 1  # a driver may mint more at any instant
        last = newest if last is None else min(last, newest)
        records = store.epochs(spec.name, first=first, last=last, limit=limit)
    if not records:
        return Epochs()
    sizes: dict[int, dict[str, int]] = {record.epoch: {} for record in records}
    for name, source in loaded.sources.items():
        for piece in source.slices(records[0].epoch, records[-1].epoch + 1):
            sizes[piece.epoch][name] = sizes[piece.epoch].get(name, 0) + piece.size
    return Epochs((record, sizes[record.epoch]) for record in records)


def explain(flow: Flow, epoch: int) -> EpochReport:
    """Return the content of an epoch, where it came from and where it went.

    The first epoch after a compaction has all that was bound up to it. Raises `EpochNotBound` for one never minted,
    and `EpochBelowSince` for one that was compacted away.
    """
    spec = flow.spec
    with opened(spec, Env()) as store:
        loaded = store.load(spec.name)
        records = store.epochs(spec.name, first=epoch, last=epoch)
    if not records or epoch >= loaded.flow.upper:  # a driver may have minted it since
        raise EpochNotBound(epoch=epoch, flow=spec.name, upper=loaded.flow.upper)
    slices = [
        slice_report(spec, source, piece)
        for source in loaded.sources.values()
        for piece in source.slices(epoch, epoch + 1)
    ]
    since = loaded.flow.since
    lost = tuple(gap for gap in loaded.gaps if max(gap.epoch, since) == epoch)
    rows = {}
    for name in spec.outputs:
        with suppress(OutputIsNoTable):  # it does not know which rows it was given
            rows[name] = rows_of(table_of(spec, name, loaded), epoch, since=since)
    return EpochReport(epoch, records[0].minted_at, records[0].published_at, tuple(slices), rows, lost)


def slice_report(flow: FlowSpec, found: LoadedSource, piece: Slice) -> SliceReport:
    """Return a range of a source with the known facts of its partition."""
    return SliceReport(
        source=piece.source,
        partition=piece.partition,
        lower=piece.lower,
        upper=piece.upper,
        unit=flow.unit_of(piece.source),
        detail=found.details.get(piece.partition, {}),
    )
