"""Writing a timeline that was rebuilt (`remap.rebuilding`) into the store, in place of the flow's own.

Invariant: one transaction. Before it the store is as it was; after it the flow's epochs are those of the way, the
flow has the incarnation that its tables know, and nobody has its lease: who had the store open knows another flow.

The bindings from the cut on, and all that followed from them (failures, gaps), go; so a store that went another way
than its tables comes back to theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from tidegauge.env import Env
from tidegauge.remap.history import Beginning, Link, Missed, Moves
from tidegauge.remap.rebuilding import Way
from tidegauge.remap.start import StartRecord
from tidegauge.remap.store.backfills import forget_backfills, read_backfills
from tidegauge.remap.store.compaction import bring_back_since
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.losses import bring_back
from tidegauge.remap.store.register import record_held
from tidegauge.remap.store.schema import (
    as_json,
    changes,
    flows,
    incarnations,
    leases,
    losses,
    outputs,
    partitions,
    seals,
    source_states,
    sources,
    timeline,
)
from tidegauge.remap.store.starts import keep_starts

__all__ = ["Rebuilt", "restore", "since_restored"]

_PIECE: Final = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """A timeline that was rebuilt from a flow's tables: its way, bound up to `upper` and published up to `published`.

    incarnation: of the store that the tables were written with. held: the uppers of the tables. gaps: what they have
    told to be lost, by source. starts: where the outputs begin whose tables have told it. since: the epochs before it
    count as one for some table.
    """

    way: Way
    incarnation: str
    upper: int
    published: int
    held: Mapping[str, int]
    gaps: Mapping[str, Sequence[Missed]]
    starts: Mapping[str, StartRecord] = field(default_factory=dict)
    since: int = 0


def restore(connection: Connection, lease: Lease, rebuilt: Rebuilt, *, at: datetime, env: Env) -> None:
    """Make the flow's timeline that which was rebuilt; see `Store.restore`."""
    flow, way, published = guard(connection, lease), rebuilt.way, rebuilt.published
    own, unique = rebuilt.incarnation == lease.incarnation, env.unique
    record_held(connection, lease, rebuilt.held)
    connection.execute(update(outputs).where(outputs.c.flow_id == lease.flow_id).values(told=None))
    forget_backfills(connection, lease.flow_id, *read_backfills(connection, lease.flow_id))  # their files were swept
    keep_starts(connection, lease.flow_id, rebuilt.starts, upper=rebuilt.upper, at=at)
    _cut(connection, lease.flow_id, way.cut, lost=way.cut or (way.since or 0) * own)
    if way.since is not None:
        first = way.links[0].minted_at
        rows = ({"epoch": epoch, "minted_at": first, "digest": None} for epoch in range(way.since))
        _mint(connection, lease.flow_id, rows, published, at, unique)
    minted = ({"epoch": one.epoch, "minted_at": one.minted_at, "digest": one.digest} for one in way.links)
    _mint(connection, lease.flow_id, minted, published, at, unique)
    known = {
        row.name: row.id
        for row in connection.execute(select(sources.c.name, sources.c.id).where(sources.c.flow_id == lease.flow_id))
    }
    for name in sorted({name for link in way.links for name in link.sources}):
        if name not in known:
            made = (
                insert(sources).values(flow_id=lease.flow_id, name=name, config=as_json({})).returning(sources.c.id)
            )
            known[name] = connection.execute(made).scalar_one()
        _source(connection, known[name], [(link, link.sources[name]) for link in way.links if name in link.sources])
    bring_back(connection, lease, rebuilt.gaps)
    connection.execute(delete(leases).where(leases.c.flow_id == lease.flow_id))
    since = way.since if way.since is not None else flow.since if way.cut else 0
    bring_back_since(connection, lease.flow_id, since, rebuilt.since)
    published = max(published, min(flow.published, way.cut))
    _date(connection, lease.flow_id, published, at)
    connection.execute(
        update(flows)
        .where(flows.c.id == lease.flow_id)
        .values(
            incarnation=rebuilt.incarnation,
            upper=rebuilt.upper,
            since=max(since, rebuilt.since),
            published=published,
        )
    )


def since_restored(connection: Connection, lease: Lease, since: int, *, at: datetime) -> None:
    """Let the epochs below `since` count as one again; see `Store.bring_back_since`. They were published then."""
    flow = guard(connection, lease)
    bring_back_since(connection, lease.flow_id, flow.since, since)
    published = max(flow.published, since + 1)
    _date(connection, lease.flow_id, published, at)
    connection.execute(update(flows).where(flows.c.id == lease.flow_id).values(published=published))


def _date(connection: Connection, flow_id: int, published: int, at: datetime) -> None:
    """Give every published epoch the time of its publication; those that have one keep it."""
    undated = (timeline.c.flow_id == flow_id) & (timeline.c.epoch < published) & timeline.c.published_at.is_(None)
    connection.execute(update(timeline).where(undated).values(published_at=at))


