"""Incarnations: the lives of a source's upstream under one name, one after the other (law 8).

Definition. Incarnation 0 of a source begins at epoch 0. Each later one begins at the upper that the flow has then;
from that epoch on, its positions count from 0 again. So an epoch belongs to one incarnation of each source, and a
record is named by its incarnation, partition and position.

Invariants. What was bound to an earlier incarnation stays bound and can be looked at; it is never read again, because
nobody has it. What some output lacked of it is a row of `gaps`, written in the transaction that begins the new one
(law 9).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from tidegauge.errors.redaction import Redaction
from tidegauge.remap.store.failures import kept
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.register import get
from tidegauge.remap.store.schema import (
    count,
    flows,
    incarnations,
    losses,
    partitions,
    seals,
    sources,
)
from tidegauge.remap.store.values import Gap, Incarnation

__all__ = ["begin", "identify", "newest", "pass_over", "read", "read_all", "read_gaps", "record_gap"]


def begin(
    connection: Connection,
    lease: Lease,
    source: str,
    *,
    identity: str,
    at: datetime,
    reason: str,
    gaps: Sequence[Gap],
) -> int:
    """Begin a new incarnation of a source and return its number; see `Store.begin_incarnation`.

    The facts that the source kept about its partitions are those of the old upstream, and go.
    """
    flow = guard(connection, lease)
    known = get(connection, sources, lease, source)
    last = read(connection, known.id)[-1:]
    if known.failure is None and [(one.began_at, one.identity) for one in last] == [(flow.upper, identity)]:
        return last[0].number  # it was done, and the answer was lost
    number = last[0].number + 1 if last else 1
    connection.execute(
        insert(incarnations).values(
            source_id=known.id,
            number=number,
            began_at=flow.upper,
            identity=identity or None,
            at=at,
            reason=kept(reason, lease.redaction),
        )
    )
    mine = sources.c.id == known.id
    connection.execute(update(sources).where(mine).values(identity=identity or None, failed_at=None, failure=None))
    connection.execute(delete(seals).where(seals.c.source_id == known.id))
    told = (partitions.c.source_id == known.id) & partitions.c.detail.is_not(None)
    connection.execute(update(partitions).where(told).values(detail=None))
    _record(connection, known.id, gaps, lease.redaction)
    return number


def identify(connection: Connection, source_id: int, identity: str) -> None:
    """Note what upstream says of itself, when the source is first bound in its present incarnation."""
    first = (sources.c.id == source_id) & sources.c.identity.is_(None)
    if connection.execute(update(sources).where(first).values(identity=identity)).rowcount:
        last = select(func.max(incarnations.c.number)).where(incarnations.c.source_id == source_id)
        mine = (incarnations.c.source_id == source_id) & (incarnations.c.number == last.scalar_subquery())
        connection.execute(update(incarnations).where(mine).values(identity=identity))


def newest(connection: Connection, flow_id: int) -> dict[int, tuple[int, int]]:
    """Return the present incarnations of a flow's sources, by source: the number, and the epoch at which it began.

    Sources that are in their first one are left out.
    """
    found = connection.execute(
        select(
            incarnations.c.source_id,
            func.max(incarnations.c.number).label("number"),
            func.max(incarnations.c.began_at).label("began_at"),
        )
        .join(sources, sources.c.id == incarnations.c.source_id)
        .where(sources.c.flow_id == flow_id)
        .group_by(incarnations.c.source_id)
    )
    return {row.source_id: (row.number, row.began_at) for row in found}


def read(connection: Connection, source_id: int) -> tuple[Incarnation, ...]:
    """Return the incarnations of a source that came after the first one, in their order."""
    mine = select(incarnations).where(incarnations.c.source_id == source_id).order_by(incarnations.c.number)
    return tuple(_incarnation(row) for row in connection.execute(mine).all())


def read_all(connection: Connection, flow_id: int) -> dict[int, tuple[Incarnation, ...]]:
    """Return the same of each source of a flow that has some, by the source's number."""
    found = connection.execute(
        select(incarnations)
        .join(sources, sources.c.id == incarnations.c.source_id)
        .where(sources.c.flow_id == flow_id)
        .order_by(incarnations.c.source_id, incarnations.c.number)
    )
    each = groupby(found, key=lambda row: int(row.source_id))
    return {source_id: tuple(map(_incarnation, rows)) for source_id, rows in each}


def _incarnation(row: Row[Any]) -> Incarnation:
    return Incarnation(count(row.number), count(row.began_at), row.identity or "", row.at, row.reason)


def record_gap(connection: Connection, lease: Lease, gap: Gap) -> None:
    """Keep what is lost; see `Store.record_gap`."""
    guard(connection, lease)
    _record(connection, get(connection, sources, lease, gap.source).id, [gap], lease.redaction)


def pass_over(connection: Connection, lease: Lease, source: str, gaps: Sequence[Gap], *, lift: bool) -> None:
    """Keep what is passed over by hand, and forget the failure that stood there; see `Store.pass_over`."""
    guard(connection, lease)
    number = get(connection, sources, lease, source).id
    _record(connection, number, gaps, lease.redaction)
    if lift:
        connection.execute(update(sources).where(sources.c.id == number).values(failed_at=None, failure=None))


def read_gaps(connection: Connection, flow_name: str) -> list[Gap]:
    """Return what is lost, sorted by source, epoch, partition and position."""
    found = connection.execute(
        select(sources.c.name, losses)
        .join(sources, sources.c.id == losses.c.source_id)
        .join(flows, flows.c.id == sources.c.flow_id)
        .where(flows.c.name == flow_name)
    )
    gaps = [Gap(r.name, r.epoch, r.partition, r.lower, r.upper, r.at, r.code, r.reason) for r in found]
    return sorted(gaps, key=lambda gap: (gap.source, gap.epoch, gap.partition, gap.lower))


def _record(connection: Connection, source_id: int, gaps: Iterable[Gap], redaction: Redaction) -> None:
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
