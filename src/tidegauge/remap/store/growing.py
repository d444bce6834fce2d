"""A flow that was loaded before, loaded again at the cost of its new bindings: the tables grow.

Bindings never change, and the digest of an epoch says all of them up to it (`remap.history`). So a look
after each epoch reads the bindings of that epoch alone, however long the history is.

Invariant: the tables are those that loading everything anew would give. Where that is not certain, there is nothing
to go on from: the store has another history before the known upper, or kept no digest there; epochs were compacted
since; a source is new, has begun an incarnation, or has ended at an epoch that was known without its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, bindparam, select

from tidegauge.errors.flow import InvalidArgument
from tidegauge.errors.store import FrontierRegressed
from tidegauge.remap.store.chain import digest_before
from tidegauge.remap.store.schema import changes, partitions
from tidegauge.remap.store.values import FlowRecord, Incarnation, Loaded
from tidegauge.remap.table import RemapTable

__all__ = ["goes_on", "grown"]

_NEW: Final = (
    select(changes.c.epoch, partitions.c.key, changes.c.position)
    .select_from(changes.outerjoin(partitions, partitions.c.id == changes.c.partition_id))
    .where(changes.c.source_id == bindparam("source"), changes.c.epoch >= bindparam("first"))
    .order_by(changes.c.epoch)
)
"""Of one source; made once, which takes longer than to run it. A partition that is not there is damage to be told."""


def goes_on(
    connection: Connection,
    known: Loaded,
    flow: FlowRecord,
    lives: Mapping[str, tuple[Incarnation, ...]],
    seals: Mapping[str, int | None],
) -> bool:
    """Whether a flow's history goes on from the known one. lives, seals: of its sources, by their names."""
    was = known.flow
    if (was.id, was.incarnation, was.since) != (flow.id, flow.incarnation, flow.since) or was.upper > flow.upper:
        return False
    if lives.keys() != known.sources.keys():
        return False
    for name, source in known.sources.items():
        sealed = source.table.sealed_at
        now = seals[name]
        late = sealed is None and (now is None or now >= was.upper)
        if source.incarnations != lives[name] or not (late or sealed == now):
            return False
    return bool(known.digest) and known.digest == digest_before(connection, flow.id, flow.incarnation, was.upper)


def grown(
    connection: Connection, source_id: int, table: RemapTable, *, upper: int, sealed_at: int | None
) -> RemapTable | None:
    """Return a table with the bindings that came since, None where these are damaged; the table itself stays."""
    found = table.view()
    moved: dict[int, dict[str, int]] = {}
    for epoch, partition, position in connection.execute(_NEW, {"source": source_id, "first": table.upper}):
        moved.setdefault(epoch, {})[partition] = position
    if sealed_at is not None and table.sealed_at is None:
        moved.setdefault(sealed_at, {})
    try:
        for epoch in sorted(moved):
            found.extend(epoch, moved[epoch], sealed=epoch == sealed_at)
        found.advance(upper)
    except (FrontierRegressed, InvalidArgument, TypeError):  # who loads everything says which row it is
        return None
    return found
