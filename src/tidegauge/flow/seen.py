"""What the store remembers of an output's table: that it holds something, and so must be there.

A table alone says how far it is. If nothing of it is there, as when its disk is not mounted, it looks like a table
that is yet to be made. So the store keeps how far a table was seen to be: when a flow is opened, and right after the
first commit. A table that was seen to hold epochs and is empty is away (`TableWentBack`) at every opening, and is
waited for like a broker; nothing is written in its place until somebody asks for it to be rewritten (`tidegauge
repair OUTPUT --from 0`).

Invariant: the table really held what the store remembers. A driver that dies between a first commit and the record
leaves a table without one; the next opening of the flow records it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from tidegauge.errors.sinks import TableWentBack
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.store import Lease, Loaded, Store
from tidegauge.sinks.protocol import OutputId, Sink, Table

__all__ = ["Measured", "SeenTables", "note_seen", "table_of", "whole"]


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
