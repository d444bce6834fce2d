"""Whether a table is this flow's: as far as the store has seen it, and of one history with the store.

*As far as it was seen.* A table alone says how far it is. If nothing of it is there, as when its disk is not mounted,
it looks like a table that is yet to be made. So the store keeps how far a table was seen to be: when a flow is
opened, and right after the first commit. A table that was seen to hold epochs and is empty is away (`TableWentBack`)
at every opening; nothing is written in its place until somebody asks for it to be rewritten (`tidegauge repair OUTPUT
--from 0`).

*Of one history*: the same epochs, and in each of them the same bindings. The store is asked after the table was
opened: an epoch is bound before a table holds it, so a driver that goes on meanwhile is no contradiction.

Invariants. The table really held what the store remembers; a driver that dies between a first commit and the record
leaves a table without one, and the next opening of the flow records it. A table is believed only when its upper is
bound, and its digest is the store's for the epochs before it. A table that a version without digests has written last
is believed as far as its upper is; so is an epoch that such a version has bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from tidegauge.errors.base import Transient
from tidegauge.errors.history import (
    DamagedHistory,
    HistoriesDiffer,
    StoreBehindCompaction,
    StoreBehindTable,
    other_way,
)
from tidegauge.errors.sinks import TableWentBack
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.history import Link, agree
from tidegauge.remap.rebuilding import pooled, way_to
from tidegauge.remap.store import Lease, Loaded, Store
from tidegauge.sinks.mending import REPAIRABLE, mendable
from tidegauge.sinks.protocol import OutputId, Sink, Table

__all__ = [
    "Measured",
    "SeenTables",
    "Witness",
    "agreed",
    "bound_at",
    "check",
    "check_all",
    "check_since",
    "check_unseen",
    "note_seen",
    "present",
    "refuted",
    "table_of",
    "whole",
]


class SeenTables:
    """Notes of each output its first commit. empty: the outputs without one."""

    def __init__(self, store: Store, lease: Lease, *, empty: Iterable[str]) -> None:
        self._store: Final = store
        self._lease: Final = lease
        self._empty: Final = set(empty)

    def passed(self, output: str, upper: int) -> None:
        """Note that an output's table holds every epoch before `upper`. Costs nothing but after a first commit."""
        if output in self._empty:
            self._store.record_held(self._lease, {output: upper})
            self._empty.remove(output)


def note_seen(store: Store, lease: Lease, loaded: Loaded, tables: Mapping[str, Table]) -> None:
    """Record how far tables are, unless recorded already."""
    seen = {name: table.upper for name, table in tables.items() if table.upper not in (0, loaded.outputs[name].held)}
    if seen:
        store.record_held(lease, seen)


def table_of(flow: FlowSpec, output: str, loaded: Loaded) -> Table:
    """Open an output's table. Raises `UnknownName`, `TableWentBack` for one that is away, and as `Sink.open`."""
    sink, known = flow.output(output).sink, loaded.outputs.get(output)
    owner = OutputId(flow.name, output, loaded.flow.incarnation)
    table = sink.open(owner)
    whole(table, owner, sink, held=0 if known is None else known.held)
    return table


def present(flow: FlowSpec, incarnation: str, output: str) -> Table:
    """Open an output's table to read it, beside its writer."""
    return flow.outputs[output].sink.open(OutputId(flow.name, output, incarnation))


def check_unseen(store: Store, flow: FlowSpec, output: str, table: Witness, loaded: Loaded) -> None:
    """Raise as `check_since` does for a table that the store has not seen; what it has seen, it is not older than."""
    if table.upper and not loaded.outputs[output].held:
        check_since(store, flow, output, table, loaded)


def check_since(store: Store, flow: FlowSpec, output: str, table: Witness, loaded: Loaded) -> None:
    """Raise `StoreBehindCompaction` for a table that has epochs as one which the store tells apart.

    A table whose history cannot be read is believed, as far as its digest is the store's.
    """
    told = list[Link]()
    with suppress(DamagedHistory):
        told = [link for link in table.links() if link.since > loaded.flow.since]
    bound = store.digests(flow.name, sorted({link.epoch + 1 for link in told}))
    since = max((link.since for link in told if bound.get(link.epoch + 1) == link.digest), default=0)
    if since:
        raise StoreBehindCompaction(flow=flow.name, output=output, table=since, store=loaded.flow.since)


