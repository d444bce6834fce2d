"""The compare-and-appends on the timeline: bind an epoch, publish epochs, let old ones go.

Invariants. Each is one transaction: it holds in whole or not at all. The comparison (the lease, and the upper that
the caller decided on) is made in the same transaction as the write. Only changes are written: binding one partition
of ten thousand writes one row. A retry after an unknown outcome finds another upper and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, exists, func, insert, select, update

from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import FrontierRegressed, SinceTooFar, UpperMismatch
from tidegauge.remap.binding import Detail, Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.schema import as_json, bindings, epochs, flows, partitions, seals, sources
from tidegauge.remap.table import LARGEST

__all__ = ["Head", "advance_since", "append", "publish"]


@dataclass(frozen=True, slots=True)
class _Newest:
    """Where one source stands, with the numbers of its partitions."""

    id: int
    frontier: Frontier
    ids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Head:
    """Where the sources of a flow stand at an upper. Bindings never change, so it is true whenever that is the
    upper."""

    incarnation: str
    upper: int
    minted_at: datetime | None
    sources: Mapping[str, _Newest]


def append(
    connection: Connection,
    lease: Lease,
    head: Head | None,
    *,
    expected: int,
    at: datetime,
    proposals: Mapping[str, Proposal],
) -> Head:
    """Bind epoch `expected` to the proposals and return the new head; see `Store.append`."""
    flow = guard(connection, lease)
    if flow.upper != expected:
        raise UpperMismatch(flow=lease.flow, what="bound", expected=expected, actual=flow.upper)
    if head is None or head.upper != expected or head.incarnation != lease.incarnation:
        head = _read_head(connection, lease, expected)
    newest = dict(head.sources)
    for name, proposal in proposals.items():
        if name not in newest:
            newest.update(_read_head(connection, lease, expected).sources)  # registered since the head was read
        if name not in newest:
            raise UnknownName(kind="source", name=name, known=sorted(newest))
        newest[name] = _bind(connection, name, newest[name], expected, proposal)
    minted_at = at if head.minted_at is None else max(at, head.minted_at)
    connection.execute(
        insert(epochs).values(flow_id=lease.flow_id, epoch=expected, minted_at=minted_at, write_id=lease.token)
    )
    connection.execute(update(flows).where(flows.c.id == lease.flow_id).values(upper=expected + 1))
    return Head(lease.incarnation, expected + 1, minted_at, newest)


def publish(connection: Connection, lease: Lease, *, expected: int, upper: int, at: datetime) -> None:
    """Publish the epochs `[expected, upper)`; see `Store.publish`."""
    flow = guard(connection, lease)
    if flow.published != expected:
        raise UpperMismatch(flow=lease.flow, what="published", expected=expected, actual=flow.published)
    if not expected < upper <= flow.upper:
        raise InvalidArgument(
            parameter="upper", value=upper, expected=f"beyond {expected}, and at most {flow.upper}, the bound epochs"
        )
    these = (epochs.c.flow_id == lease.flow_id) & (epochs.c.epoch >= expected) & (epochs.c.epoch < upper)
    connection.execute(update(epochs).where(these).values(published_at=at))
    connection.execute(update(flows).where(flows.c.id == lease.flow_id).values(published=upper))


def advance_since(connection: Connection, lease: Lease, since: int) -> None:
    """Make the epochs below `since` indistinguishable; see `Store.advance_since`.

    Of each partition's changes up to `since`, the last one stays, moved to `since`.
    """
    flow = guard(connection, lease)
    furthest = max(flow.published - 1, 0)
    if since > furthest:
        raise SinceTooFar(flow=lease.flow, since=since, furthest=furthest, published=flow.published)
    if since <= flow.since:
        return
    mine = select(sources.c.id).where(sources.c.flow_id == lease.flow_id).scalar_subquery()
    later = bindings.alias("later")
    superseded = exists().where(
        later.c.partition_id == bindings.c.partition_id,
        later.c.position > bindings.c.position,
        later.c.epoch <= since,
    )
    old = (bindings.c.source_id.in_(mine)) & (bindings.c.epoch < since)
    connection.execute(delete(bindings).where(old, superseded))
    connection.execute(update(bindings).where(old).values(epoch=since))
    connection.execute(update(seals).where(seals.c.source_id.in_(mine), seals.c.epoch < since).values(epoch=since))
    connection.execute(update(flows).where(flows.c.id == lease.flow_id).values(since=since))


def _bind(connection: Connection, name: str, newest: _Newest, epoch: int, proposal: Proposal) -> _Newest:
    before, after = newest.frontier, proposal.frontier
    if not after.follows(before):
        behind = {p: (n, after[p]) for p, n in before.items() if after[p] < n}
        raise FrontierRegressed(source=name, detail=f"it is sealed at {before}" if before.sealed else f"{behind}")
    moved = after.since(before)
    if any(position > LARGEST for _, position in moved.values()):
        raise InvalidArgument(parameter="position", value=max(p for _, p in moved.values()), expected="below 2**63")
    ids = _number(connection, newest, moved, proposal.details)
    if proposal.identity:
        first = (sources.c.id == newest.id) & (sources.c.identity.is_(None))
        connection.execute(update(sources).where(first).values(identity=proposal.identity))
    if moved:
        connection.execute(
            insert(bindings),
            [
                {"source_id": newest.id, "epoch": epoch, "partition_id": ids[partition], "position": position}
                for partition, (_, position) in moved.items()
            ],
        )
    if after.sealed and not before.sealed:
        connection.execute(insert(seals).values(source_id=newest.id, epoch=epoch))
    return _Newest(newest.id, after, ids)


def _number(
    connection: Connection, newest: _Newest, moved: Mapping[str, Any], details: Mapping[str, Detail]
) -> Mapping[str, int]:
    """Write the details, and give every partition that is new a number."""
    text = {partition: as_json(detail) for partition, detail in details.items()}
    known = [{"number": newest.ids[key], "text": text[key]} for key in text if key in newest.ids]
    if known:
        change = update(partitions).where(partitions.c.id == bindparam("number")).values(detail=bindparam("text"))
        connection.execute(change, known)
    fresh = sorted({key for key in (*moved, *text) if key not in newest.ids})
    if not fresh:
        return newest.ids
    made = connection.execute(
        insert(partitions).returning(partitions.c.key, partitions.c.id),
        [{"source_id": newest.id, "key": key, "detail": text.get(key)} for key in fresh],
    )
    return {**newest.ids, **{row.key: row.id for row in made}}


def _read_head(connection: Connection, lease: Lease, upper: int) -> Head:
    """Return where the sources stand: a position never goes back, so each partition's largest is its newest."""
    latest = select(func.max(bindings.c.position)).where(bindings.c.partition_id == partitions.c.id).scalar_subquery()
    newest = {}
    sealed = set(connection.scalars(select(seals.c.source_id)))
    for source in connection.execute(
        select(sources.c.id, sources.c.name).where(sources.c.flow_id == lease.flow_id)
    ).all():
        rows = connection.execute(
            select(partitions.c.key, partitions.c.id, latest).where(partitions.c.source_id == source.id)
        ).all()
        positions = {key: position for key, _, position in rows if position is not None}
        ids = {key: number for key, number, _ in rows}
        newest[source.name] = _Newest(source.id, Frontier(positions, sealed=source.id in sealed), ids)
    minted_at = connection.scalar(
        select(epochs.c.minted_at).where(epochs.c.flow_id == lease.flow_id, epochs.c.epoch == upper - 1)
    )
    return Head(lease.incarnation, upper, minted_at, newest)
