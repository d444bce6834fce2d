"""What the driver of a flow waits for at present, for people who look at the store from elsewhere.

Invariant: it is all that the driver said last, in one transaction; nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, delete, insert, select

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.store.failures import kept
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.schema import Unreadable, as_json, from_json, stalls
from tidegauge.remap.store.values import Stall

__all__ = ["read_stalls", "record_stalls"]


def record_stalls(connection: Connection, lease: Lease, found: Iterable[Stall]) -> None:
    """Say what a flow waits for, in place of what was said before."""
    guard(connection, lease)
    connection.execute(delete(stalls).where(stalls.c.flow_id == lease.flow_id))
    for stall in found:
        error = as_json(kept(stall.error.encode(), lease.redaction))
        row = {"flow_id": lease.flow_id, "kind": stall.kind, "name": stall.name, "since": stall.since, "error": error}
        connection.execute(insert(stalls).values(**row))


def read_stalls(connection: Connection, flow_id: int) -> list[Stall]:
    """Return what a flow waits for."""
    found = connection.execute(select(stalls).where(stalls.c.flow_id == flow_id))
    try:
        return [Stall(r.kind, r.name, r.since, TidegaugeError.decode(from_json(r.error))) for r in found]
    except (KeyError, TypeError) as error:
        raise Unreadable(f"a stall is damaged: {error}") from None
