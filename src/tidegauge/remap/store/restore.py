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
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from tidegauge.env import Env
from tidegauge.remap.history import Missed
from tidegauge.remap.rebuilding import Way
from tidegauge.remap.start import StartRecord
from tidegauge.remap.store.backfills import forget_backfills, read_backfills
from tidegauge.remap.store.compaction import bring_back_since
from tidegauge.remap.store.earlier import bring_back_columns
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.losses import bring_back
from tidegauge.remap.store.moves import insert_rows, write_moves
from tidegauge.remap.store.register import record_held
from tidegauge.remap.store.schema import (
    as_json,
    changes,
    flows,
    incarnations,
    leases,
    losses,
    outputs,
    seals,
    source_states,
    sources,
    timeline,
)
from tidegauge.remap.store.starts import keep_starts

__all__ = ["Rebuilt", "restore", "since_restored"]


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
        moves = [(link, link.sources[name]) for link in way.links if name in link.sources]
        write_moves(connection, known[name], moves)
        bring_back_columns(connection, known[name], moves, cut=way.cut, at=at)
        if any(
            one.bind or one.begun for _, one in moves
        ):  # a source that had failed was resumed, or nothing is bound
            mine = sources.c.id == known[name]
            connection.execute(update(sources).where(mine).values(failed_at=None, failure=None))
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
    insert_rows(connection, timeline, rows)
