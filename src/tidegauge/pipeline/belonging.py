"""Whether a store and a table have one history: the same epochs, and in each of them the same bindings.

Invariant: a table is believed only when its upper is bound, and its digest is the store's for the epochs before it. A
table that a version without digests has written last is believed as far as its upper is; so is an epoch that such a
version has bound.

The store is asked after the table was opened: an epoch is bound before a table holds it, so a driver that goes on
meanwhile is no contradiction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegauge.errors.base import Transient
from tidegauge.errors.history import HistoriesDiffer, StoreBehindTable
from tidegauge.remap.history import agree
from tidegauge.remap.store import Loaded, Store
from tidegauge.sinks.protocol import OutputId, Table

if TYPE_CHECKING:
    from tidegauge.pipeline.flow import Dataflow

__all__ = ["check", "check_all"]


def check_all(flow: Dataflow, store: Store, loaded: Loaded) -> None:
    """Raise what a run would, unless the store and the tables of all outputs that have run have one history.

    For what changes a store by hand: in one that is older than its tables, epochs have another meaning than there.
    A table that is away at present is left out, as by a run.
    """
    for name, plan in flow.outputs.items():
        if name in loaded.outputs:
            try:
                table = plan.sink.open(OutputId(flow.name, name, loaded.flow.incarnation))
            except (OSError, Transient):
                continue
            check(store, flow.name, name, table)


def check(store: Store, flow: str, output: str, table: Table) -> None:
    """Raise `StoreBehindTable` or `HistoriesDiffer` unless the store and an output's table have one history."""
    upper, kept = table.upper, table.digest
    bound = store.digests(flow, [upper])
    if upper not in bound:
        found = store.flow(flow)
        raise StoreBehindTable(flow=flow, output=output, store=0 if found is None else found.upper, table=upper)
    if kept is not None and bound[upper] and not agree(kept, bound[upper]):
        found = store.flow(flow)
        raise HistoriesDiffer(flow=flow, output=output, store=upper if found is None else found.upper, table=upper)
