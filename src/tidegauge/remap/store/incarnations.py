"""Incarnations: the lives of a source's upstream under one name, one after the other (law 8), and its states in them.

Definition. Incarnation 0 of a source begins at epoch 0. Each later one begins at the upper that the flow has then;
from that epoch on, its positions count from 0 again. So an epoch belongs to one incarnation of each source, and a
record is named by its incarnation, partition and position. At an epoch the state of a source is the last one written
at it or before it, in the same incarnation.

Invariants. The bindings of an earlier incarnation stay and can be looked at; their records are never read again,
because nobody has them. Those that some output lacked are rows of `losses`, written in the transaction that begins
the new one (law 9). A new incarnation begins without a state; a state is written in the transaction of its binding,
only when it is another than the newest, and its watermark never goes back within an incarnation.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from tidegauge.errors.fromtime import NotCanonical
from tidegauge.remap.fromtime.polled import SourceState
from tidegauge.remap.mint import check_watermark
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.losses import write_gaps
from tidegauge.remap.store.register import get, kept
from tidegauge.remap.store.schema import (
    Unreadable,
    count,
    incarnations,
    partitions,
    seals,
    source_states,
    sources,
)
from tidegauge.remap.store.values import Gap, Incarnation

__all__ = ["begin", "decoded", "identify", "newest", "newest_states", "read", "read_all", "state_at", "write_state"]


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
    write_gaps(connection, known.id, gaps, lease.redaction)
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


def write_state(
    connection: Connection,
    name: str,
    source_id: int,
    epoch: int,
    *,
    before: str | None,
    after: SourceState | None,
) -> str | None:
    """Keep a state that is another than the newest one, and return the newest then, encoded.

    Raises `WatermarkRegressed`.
    """
    if after is None or after.encode() == before:
        return before
    check_watermark(name, None if before is None else decoded(before), after)
    connection.execute(insert(source_states).values(source_id=source_id, epoch=epoch, state=after.encode()))
    return after.encode()


def state_at(connection: Connection, source_id: int, *, first: int, last: int) -> str | None:
    """Return the last state written in the epochs from `first` to `last`, both included, encoded."""
    there = (source_states.c.source_id == source_id) & source_states.c.epoch.between(first, last)
    return connection.scalar(
        select(source_states.c.state).where(there).order_by(source_states.c.epoch.desc()).limit(1)
    )


def newest_states(connection: Connection, flow_id: int) -> dict[int, tuple[int, str]]:
    """Return the last state of each source of a flow that has one, encoded, with its epoch; by source."""
    mine = source_states.c.source_id == sources.c.id
    last = select(source_states.c.epoch).where(mine).order_by(source_states.c.epoch.desc()).limit(1)
    found = connection.execute(
        select(source_states)
        .join(sources, mine)
        .where(sources.c.flow_id == flow_id)
        .where(source_states.c.epoch == last.correlate(sources).scalar_subquery())
    )
    return {row.source_id: (row.epoch, row.state) for row in found}


def decoded(state: str) -> SourceState:
    """Return a state that is stored. Raises `Unreadable`."""
    try:
        return SourceState.decode(state)
    except NotCanonical as error:
        raise Unreadable(error.summary) from error
