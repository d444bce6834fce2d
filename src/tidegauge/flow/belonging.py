"""Whether a store and a table have one history: the same epochs, and in each of them the same bindings.

Invariant: a table is believed only when its upper is bound, and its digest is the store's for the epochs before it. A
table that a version without digests has written last is believed as far as its upper is; so is an epoch that such a
version has bound.

The store is asked after the table was opened: an epoch is bound before a table holds it, so a driver that goes on
meanwhile is no contradiction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tidegauge.errors.base import Transient
from tidegauge.errors.history import DamagedHistory, HistoriesDiffer, StoreBehindTable, other_way
from tidegauge.flow.seen import table_of
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.history import Link, agree
from tidegauge.remap.rebuilding import pooled, way_to
from tidegauge.remap.store import Loaded, Store
from tidegauge.sinks.mending import REPAIRABLE, Mendable
from tidegauge.sinks.protocol import OutputId

__all__ = ["Witness", "agreed", "bound_at", "check", "check_all"]


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


def _witness(flow: FlowSpec, output: str, loaded: Loaded) -> Witness:
    try:
        return table_of(flow, output, loaded)
    except REPAIRABLE:
        sink = flow.outputs[output].sink
        if not isinstance(sink, Mendable):
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
    other = other_way(output, parted, mendable=isinstance(flow.outputs[output].sink, Mendable))
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
