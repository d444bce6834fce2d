"""Starts: the epoch that each output begins with, and the one that its past has, of outputs that have such an epoch.

Invariant: a start is made once, before anything is staged for its output, and stays as long as the output writes to
the same place. The newest epoch is another one at each restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    ForeignKey,
    PrimaryKeyConstraint,
    Row,
    Table,
    Text,
    delete,
    insert,
    select,
)

from tidegauge.remap.start import StampRecord, StartRecord
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.schema import Instant, Name, count, metadata

__all__ = ["forget_starts", "keep_starts", "read_starts", "record_start", "starts"]

starts: Final = Table(
    "starts",
    metadata,
    Column("flow_id", ForeignKey("flows.id"), nullable=False),
    Column("output", Name, nullable=False),
    Column("said", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("at", Instant, nullable=False),
    Column("timestamps", Text),
    Column("stamp", BigInteger),
    PrimaryKeyConstraint("flow_id", "output"),
    sqlite_with_rowid=False,
)
"""The outputs that do not begin with their source, or whose rows do not all have the epochs of their records.

`epoch` is the first that an output is given; `said` is what the flow says of it, as JSON, and `null` for with the
source. All rows up to the epoch `stamp` have that one; `timestamps` is what the flow says of it. Without one they are
NULL. `at` is when all this was settled.
"""


def record_start(connection: Connection, lease: Lease, output: str, start: StartRecord | None, at: datetime) -> None:
    """Make where an output begins durable, or forget it; see `Store.record_start`."""
    guard(connection, lease)
    forget_starts(connection, lease.flow_id, output)
    if start is not None:
        _keep(connection, lease.flow_id, output, start, at)


def keep_starts(
    connection: Connection, flow_id: int, told: Mapping[str, StartRecord], *, upper: int, at: datetime
) -> None:
    """Bring the starts to what tables have told, in a timeline that was rebuilt up to `upper`.

    One that no table has told stays, unless its epoch is not bound by now: it is then settled anew.
    """
    for output, start in read_starts(connection, flow_id).items():
        if output in told or start.epoch > upper or (start.stamp and start.stamp >= upper):
            forget_starts(connection, flow_id, output)
    for output, start in told.items():
        _keep(connection, flow_id, output, start, at)


def read_starts(connection: Connection, flow_id: int) -> dict[str, StartRecord]:
    """Return where the outputs of a flow begin, by output; those that begin with their source are left out."""
    found = connection.execute(select(starts).where(starts.c.flow_id == flow_id))
    return {row.output: StartRecord(row.said, count(row.epoch), _stamps(row)) for row in found}


def forget_starts(connection: Connection, flow_id: int, *outputs: str) -> None:
    """Forget where these outputs begin."""
    for output in outputs:
        connection.execute(delete(starts).where(starts.c.flow_id == flow_id, starts.c.output == output))


def _keep(connection: Connection, flow_id: int, output: str, start: StartRecord, at: datetime) -> None:
    row = {"output": output, "said": start.said, "epoch": start.epoch, "at": at}
    if start.stamps is not None:
        row |= {"timestamps": start.stamps.said, "stamp": start.stamps.epoch}
    connection.execute(insert(starts).values(flow_id=flow_id, **row))


def _stamps(row: Row[Any]) -> StampRecord | None:
    return None if row.timestamps is None else StampRecord(row.timestamps, count(row.stamp))