def refuted(flow: FlowSpec, loaded: Loaded, uppers: Mapping[str, int]) -> list[str]:
    """Return the failed sources that went on: a table holds the epoch at which they failed, by the uppers of tables.

    Somebody had let them, and the store was put back to before that.
    """
    failed = {name: source.failure[0] for name, source in loaded.sources.items() if source.failure is not None}
    read = [(flow.outputs[name].source, upper) for name, upper in uppers.items()]
    return sorted({source for source, upper in read if source in failed and upper > failed[source]})


class Measured(Protocol):
    """What says how far a table is."""

    @property
    def upper(self) -> int: ...  # noqa: D102


def whole(table: Measured, output: OutputId, sink: Sink, *, held: int, least: int = 0) -> None:
    """Raise `TableWentBack` for a table that is not as far as it was.

    held: how far it was seen to be in earlier runs; if somebody has put back an older state of it since, the run goes
    on from there. least: how far it was in this run.
    """
    if table.upper < least or (held and not table.upper):
        raise TableWentBack(table=sink.identity, output=str(output), expected=max(least, held), actual=table.upper)


def check_all(flow: FlowSpec, store: Store, loaded: Loaded) -> None:
    """Raise what a run would, unless the store and the tables of all outputs that have run have one history.

    For what changes a store by hand: in one that is older than its tables, epochs have another meaning than there.
    A table that is away at present is left out, as by a run; one that others have damaged has its history still.
    """
    for name in flow.outputs:
        if name in loaded.outputs:
            try:
                table = _witness(flow, name, loaded)
            except (OSError, Transient):
                continue
            check(store, flow, name, table)
            check_unseen(store, flow, name, table, loaded)


def _witness(flow: FlowSpec, output: str, loaded: Loaded) -> Witness:
    try:
        return table_of(flow, output, loaded)
    except REPAIRABLE:
        if (sink := mendable(flow.outputs[output].sink)) is None:
            raise
        return sink.mend(OutputId(flow.name, output, loaded.flow.incarnation))


class Witness(Protocol):
    """What a table says of the flow's history."""

    @property
    def upper(self) -> int: ...  # noqa: D102
    @property
    def digest(self) -> str | None: ...  # noqa: D102
    def links(self) -> list[Link]: ...  # noqa: D102


def bound_at(store: Store, flow: str, tables: Iterable[Witness]) -> Mapping[int, str]:
    """Return what the store has bound before the uppers of tables, which were opened before, for `check`."""
    return store.digests(flow, sorted({table.upper for table in tables}))


def check(
    store: Store, flow: FlowSpec, output: str, table: Witness, *, bound: Mapping[int, str] | None = None
) -> None:
    """Raise `StoreBehindTable` or `HistoriesDiffer` unless the store and an output's table have one history.

    bound: what `bound_at` has found of this table and others; it is asked of the store where it is not given.
    """
    upper, kept = table.upper, table.digest
    bound = bound_at(store, flow.name, [table]) if bound is None else bound
    if upper in bound and (kept is None or not bound[upper] or agree(kept, bound[upper])):
        return
    found = store.flow(flow.name)
    known, parted = 0 if found is None else found.upper, agreed(store, flow.name, table)
    other = other_way(output, parted, mendable=mendable(flow.outputs[output].sink) is not None)
    error = HistoriesDiffer if upper in bound else StoreBehindTable
    raise error(flow=flow.name, output=output, store=known, table=upper, parted=parted, other=other)


def agreed(store: Store, flow: str, table: Witness) -> int:
    """Return the epoch before which a table and the store have one history, as far as it can be proven; 0 if at all.

    The links that lead to the table's digest are followed back to the first that the store has, too.
    """
    upper, kept = table.upper, table.digest
    if kept is None:  # a version without digests has written it
        found = store.flow(flow)
        return 0 if found is None else min(upper, found.upper)
    try:
        links = table.links()
    except DamagedHistory:
        return 0
    way = way_to(pooled(links), upper, kept, stored=store.known_digests(flow), origin="")
    return 0 if way is None or way.since is not None else way.cut
