"""Recovering a store that is lost, or older than its tables, from what the tables keep of the flow's history.

The timeline is rebuilt up to the greatest upper that a table has: one table, or the store, fills in what another
lacks. The next run goes on from there, without a gap or a double: each output gets the epochs that it lacks, with
their bindings, and then new ones. Epochs that were bound and are in no table are bound again. Nobody has seen rows of
them; but where outputs had failed, such epochs were published for the others, which had nothing in them, and may get
rows in them now.

Invariant: nothing is changed unless all of it is proven (`remap.rebuilding`), and the outputs' tables are not changed
at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from tidegauge.env import Env
from tidegauge.errors.command import PassedOver
from tidegauge.errors.history import (
    HistoriesDiffer,
    NothingToRecoverFrom,
    StoreBehindTable,
    TablesDisagree,
    TablesOfSeveralStores,
    TimelineLost,
)
from tidegauge.flow.belonging import check, refuted
from tidegauge.flow.following import hold
from tidegauge.flow.registering import register
from tidegauge.flow.spec import Flow, FlowSpec
from tidegauge.flow.starting import told
from tidegauge.remap.history import Missed, agree, origin
from tidegauge.remap.rebuilding import Pool, Way, gaps_on, pooled, since_on, way_to
from tidegauge.remap.store import LeaseHolder, Loaded, Rebuilt, Store
from tidegauge.sinks.protocol import OutputId, Recoverable, Sweeping, Table

__all__ = ["Recovered", "recover"]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery came to: the epochs before `upper` are bound, as the tables hold them.

    changed: whether anything had to be done for it. kept: the epochs before it are the store's own. since: those
    before it can no longer be told apart. outputs: the first epoch that each table lacks. lacking: what could not be
    had, for people. gaps: how many of the losses that the flow knows now the tables have told; where nothing else was
    to be done, how many the store did not know.
    """

    flow: str
    incarnation: str
    upper: int
    kept: int
    since: int
    outputs: Mapping[str, int]
    lacking: tuple[str, ...] = ()

    changed: bool = True
    gaps: int = 0


def recover(flow: Flow, *, env: Env | None = None) -> Recovered:
    """Rebuild the timeline in the flow's store from its tables; see the module.

    Where store and tables have one history nothing is changed. Takes the flow's lease: raises `FlowAlreadyRunning`.
    Raises `NothingToRecoverFrom`, `TablesOfSeveralStores`, `TablesDisagree`, `TimelineLost`, and what `Sink.open`
    raises.
    """
    spec = flow.spec
    env = env or Env()
    incarnation, written = _written(spec)
    with ExitStack() as opened, ExitStack() as leased:
        store = Store.open(spec.store, env=env)
        opened.callback(store.close)
        lease = store.acquire(spec.name, holder=LeaseHolder.current(env))
        leased.callback(lease.release)
        register(spec, store, lease)
        tables = {name: spec.outputs[name].sink.open(OutputId(spec.name, name, incarnation)) for name in written}
        for table in tables.values():  # a driver of the lost store may live still, and commit until it is shut out
            if isinstance(table, Sweeping):
                table.sweep(lease.renew)
        uppers = {name: table.upper for name, table in tables.items()}
        own = lease.incarnation == incarnation
        pool = pooled(link for table in tables.values() for link in table.links())
        stored = store.known_digests(spec.name) if own else {}
        loaded = store.load(spec.name)
        for name in refuted(spec, loaded, uppers) if own else ():
            store.clear_failure(lease, name)
        if own and _one_history(store, spec, tables):
            found = loaded.flow
            there = Way(found.upper, ())
            gaps = gaps_on(there, pool, found.upper, stored=stored)
            back = store.bring_back(lease, gaps)
            for name in _passed_over(loaded, gaps):
                store.clear_failure(lease, name)
            upper, since = found.upper, max(found.since, since_on(there, pool, found.upper, stored=stored))
            changed, let_go = back > 0 or since > found.since, list(_let_go(store, spec.name, since))
            if since > found.since:
                store.bring_back_since(lease, since)
            return Recovered(
                spec.name, incarnation, upper, upper, since, uppers, tuple(let_go), changed=changed, gaps=back
            )
        way = _way(spec.name, incarnation, tables, pool, stored)
        upper, least = max(uppers.values()), min(uppers.get(name, 0) for name in spec.outputs)
        away = [name for name, known in loaded.outputs.items() if known.held and name not in uppers]
        gaps = gaps_on(way, pool, upper, stored=stored)
        for name in _passed_over(loaded, gaps) if own else ():
            store.clear_failure(lease, name)
        starts = {name: start for name, table in tables.items() if (start := told(name, table.links())) is not None}
        merged = since_on(way, pool, upper, stored=stored)
        rebuilt = Rebuilt(
            way=way,
            incarnation=incarnation,
            upper=upper,
            published=max(least, merged + 1 if merged else 0),
            held=uppers,
            gaps=gaps,
            starts=starts,
            since=merged,
        )
        since = max(merged, way.since if way.since is not None else loaded.flow.since if way.cut else 0)
        let_go = list(_let_go(store, spec.name, since))
        store.restore(lease, rebuilt)
        leased.pop_all()  # the lease has ended with it
    if spec.following is not None:  # the hold is lost with its store
        with closing(Store.open(spec.store, env=env)) as anew:
            hold(spec, anew, least)
    lacking = (*_lacking(way, upper, away, own=own), *let_go)
    lost = sum(map(len, gaps.values()))
    return Recovered(spec.name, incarnation, upper, way.cut, since, uppers, lacking, gaps=lost)


