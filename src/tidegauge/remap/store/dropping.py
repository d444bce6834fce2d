"""Dropping an output: all that the store has of it goes, in one transaction.

Invariant: afterwards the store knows no more of the output than of one that never was: no plan, no unit, no hold, no
start, no code, no replacement, no failure, no pause. So a new one of its name begins as any new output does. Its
table stays.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete

from tidegauge.remap.store.backfills import forget_backfills
from tidegauge.remap.store.codes import forget_codes
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.register import find
from tidegauge.remap.store.replacements import forget_replacements
from tidegauge.remap.store.schema import outputs, pauses, stalls
from tidegauge.remap.store.starts import forget_starts

__all__ = ["drop_output"]


def drop_output(connection: Connection, lease: Lease, output: str) -> None:
    """Forget an output; see `Store.drop_output`. One that is forgotten already may be: its answer was lost, say."""
    guard(connection, lease)
    known = find(connection, outputs, lease, output)
    forget_backfills(connection, lease.flow_id, output)
    forget_starts(connection, lease.flow_id, output)
    forget_codes(connection, lease.flow_id, output)
    forget_replacements(connection, lease.flow_id, output)
    connection.execute(delete(pauses).where(pauses.c.flow_id == lease.flow_id, pauses.c.output == output))
    mine = (stalls.c.flow_id == lease.flow_id) & (stalls.c.kind == "output") & (stalls.c.name == output)
    connection.execute(delete(stalls).where(mine))
    if known is not None:
        connection.execute(delete(outputs).where(outputs.c.id == known.id))
