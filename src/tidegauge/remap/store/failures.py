"""Failures that outlive the driver, of a source, and of an output for a reason of its own; and what it waits for.

Invariants. What is kept is an epoch and an error as JSON: its code and its evidence, of which no text is long and
none holds a secret (`Redaction`). A source's failure stays until it is cleared, and of several the one at the least
epoch counts, because its records never change. An output's is that of the last attempt: the steps are code, and code
is corrected between runs. What a driver waits for is all that it said last, in one transaction; nothing is decided
by it.

>>> kept({"error": "cannot reach postgresql://ada:hunter2@db/shop?sslpassword=hunter2", "epoch": 7}, Redaction())
{'error': 'cannot reach postgresql://ada:***@db/shop?sslpassword=***', 'epoch': 7}
>>> len(kept(5000 * "x", Redaction()))
1003
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, insert, select, update

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.redaction import Redaction
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.register import get
from tidegauge.remap.store.schema import Unreadable, as_json, from_json, outputs, sources, stalls
from tidegauge.remap.store.values import Stall

__all__ = ["clear", "kept", "read_stalls", "record_output", "record_source", "record_stalls"]

LONGEST: Final = 1000
"""Characters of a text that are kept."""


def record_source(connection: Connection, lease: Lease, source: str, epoch: int, error: TidegaugeError) -> None:
    """Note that a source has failed for good; see `Store.record_failure`."""
    guard(connection, lease)
    known = get(connection, sources, lease, source)
    if known.failure is None or epoch < known.failed_at:
        _write(connection, lease, sources, known.id, epoch, error)


def record_output(connection: Connection, lease: Lease, output: str, epoch: int, error: TidegaugeError) -> None:
    """Note that an output has failed; see `Store.record_output_failure`."""
    guard(connection, lease)
    _write(connection, lease, outputs, get(connection, outputs, lease, output).id, epoch, error)


def clear(connection: Connection, lease: Lease, table: Table, name: str) -> None:
    """Forget the failure of a source or an output; see `Store.clear_failure`."""
    guard(connection, lease)
    number = get(connection, table, lease, name).id
    connection.execute(update(table).where(table.c.id == number).values(failed_at=None, failure=None))


def kept(value: Any, redaction: Redaction) -> Any:
    """Return JSON data with every text in it cut, and without secrets."""
    if isinstance(value, dict):
        return {key: kept(item, redaction) for key, item in value.items()}
    if isinstance(value, list):
        return [kept(item, redaction) for item in value]
    if not isinstance(value, str):
        return value
    text = redaction.text(value[: 2 * LONGEST])  # cut to more than is kept: a password must not lose its "@"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _write(
    connection: Connection, lease: Lease, table: Table, number: int, epoch: int, error: TidegaugeError
) -> None:
    values = {"failed_at": epoch, "failure": as_json(kept(error.encode(), lease.redaction))}
    connection.execute(update(table).where(table.c.id == number).values(**values))


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
