"""Codes: which code makes each output's rows, and from which epoch on, so that a change does not go unnoticed.

Invariant: the rows from `epoch` up to the next record's were made by that code; a driver records one under its
lease, before it stages anything with it. An output without a record was written by a version without codes, or never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    PrimaryKeyConstraint,
    Table,
    Text,
    delete,
    insert,
    select,
)

from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.schema import Instant, Name, count, metadata
from tidegauge.remap.store.values import CodeRecord

__all__ = ["codes", "forget_codes", "read_codes", "record_codes"]

codes: Final = Table(
    "codes",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("output", Name, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("code", Text, nullable=False),
    Column("at", Instant, nullable=False),
    PrimaryKeyConstraint("flow_id", "output", "epoch"),
    sqlite_with_rowid=False,
)
"""Which code makes an output's rows from `epoch` on, up to its next row. `code`: digests of its parts, as JSON."""


def record_codes(connection: Connection, lease: Lease, found: Mapping[str, Sequence[CodeRecord]]) -> None:
    """Replace the records of these outputs; see `Store.record_codes`."""
    guard(connection, lease)
    for output, records in found.items():
        forget_codes(connection, lease.flow_id, output)
        for one in records:
            row = {"output": output, "epoch": one.epoch, "code": one.code, "at": one.at}
            connection.execute(insert(codes).values(flow_id=lease.flow_id, **row))


def read_codes(connection: Connection, flow_id: int) -> dict[str, tuple[CodeRecord, ...]]:
    """Return the codes of a flow's outputs, by output, each in the order of epochs."""
    query = select(codes).where(codes.c.flow_id == flow_id).order_by(codes.c.output, codes.c.epoch)
    found: dict[str, tuple[CodeRecord, ...]] = {}
    for row in connection.execute(query):
        found[row.output] = (*found.get(row.output, ()), CodeRecord(count(row.epoch), row.code, row.at))
    return found


def forget_codes(connection: Connection, flow_id: int, *outputs: str) -> None:
    """Forget which code made the rows of these outputs."""
    for output in outputs:
        connection.execute(delete(codes).where(codes.c.flow_id == flow_id, codes.c.output == output))