def _let_go(store: Store, flow: str, since: int) -> Iterator[str]:
    """Yield, for people, who holds an epoch in the store that counts as one with others."""
    for held in store.holds(flow):
        if held.epoch < since:
            yield f"the hold of {held.owner!r} on epoch {held.epoch}: the epochs before {since} count as one"


def _passed_over(loaded: Loaded, gaps: Mapping[str, Sequence[Missed]]) -> list[str]:
    """Return the failed sources that somebody let go on past the records at which they failed, as the tables tell."""
    failed = {name: source.failure[0] for name, source in loaded.sources.items() if source.failure is not None}
    return [
        name
        for name, epoch in failed.items()
        if any(gap.epoch == epoch and gap.code == PassedOver.code for gap in gaps.get(name, ()))
    ]


def _written(flow: FlowSpec) -> tuple[str, list[str]]:
    """Return the incarnation of the store that the tables were written with, and the outputs that have tables."""
    sinks = {name: plan.sink for name, plan in flow.outputs.items()}
    found = {
        name: sink.incarnation(flow.name, name) if isinstance(sink, Recoverable) else None
        for name, sink in sinks.items()
    }
    written = {name: incarnation for name, incarnation in found.items() if incarnation is not None}
    if not written:
        raise NothingToRecoverFrom(flow=flow.name)
    if len(set(written.values())) > 1:
        told = ", ".join(f"{name!r} with {incarnation}" for name, incarnation in written.items())
        raise TablesOfSeveralStores(flow=flow.name, found=told)
    return next(iter(written.values())), list(written)


def _one_history(store: Store, flow: FlowSpec, tables: Mapping[str, Table]) -> bool:
    try:
        for name, table in tables.items():
            check(store, flow, name, table)
    except (StoreBehindTable, HistoriesDiffer):
        return False
    return True


def _way(flow: str, incarnation: str, tables: Mapping[str, Table], pool: Pool, stored: Mapping[int, str]) -> Way:
    """Return the way to the furthest table, on which all others are. Raises `TimelineLost`, `TablesDisagree`."""
    furthest = max(tables, key=lambda name: (tables[name].upper, tables[name].digest is not None))
    upper, kept = tables[furthest].upper, tables[furthest].digest or ""
    way = way_to(pool, upper, kept, stored=stored, origin=origin(incarnation))
    if way is None:
        raise TimelineLost(flow=flow, output=furthest, upper=upper, epoch=_missing(pool, upper))
    for name, table in tables.items():
        digest = way.digest_before(table.upper, stored)
        if table.digest is not None and digest and not agree(table.digest, digest):
            raise TablesDisagree(flow=flow, output=name, upper=table.upper, others=repr(furthest))
    return way


def _missing(pool: Pool, upper: int) -> int:
    """Return the last unknown epoch before `upper`."""
    return next((epoch for epoch in range(upper - 1, -1, -1) if not pool.get(epoch)), upper - 1)


def _lacking(way: Way, upper: int, away: Iterable[str], *, own: bool) -> Iterator[str]:
    for name in away:
        yield f"what the table of output {name} alone holds: nothing of it is there now"
    if way.since:
        yield f"the epochs before {way.since} can no longer be told apart: no table has what each of them bound"
    yield "the gaps that were noted after the last commit of every table"
    if not own:
        yield "the holds and the failures that the lost store knew"
        yield "the replacements of tables that were not over, and which code had made the rows"
    yield f"what was bound from epoch {upper} on, and is in no table: it is bound anew, also where it was published"
