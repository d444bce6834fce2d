"""Lost records of a source (law 9): noted once, told by the commits of every output, brought back from the tables.

Losses are noted in the order of their ids, each after its epoch was bound. The commit of an output carries those that
were noted since its last one; of a loss in an epoch that it does not reach the next one does.

Invariants. A gap is written once, however often it is noted. `told` is written after a commit: a driver that dies
before tells some losses twice, which is no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from tidegauge.errors.redaction import Redaction
from tidegauge.remap.history import Missed
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.register import get, kept
from tidegauge.remap.store.schema import flows, losses, outputs, sources
from tidegauge.remap.store.values import Gap

__all__ = [
    "Untold",
    "bring_back",
    "pass_over",
    "read_gaps",
    "record_gap",
    "record_told",
    "untold",
    "write_gaps",
]


@dataclass(frozen=True, slots=True)
class Untold:
    """Losses that a commit is to carry, by source. upto: their ids are all told then up to this; all: no other is."""

    gaps: Mapping[str, tuple[Missed, ...]]
    upto: int
    all: bool


def record_gap(connection: Connection, lease: Lease, gap: Gap) -> None:
    """Keep a loss; see `Store.record_gap`."""
    guard(connection, lease)
    write_gaps(connection, get(connection, sources, lease, gap.source).id, [gap], lease.redaction)


def pass_over(connection: Connection, lease: Lease, source: str, gaps: Sequence[Gap], *, lift: bool) -> None:
    """Keep losses that somebody accepts by hand, and forget the failure that stood there; see `Store.pass_over`."""
    guard(connection, lease)
    number = get(connection, sources, lease, source).id
    write_gaps(connection, number, gaps, lease.redaction)
    if lift:
        connection.execute(update(sources).where(sources.c.id == number).values(failed_at=None, failure=None))


def read_gaps(connection: Connection, flow_name: str) -> list[Gap]:
    """Return the losses, sorted by source, epoch, partition and position."""
    found = connection.execute(
        select(sources.c.name, losses)
        .join(sources, sources.c.id == losses.c.source_id)
        .join(flows, flows.c.id == sources.c.flow_id)
        .where(flows.c.name == flow_name)
    )
    gaps = [Gap(r.name, r.epoch, r.partition, r.lower, r.upper, r.at, r.code, r.reason) for r in found]
    return sorted(gaps, key=lambda gap: (gap.source, gap.epoch, gap.partition, gap.lower))


def write_gaps(connection: Connection, source_id: int, gaps: Iterable[Gap], redaction: Redaction) -> None:
    """Write the gaps that are not there yet."""
    where = (losses.c.epoch, losses.c.partition, losses.c.lower, losses.c.upper)
    there = {tuple(row) for row in connection.execute(select(*where).where(losses.c.source_id == source_id))}
    new = {(gap.epoch, gap.partition, gap.lower, gap.upper): gap for gap in gaps}
    rows = [
        {
            "source_id": source_id,
            **dict(zip(("epoch", "partition", "lower", "upper"), place, strict=True)),
            "at": gap.at,
            "code": gap.code,
            "reason": kept(gap.reason, redaction),
        }
        for place, gap in new.items()
        if place not in there
    ]
    if rows:
        connection.execute(insert(losses), rows)


def untold(connection: Connection, flow_id: int, output: str, *, before: int) -> Untold:
    """Return what a commit of the epochs before one is to carry."""
    mine = (outputs.c.flow_id == flow_id) & (outputs.c.name == output)
    told = connection.scalar(select(func.coalesce(outputs.c.told, 0)).where(mine)) or 0
    rows = connection.execute(
        select(sources.c.name, losses)
        .join(sources, sources.c.id == losses.c.source_id)
        .where(sources.c.flow_id == flow_id, losses.c.id > told)
        .order_by(losses.c.id)
    ).all()
    found: dict[str, list[Missed]] = {}
    for row in (row for row in rows if row.epoch < before):
        found.setdefault(row.name, []).append(_missed(row))
    left = [row.id for row in rows if row.epoch >= before]
    upto = left[0] - 1 if left else rows[-1].id if rows else told
    return Untold({name: tuple(gaps) for name, gaps in found.items()}, upto, all=not left)


def record_told(connection: Connection, lease: Lease, output: str, upto: int) -> None:
    """Keep up to which id an output's commits carry losses; see `Store.record_told`."""
    guard(connection, lease)
    mine = (outputs.c.flow_id == lease.flow_id) & (outputs.c.name == output)
    connection.execute(update(outputs).where(mine).values(told=upto or None))


def bring_back(connection: Connection, lease: Lease, gaps: Mapping[str, Iterable[Missed]]) -> int:
    """Write the losses that are not there, by source, and return how many those were."""
    guard(connection, lease)
    known = connection.execute(select(sources.c.name, sources.c.id).where(sources.c.flow_id == lease.flow_id))
    fresh = list[dict[str, Any]]()
    for name, number in ((row.name, row.id) for row in known.all()):
        rows = connection.execute(select(losses).where(losses.c.source_id == number))
        there = {(row.epoch, row.partition, row.lower, row.upper) for row in rows}
        for gap in gaps.get(name, ()):
            if (place := (gap.epoch, gap.partition, gap.lower, gap.upper)) not in there:
                there.add(place)
                at = datetime.fromisoformat(gap.at).astimezone(UTC)
                values = dict(zip(("epoch", "partition", "lower", "upper"), place, strict=True))
                fresh.append({"source_id": number, "at": at, "code": gap.code, "reason": gap.reason, **values})
    if fresh:
        connection.execute(insert(losses), fresh)
    return len(fresh)


def _missed(row: Any) -> Missed:
    return Missed(row.epoch, row.partition, row.lower, row.upper, row.at.isoformat(), row.code, row.reason)
