"""Letting old epochs go, and holding them: how far back the epochs of a flow can be told apart.

Definition. Below a flow's `since` epochs are indistinguishable: positions bound there count as bound at `since`. Let
`R` be a remap table and `C` the compacted one; then `C(e) = R(e)` for every `e >= since`. So of a partition's changes
up to `since` the last one by epoch stays, moved to `since`, and of those the ones of an incarnation that had ended by
then go too: in `R(since)` their partitions are at 0 again. States of sources are kept alike.

A hold is the epoch that somebody, the owner, still needs to be distinct. Anybody may hold, also a reader without the
lease.

Invariant: `since` is below `published`, and not beyond any hold. Both writers, who advances `since` and who holds,
lock the flow's row before they look, so one of them is first: a hold that comes later finds `since` beyond its epoch
and is refused, one that came earlier is seen.

An output whose table ends before `since` holds all up to there iff its source did not move in between. That could
not be told afterwards, so `sources.folded` keeps the last epoch up to `since` at which the source did move.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, ScalarSelect, Table, delete, func, insert, select, update

from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import HoldNotBound, HoldTooEarly, SinceHeld, SinceTooFar
from tidegauge.remap.store.decisions import notify
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.read import read_flow
from tidegauge.remap.store.schema import changes, flows, holds, incarnations, seals, source_states, sources
from tidegauge.remap.store.values import FlowRecord, HoldRecord
from tidegauge.remap.table import LARGEST

__all__ = ["advance_since", "bring_back_since", "hold", "read_holds", "release"]


def advance_since(connection: Connection, lease: Lease, since: int) -> None:
    """Make the epochs below `since` indistinguishable; see `Store.advance_since`."""
    flow = guard(connection, lease)
    furthest = max(flow.published - 1, 0)
    if since > furthest:
        raise SinceTooFar(flow=lease.flow, since=since, furthest=furthest, published=flow.published)
    if since <= flow.since:
        return
    for held in read_holds(connection, lease.flow)[:1]:
        if since > held.epoch:
            raise SinceHeld(flow=lease.flow, since=since, owner=held.owner, epoch=held.epoch)
    _merge(connection, lease.flow_id, flow.since, since)


def bring_back_since(connection: Connection, flow_id: int, before: int, since: int) -> None:
    """Make the epochs below `since` indistinguishable, as they were once; those below `before` are at present.

    Who held one of them has released it since, or it would not have been compacted.
    """
    connection.execute(delete(holds).where(holds.c.flow_id == flow_id, holds.c.epoch < since))
    if since > before:
        _merge(connection, flow_id, before, since)


def _merge(connection: Connection, flow_id: int, before: int, since: int) -> None:
    mine = select(sources.c.id).where(sources.c.flow_id == flow_id).scalar_subquery()
    _note_last_moves(connection, flow_id, before, since)
    _fold(connection, changes, changes.c.partition_id, mine, since)
    _fold(connection, source_states, source_states.c.source_id, mine, since)
    connection.execute(update(seals).where(seals.c.source_id.in_(mine), seals.c.epoch < since).values(epoch=since))
    connection.execute(update(flows).where(flows.c.id == flow_id).values(since=since))


def _note_last_moves(connection: Connection, flow_id: int, before: int, since: int) -> None:
    """Keep for each source at which epoch up to `since` it moved last.

    Changes at the epoch `before`, which is the present `since`, may have been moved there: they are counted already.
    """
    last = (
        select(func.max(changes.c.epoch))
        .where(changes.c.source_id == sources.c.id, changes.c.epoch <= since)
        .where(sources.c.folded.is_(None) | (changes.c.epoch > before))
        .scalar_subquery()
    )
    newest = func.coalesce(last, sources.c.folded)
    connection.execute(update(sources).where(sources.c.flow_id == flow_id).values(folded=newest))


def _fold(connection: Connection, table: Table, of: Column[Any], mine: ScalarSelect[Any], since: int) -> None:
    """Keep of the rows up to `since` the last one `of` each in the incarnation that is under way then."""
    later = table.alias("later")
    superseded = (
        select(later.c.epoch)
        .where(later.c.source_id == table.c.source_id, later.c[of.name] == of)
        .where(later.c.epoch > table.c.epoch, later.c.epoch <= since)
        .exists()
    )
    began = (
        select(func.coalesce(func.max(incarnations.c.began_at), 0))
        .where(incarnations.c.source_id == table.c.source_id, incarnations.c.began_at <= since)
        .scalar_subquery()
    )
    old = table.c.source_id.in_(mine) & (table.c.epoch < since)
    connection.execute(delete(table).where(old, superseded | (table.c.epoch < began)))
    connection.execute(update(table).where(old).values(epoch=since))


def hold(connection: Connection, name: str, owner: str, epoch: int, at: datetime) -> None:
    """Hold an epoch; see `Store.hold`."""
    if not isinstance(owner, str) or not owner.strip():
        raise InvalidArgument(parameter="owner", value=owner, expected="a name")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch <= LARGEST:
        raise InvalidArgument(parameter="epoch", value=epoch, expected="an epoch, counted from 0")
    flow = _locked(connection, name)
    if epoch < flow.since:
        raise HoldTooEarly(owner=owner, flow=name, epoch=epoch, since=flow.since)
    if epoch >= max(flow.upper, 1):  # before anything is bound, all that is to come can be held
        raise HoldNotBound(owner=owner, flow=name, epoch=epoch, upper=flow.upper)
    moved = connection.execute(delete(holds).where(holds.c.flow_id == flow.id, holds.c.owner == owner))
    if not moved.rowcount:  # somebody new, such as a flow that shares the sources of this one
        notify(connection, flow.id)
    connection.execute(insert(holds).values(flow_id=flow.id, owner=owner, epoch=epoch, at=at))


def release(connection: Connection, name: str, owner: str, *, repeated: bool = False) -> None:
    """Let go of what an owner holds; see `Store.release`. `repeated`: it may have been done already."""
    flow = _locked(connection, name)
    gone = connection.execute(delete(holds).where(holds.c.flow_id == flow.id, holds.c.owner == owner))
    if gone.rowcount == 0 and not repeated:
        known = [held.owner for held in read_holds(connection, name)]
        raise UnknownName(kind="hold", name=owner, known=sorted(known))


def read_holds(connection: Connection, name: str) -> list[HoldRecord]:
    """Return the holds of a flow, the least epoch first."""
    found = connection.execute(
        select(holds.c.owner, holds.c.epoch, holds.c.at)
        .join(flows, flows.c.id == holds.c.flow_id)
        .where(flows.c.name == name)
        .order_by(holds.c.epoch, holds.c.owner)
    )
    return [HoldRecord(row.owner, row.epoch, row.at) for row in found]


def _locked(connection: Connection, name: str) -> FlowRecord:
    """Lock a flow for this transaction and return its state under the lock, in two statements as `guard` does."""
    connection.execute(select(flows.c.id).where(flows.c.name == name).with_for_update())
    return read_flow(connection, name)
