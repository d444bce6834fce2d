"""The flow's history read back as links (`remap.history`), and the digest with which it begins in an older store.

Invariant: a link's digest is the stored one; its bindings are the stored changes of its epoch. The facts that came
with an epoch are not kept for each epoch, so a link has the newest of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Row, exists, func, select, update

from tidegauge.errors.store import UpperMismatch
from tidegauge.remap.binding import Detail
from tidegauge.remap.history import Beginning, Link, Moves, origin, rest
from tidegauge.remap.store.earlier import columns_at, told_columns
from tidegauge.remap.store.incarnations import read, state_at
from tidegauge.remap.store.schema import (
    changes,
    count,
    flows,
    from_json,
    partitions,
    seals,
    source_states,
    sources,
    timeline,
)
from tidegauge.remap.store.values import FlowRecord, Incarnation

__all__ = ["LONGEST", "begin", "beginning_of", "digest_before", "digests", "known", "read_links"]

LONGEST: Final = 10_000
"""How many epochs are read at most; of a longer stretch the end, which then begins with a whole link."""


def begin(connection: Connection) -> None:
    """Begin the histories of flows that a version without digests has run, with their last epochs."""
    for row in connection.execute(select(flows).where(flows.c.upper > 0)).all():
        flow = FlowRecord(row.id, row.name, row.incarnation, count(row.upper), count(row.published), count(row.since))
        last = flow.upper - 1
        digest = rest(flow.incarnation, flow.upper, _standing(connection, flow, last))
        these = (timeline.c.flow_id == flow.id) & (timeline.c.epoch == last)
        connection.execute(update(timeline).where(these).values(digest=digest))


def digest_before(connection: Connection, flow_id: int, incarnation: str, upper: int) -> str:
    """Return the digest of all epochs before `upper`; "" where none was kept of it, or it is not bound."""
    if upper == 0:
        return origin(incarnation)
    return digests(connection, flow_id, [upper]).get(upper, "")


def digests(connection: Connection, flow_id: int, uppers: Sequence[int]) -> dict[int, str]:
    """Return the digests of all epochs before each upper, as far as they were kept; 0 is left out."""
    lasts = {upper - 1 for upper in uppers if 0 < upper < 2**63}
    where = (timeline.c.flow_id == flow_id) & timeline.c.epoch.in_(lasts) & timeline.c.digest.is_not(None)
    return {
        row.epoch + 1: row.digest
        for row in connection.execute(select(timeline.c.epoch, timeline.c.digest).where(where))
    }


def known(connection: Connection, flow: FlowRecord) -> dict[int, str]:
    """Return the digest before each upper, of those after whose epochs the history can be told apart."""
    where = (timeline.c.flow_id == flow.id) & (timeline.c.epoch >= flow.since) & timeline.c.digest.is_not(None)
    found = connection.execute(select(timeline.c.epoch, timeline.c.digest).where(where))
    return {row.epoch + 1: row.digest for row in found}


def read_links(
    connection: Connection, flow: FlowRecord, lower: int, upper: int, *, whole: bool = False, last: bool = True
) -> tuple[Link, ...]:
    """Return the links of the epochs `[lower, upper)`, as far as they can be told apart and have digests.

    whole: the first is to say where every source stands; that of epoch 0 does. last: whether no later link is read
    here. Then the last one also has the facts of partitions without a binding: they came with some epoch, and no
    later link brings them.

    Raises `UpperMismatch` where the store has not bound these epochs: it went back under a driver.
    """
    if flow.upper < upper:
        raise UpperMismatch(flow=flow.name, what="bound", expected=upper, actual=flow.upper)
    lowest = max(lower, flow.since, upper - LONGEST)
    mine = (timeline.c.flow_id == flow.id) & (timeline.c.epoch >= lowest) & (timeline.c.epoch < upper)
    minted = select(timeline.c.epoch, timeline.c.minted_at, timeline.c.digest).where(
        mine, timeline.c.digest.is_not(None)
    )
    epochs = connection.execute(minted.order_by(timeline.c.epoch)).all()
    if not epochs:
        return ()
    first = epochs[0].epoch
    moved = _moved(connection, flow, first, upper, last=last)
    links = [
        Link(epoch=row.epoch, digest=row.digest, minted_at=row.minted_at, sources=moved.get(row.epoch, {}))
        for row in epochs
    ]
    told_apart = first == lower and (first > flow.since or first == 0) and not (whole and first)
    if not told_apart or not links[0].follows(digest_before(connection, flow.id, flow.incarnation, first)):
        since = flow.since if lower <= flow.since else 0
        links[0] = replace(links[0], sources=_standing(connection, flow, first), whole=True, since=since)
    return tuple(links)


def beginning_of(life: Incarnation) -> Beginning:
    """Return an incarnation as a link has it."""
    return Beginning(life.number, life.identity, life.at.isoformat(), life.reason)


def _moved(
    connection: Connection, flow: FlowRecord, first: int, upper: int, *, last: bool
) -> dict[int, dict[str, Moves]]:
    """Return the moves of each source in each of the epochs `[first, upper)`."""
    found: dict[int, dict[str, Moves]] = defaultdict(dict)
    for source in _sources(connection, flow):
        lives = read(connection, source.id)
        positions: dict[int, dict[str, int]] = defaultdict(dict)
        details: dict[int, dict[str, Detail]] = defaultdict(dict)
        newest: dict[str, tuple[int, Detail]] = {}
        for row in connection.execute(
            select(changes.c.epoch, partitions.c.key, changes.c.position, partitions.c.detail)
            .join(partitions, partitions.c.id == changes.c.partition_id)
            .where(changes.c.source_id == source.id, changes.c.epoch >= first, changes.c.epoch < upper)
            .order_by(changes.c.epoch)
        ):
            positions[row.epoch][row.key] = row.position
            if row.detail is not None:
                newest[row.key] = row.epoch, from_json(row.detail)
        began = lives[-1].began_at if lives else 0
        for key, (epoch, detail) in newest.items():
            details[max(epoch, began)][key] = detail
        if last and began < upper and (unbound := _unbound(connection, source.id, began, upper)):
            details[upper - 1].update(unbound)
        told = source_states.c.epoch.between(first, upper - 1) & (source_states.c.source_id == source.id)
        stated = {row.epoch: row.state for row in connection.execute(select(source_states).where(told))}
        begun: dict[int, list[Beginning]] = defaultdict(list)
        for life in lives:
            begun[life.began_at].append(beginning_of(life))
        ended = connection.scalar(select(seals.c.epoch).where(seals.c.source_id == source.id))
        there = {*positions, *details, *stated, *begun, *([] if ended is None else [ended])}
        entered = _entered(connection, source.id, began)
        told = told_columns(connection, source.id, source.schema or "", began, entered)
        for epoch in sorted(epoch for epoch in there if first <= epoch < upper):
            found[epoch][source.name] = Moves(
                positions=positions.get(epoch, {}),
                incarnation=max((life.number for life in lives if life.began_at <= epoch), default=0),
                state=stated.get(epoch),
                sealed=epoch == ended,
                begun=tuple(begun.get(epoch, ())),
                identity=(source.identity or "") if epoch == entered else "",
                schema=told.get(epoch, ""),
                details=details.get(epoch, {}),
            )
    return found


def _unbound(connection: Connection, source_id: int, began: int, upper: int) -> dict[str, Detail]:
    """Return the facts of partitions without a binding in the epochs `[began, upper)`."""
    mine = (changes.c.source_id == source_id) & (changes.c.partition_id == partitions.c.id)
    bound = exists().where(mine, changes.c.epoch >= began, changes.c.epoch < upper)
    told = (partitions.c.source_id == source_id) & partitions.c.detail.is_not(None)
    found = connection.execute(select(partitions.c.key, partitions.c.detail).where(told, ~bound))
    return {row.key: from_json(row.detail) for row in found}


def _standing(connection: Connection, flow: FlowRecord, epoch: int) -> dict[str, Moves]:
    """Return where every source stands after an epoch, with all that is known of it."""
    found = {}
    for source in _sources(connection, flow):
        lives = [life for life in read(connection, source.id) if life.began_at <= epoch]
        began = lives[-1].began_at if lives else 0
        latest = (
            select(changes.c.position)
            .where(changes.c.source_id == source.id, changes.c.partition_id == partitions.c.id)
            .where(changes.c.epoch >= began, changes.c.epoch <= epoch)
            .order_by(changes.c.epoch.desc())
            .limit(1)
            .scalar_subquery()
        )
        rows = connection.execute(
            select(partitions.c.key, partitions.c.detail, latest.label("position")).where(
                partitions.c.source_id == source.id
            )
        ).all()
        ended = connection.scalar(select(seals.c.epoch).where(seals.c.source_id == source.id))
        last = connection.scalar(
            select(func.max(changes.c.epoch)).where(changes.c.source_id == source.id, changes.c.epoch <= epoch)
        )
        state = state_at(connection, source.id, first=began, last=epoch)
        found[source.name] = Moves(
            positions={row.key: row.position for row in rows if row.position is not None},
            incarnation=lives[-1].number if lives else 0,
            state=state,
            sealed=ended is not None and ended <= epoch,
            begun=tuple(beginning_of(life) for life in lives),
            identity=source.identity or "",
            schema=columns_at(connection, source.id, source.schema or "", epoch),
            details={row.key: from_json(row.detail) for row in rows if row.detail is not None},
            moved=source.folded if last is not None and last <= flow.since and source.folded is not None else last,
        )
    return found


def _sources(connection: Connection, flow: FlowRecord) -> Sequence[Row[*tuple[Any, ...]]]:
    mine = select(sources.c.id, sources.c.name, sources.c.identity, sources.c.schema, sources.c.folded)
    return connection.execute(mine.where(sources.c.flow_id == flow.id).order_by(sources.c.name)).all()


def _entered(connection: Connection, source_id: int, began: int) -> int | None:
    """Return the first epoch that binds anything of the source in its present incarnation, which began at `began`."""
    firsts = [
        connection.scalar(
            select(func.min(table.c.epoch)).where(table.c.source_id == source_id, table.c.epoch >= began)
        )
        for table in (changes, source_states)
    ]
    return min((first for first in firsts if first is not None), default=None)
