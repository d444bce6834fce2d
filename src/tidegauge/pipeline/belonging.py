"""Whether a store and a table have one history: the same epochs, and in each of them the same bindings.

Invariant: a table is believed only when its upper is bound, and its digest is the store's for the epochs before it. A
table that a version without digests has written last is believed as far as its upper is; so is an epoch that such a
version has bound.

The store is asked after the table was opened: an epoch is bound before a table holds it, so a driver that goes on
meanwhile is no contradiction.
"""

from __future__ import annotations

from tidegauge.errors.history import HistoriesDiffer, StoreBehindTable
from tidegauge.remap.history import agree
from tidegauge.remap.store import Store
from tidegauge.sinks.protocol import Table

__all__ = ["check"]


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
