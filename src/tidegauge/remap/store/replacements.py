"""Replacements: which outputs' tables are to be made again, the code for it, and the name of the new edition.

Invariants. A replacement is a decision, and so needs no lease (`decisions`): it stands until the table carries its
edition, until somebody takes it back, or until another one comes in its place, with another edition. It ends in one
transaction with the plan of its staged rows, and that records the code which has made them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
)

from tidegauge.remap.store.backfills import forget_backfills
from tidegauge.remap.store.codes import record_codes
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.schema import Instant, Name, metadata
from tidegauge.remap.store.values import CodeRecord, Replacement

__all__ = ["decide_replacement", "end_replacement", "forget_replacements", "read_replacements", "replacements"]

replacements: Final = Table(
    "replacements",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("output", Name, nullable=False),
    Column("edition", String(32), nullable=False),
    Column("code", Text, nullable=False),
    Column("at", Instant, nullable=False),
    PrimaryKeyConstraint("flow_id", "output"),
    sqlite_with_rowid=False,
)
"""The outputs whose tables are to be replaced: the rows of their past are staged anew, hidden, and change places with
the old ones in one commit, which carries `edition`; then the row goes. `code` makes the new rows."""


def decide_replacement(connection: Connection, flow_id: int, found: Replacement) -> None:
    """Make a replacement stand, in the place of an earlier one of its output."""
    forget_replacements(connection, flow_id, found.output)
    row = {"output": found.output, "edition": found.edition, "code": found.code, "at": found.at}
    connection.execute(insert(replacements).values(flow_id=flow_id, **row))


def end_replacement(
    connection: Connection, lease: Lease, found: Replacement, codes: Sequence[CodeRecord] | None
) -> None:
    """End a replacement, unless another one stands by now; see `Store.end_replacement`."""
    guard(connection, lease)
    mine = _of(lease.flow_id, found.output) & (replacements.c.edition == found.edition)
    if connection.execute(delete(replacements).where(mine)).rowcount:
        forget_backfills(connection, lease.flow_id, found.output)
    if codes is not None:
        record_codes(connection, lease, {found.output: codes})


def read_replacements(connection: Connection, flow_id: int) -> tuple[Replacement, ...]:
    """Return the replacements of a flow that stand, in the order of their outputs."""
    query = select(replacements).where(replacements.c.flow_id == flow_id).order_by(replacements.c.output)
    return tuple(Replacement(row.output, row.edition, row.code, row.at) for row in connection.execute(query))


def forget_replacements(connection: Connection, flow_id: int, *outputs: str) -> None:
    """Forget that the tables of these outputs are to be replaced."""
    for output in outputs:
        connection.execute(delete(replacements).where(_of(flow_id, output)))


def _of(flow_id: int, output: str) -> ColumnElement[bool]:
    return (replacements.c.flow_id == flow_id) & (replacements.c.output == output)