def _cut(connection: Connection, flow_id: int, cut: int, *, lost: int) -> None:
    """Remove the bindings from an epoch on, and all that followed from them; of the gaps those from `lost` on."""
    mine = select(sources.c.id).where(sources.c.flow_id == flow_id).scalar_subquery()
    for table in (changes, source_states, seals):
        connection.execute(delete(table).where(table.c.source_id.in_(mine), table.c.epoch >= cut))
    connection.execute(delete(losses).where(losses.c.source_id.in_(mine), losses.c.epoch >= lost))
    ended = incarnations.c.source_id.in_(mine) & (incarnations.c.began_at >= cut)
    again = select(incarnations.c.source_id).where(ended).scalar_subquery()
    connection.execute(update(sources).where(sources.c.id.in_(again)).values(identity=None))
    connection.execute(delete(incarnations).where(ended))
    connection.execute(delete(timeline).where(timeline.c.flow_id == flow_id, timeline.c.epoch >= cut))
    failed = (sources.c.flow_id == flow_id) & (sources.c.failed_at >= cut)
    connection.execute(update(sources).where(failed).values(failed_at=None, failure=None))
    connection.execute(update(outputs).where(outputs.c.flow_id == flow_id).values(failed_at=None, failure=None))


def _mint(
    connection: Connection,
    flow_id: int,
    epochs: Iterable[Mapping[str, Any]],
    published: int,
    at: datetime,
    unique: Callable[[], str],
) -> None:
    rows = [
        {
            "flow_id": flow_id,
            "write_id": unique(),
            "published_at": at if epoch["epoch"] < published else None,
            **epoch,
        }
        for epoch in epochs
    ]
    _insert(connection, timeline, rows)


def _source(connection: Connection, source_id: int, moves: list[tuple[Link, Moves]]) -> None:
    """Write what the links have of one source."""
    details = {key: detail for _, one in moves for key, detail in one.details.items()}
    for _, one in moves:
        if one.begun:  # the facts of partitions are those of the newest incarnation
            details = dict(one.details)
        elif one.details:
            details |= one.details
    wanted = {key for _, one in moves for key in one.positions} | details.keys()
    ids = {
        row.key: row.id
        for row in connection.execute(
            select(partitions.c.key, partitions.c.id).where(partitions.c.source_id == source_id)
        )
    }
    _insert(connection, partitions, [{"source_id": source_id, "key": key} for key in sorted(wanted - ids.keys())])
    ids = {
        row.key: row.id
        for row in connection.execute(
            select(partitions.c.key, partitions.c.id).where(partitions.c.source_id == source_id)
        )
    }
    mine = sources.c.id == source_id
    if any(one.begun for _, one in moves):  # what the store has of the source is of an older upstream: see `begin`
        connection.execute(update(sources).where(mine).values(identity=None))
        connection.execute(delete(seals).where(seals.c.source_id == source_id))
        connection.execute(update(partitions).where(partitions.c.source_id == source_id).values(detail=None))
    if any(one.bind or one.begun for _, one in moves):  # a source that had failed was resumed, or nothing is bound
        connection.execute(update(sources).where(mine).values(failed_at=None, failure=None))
    if details:
        change = update(partitions).where(partitions.c.id == bindparam("number")).values(detail=bindparam("text"))
        connection.execute(change, [{"number": ids[key], "text": as_json(detail)} for key, detail in details.items()])
    rows = [
        {"source_id": source_id, "epoch": link.epoch, "partition_id": ids[key], "position": position}
        for link, one in moves
        for key, position in one.positions.items()
    ]
    _insert(connection, changes, rows)
    told = [
        {"source_id": source_id, "epoch": k.epoch, "state": one.state} for k, one in moves if one.state is not None
    ]
    _insert(connection, source_states, told)
    begun = [_beginning(source_id, link.epoch, life) for link, one in moves for life in one.begun]
    _insert(connection, incarnations, begun)
    ends = [link.epoch for link, one in moves if one.sealed]
    later = max((link.epoch for link, one in moves if one.begun), default=-1)
    if ends and ends[-1] >= later:
        connection.execute(delete(seals).where(seals.c.source_id == source_id))
        connection.execute(insert(seals).values(source_id=source_id, epoch=ends[-1]))
    _tell(connection, source_id, moves)


def _tell(connection: Connection, source_id: int, moves: list[tuple[Link, Moves]]) -> None:
    """Write what the links say of the source itself: its columns, its upstream, when it had moved by `since`."""
    mine = sources.c.id == source_id
    schema = next((one.schema for _, one in moves if one.schema), None)
    if schema is not None:
        connection.execute(update(sources).where(mine, sources.c.schema.is_(None)).values(schema=schema))
    identity = next((one.identity for _, one in reversed(moves) if one.identity or one.begun), None)
    if identity:
        connection.execute(update(sources).where(mine).values(identity=identity))
        last = select(func.max(incarnations.c.number)).where(incarnations.c.source_id == source_id).scalar_subquery()
        newest = (incarnations.c.source_id == source_id) & (incarnations.c.number == last)
        connection.execute(update(incarnations).where(newest).values(identity=identity))
    if moves[0][0].whole:
        connection.execute(update(sources).where(mine).values(folded=moves[0][1].moved))


def _beginning(source_id: int, epoch: int, life: Beginning) -> dict[str, Any]:
    return {
        "source_id": source_id,
        "number": life.number,
        "began_at": epoch,
        "identity": life.identity or None,
        "at": datetime.fromisoformat(life.at),
        "reason": life.reason,
    }


def _insert(connection: Connection, table: Any, rows: list[dict[str, Any]]) -> None:
    for first in range(0, len(rows), _PIECE):
        connection.execute(insert(table), rows[first : first + _PIECE])
