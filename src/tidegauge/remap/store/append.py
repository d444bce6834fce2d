"""The compare-and-appends on the timeline: bind an epoch, publish epochs.

Invariants. Each is one transaction: it holds in whole or not at all. The comparison (the lease, and the upper that
the caller decided on) is made in the same transaction as the write. Only changes are written: binding one partition
of ten thousand writes one row, and its digest is of one partition. A repetition after an unknown outcome knows its
own work by what it wrote, and writes nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, bindparam, func, insert, select, update

from tidegauge.errors.flow import InvalidArgument, UnknownName
from tidegauge.errors.store import ClockBehind, FrontierRegressed, StoreReplaced, UpperMismatch
from tidegauge.remap.binding import Detail, Proposal
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.history import Beginning, Link, Moves, follow, origin
from tidegauge.remap.store.chain import beginning_of, digest_before
from tidegauge.remap.store.earlier import untold
from tidegauge.remap.store.incarnations import identify, newest, read, state_at, write_state
from tidegauge.remap.store.lease import Lease, guard
from tidegauge.remap.store.schema import as_json, changes, flows, partitions, seals, sources, timeline
from tidegauge.remap.store.sending import send
from tidegauge.remap.table import LARGEST
from tidegauge.remap.times import judge, shown

__all__ = ["Head", "append", "publish", "recognise", "retime"]

_log: Final = logging.getLogger(__name__)

_Change: TypeAlias = Mapping[str, int]
"""A row of `changes`."""


@dataclass(frozen=True, slots=True)
class _Newest:
    """Where one source stands in its present incarnation, with the numbers of its partitions.

    identified: whether it is known what its upstream says of itself. state: the newest, encoded. begun: the
    incarnations that begin with the next epoch. entered: whether records with its present columns are bound.
    """

    id: int
    identified: bool
    frontier: Frontier
    ids: Mapping[str, int]
    state: str | None
    incarnation: int
    begun: tuple[Beginning, ...]
    entered: bool


@dataclass(frozen=True, slots=True)
class Head:
    """Where the sources of a flow stand at an upper. Bindings never change, so while the lease is held and no
    incarnation begins, it is true whenever that is the upper.

    digest: of all epochs before it. link: the last of them, where it was bound just now; before: the digest before
    that.
    """

    incarnation: str
    upper: int
    minted_at: datetime | None
    sources: Mapping[str, _Newest]
    digest: str
    link: Link | None = None
    before: str = ""


# Made once, as every tick needs them; see `guard`.
_BIND: Final = insert(changes)
_MINT: Final = insert(timeline)
_ADVANCE: Final = update(flows).where(flows.c.id == bindparam("flow")).values(upper=bindparam("to"))
_SPAN: Final = (
    (timeline.c.flow_id == bindparam("flow"))
    & (timeline.c.epoch >= bindparam("from"))
    & (timeline.c.epoch < bindparam("to"))
)
_DATE: Final = update(timeline).where(_SPAN).values(published_at=bindparam("at"))
_PUBLISH: Final = update(flows).where(flows.c.id == bindparam("flow")).values(published=bindparam("to"))


def append(
    connection: Connection,
    lease: Lease,
    head: Head | None,
    *,
    expected: int,
    at: datetime,
    proposals: Mapping[str, Proposal],
    write_id: str,
    repeated: bool = False,
) -> Head:
    """Bind epoch `expected` to the proposals and return the new head; see `Store.append`.

    `write_id` (32 hex digits) names this append and no other. `repeated`: it may have been done already.
    """
    flow = guard(connection, lease)
    if repeated and flow.upper == expected + 1 and _wrote(connection, lease, expected, write_id):
        return _read_head(connection, lease, expected + 1)
    if flow.upper != expected:
        raise UpperMismatch(flow=lease.flow, what="bound", expected=expected, actual=flow.upper)
    if head is None or head.upper != expected or head.incarnation != lease.incarnation:
        head = _read_head(connection, lease, expected)
        if head.minted_at is not None and judge(at, head.minted_at) == "off":
            _log.warning(
                "flow %s: epoch %s was minted at %s, and this clock says %s",
                *(lease.flow, expected - 1, shown(head.minted_at), shown(at)),
            )
    known, bound, moved = dict(head.sources), list[_Change](), dict[str, Moves]()
    for name, proposal in proposals.items():
        if name not in known:
            known.update(_read_head(connection, lease, expected).sources)  # registered since the head was read
        if name not in known:
            raise UnknownName(kind="source", name=name, known=sorted(known))
        known[name], moved[name] = _bind(connection, name, known[name], expected, proposal, bound)
    for name, source in known.items():
        if source.begun:
            moved.setdefault(name, Moves(incarnation=source.incarnation, begun=source.begun))
            known[name] = replace(source, begun=())
    minted_at = _minted(lease.flow, head, at)
    digest = follow(head.digest, moved)
    minted = {
        "flow_id": lease.flow_id,
        "epoch": expected,
        "minted_at": minted_at,
        "write_id": write_id,
        "digest": digest,
    }
    advanced = {"flow": lease.flow_id, "to": expected + 1}
    send(connection, *([(_BIND, bound)] if bound else []), (_MINT, [minted]), (_ADVANCE, [advanced]))
    link = Link(epoch=expected, digest=digest, minted_at=minted_at, sources=moved)
    return Head(lease.incarnation, expected + 1, minted_at, known, digest, link, head.digest)


def _minted(flow: str, head: Head, at: datetime) -> datetime:
    """Return the time of an epoch, which is not before the last one's. Raises `ClockBehind` where that is far off."""
    if head.minted_at is None:
        return at
    if judge(at, head.minted_at) == "wrong":
        raise ClockBehind(flow=flow, epoch=head.upper - 1, minted_at=shown(head.minted_at), now=shown(at))
    return max(at, head.minted_at)


def retime(connection: Connection, lease: Lease, now: datetime) -> int:
    """Take the times of epochs that lie in the future back to now; return how many epochs those are."""
    guard(connection, lease)
    ours = timeline.c.flow_id == lease.flow_id
    count = connection.scalar(select(func.count()).where(ours, timeline.c.minted_at > now)) or 0
    connection.execute(update(timeline).where(ours, timeline.c.minted_at > now).values(minted_at=now))
    connection.execute(update(timeline).where(ours, timeline.c.published_at > now).values(published_at=now))
    return count


def recognise(connection: Connection, lease: Lease, head: Head | None, *, url: str) -> None:
    """See that the epochs before a head, where there is one, are bound as they were. Raises `StoreReplaced`."""
    if head is None or head.digest == digest_before(connection, lease.flow_id, lease.incarnation, head.upper):
        return
    raise StoreReplaced(url=url, detail=f"the epochs before {head.upper} are not those that were bound")


def publish(
    connection: Connection, lease: Lease, *, expected: int, upper: int, at: datetime, repeated: bool = False
) -> None:
    """Publish the epochs `[expected, upper)`; see `Store.publish`. `repeated`: it may have been done already.

    Nobody else can have done it: the lease has been ours all the time, and a run publishes one span after another.
    """
    flow = guard(connection, lease)
    if repeated and flow.published == upper:
        return
    if flow.published != expected:
        raise UpperMismatch(flow=lease.flow, what="published", expected=expected, actual=flow.published)
    if upper <= expected:
        raise InvalidArgument(parameter="upper", value=upper, expected=f"beyond {expected}")
    if upper > flow.upper:  # which was more, when the caller looked
        raise UpperMismatch(flow=lease.flow, what="bound", expected=upper, actual=flow.upper)
    dated = {"flow": lease.flow_id, "from": expected, "to": upper, "at": at}
    send(connection, (_DATE, [dated]), (_PUBLISH, [{"flow": lease.flow_id, "to": upper}]))


def _wrote(connection: Connection, lease: Lease, epoch: int, write_id: str) -> bool:
    """Whether it was this append that bound the epoch."""
    bound = (timeline.c.flow_id == lease.flow_id) & (timeline.c.epoch == epoch)
    return connection.scalar(select(timeline.c.write_id).where(bound)) == write_id


def _bind(
    connection: Connection, name: str, source: _Newest, epoch: int, proposal: Proposal, bound: list[_Change]
) -> tuple[_Newest, Moves]:
    """Write what an epoch brings of a source, but its changes: those are added to `bound`, to be written together.

    Returns where the source stands then, and what the epoch brought of it.
    """
    before, after = source.frontier, proposal.frontier
    if not after.follows(before):
        behind = {p: (n, after[p]) for p, n in before.items() if after[p] < n}
        raise FrontierRegressed(source=name, detail=f"it is sealed at {before}" if before.sealed else f"{behind}")
    moved = after.since(before)
    if any(position > LARGEST for _, position in moved.values()):
        raise InvalidArgument(parameter="position", value=max(p for _, p in moved.values()), expected="below 2**63")
    ids = _number(connection, source, moved, proposal.details)
    if identifies := bool(proposal.identity and not source.identified):
        identify(connection, source.id, proposal.identity)
    bound += [
        {"source_id": source.id, "epoch": epoch, "partition_id": ids[partition], "position": position}
        for partition, (_, position) in moved.items()
    ]
    ends = after.sealed and not before.sealed
    if ends:
        connection.execute(insert(seals).values(source_id=source.id, epoch=epoch))
    state = write_state(connection, name, source.id, epoch, before=source.state, after=proposal.state)
    moves = Moves(
        positions={partition: position for partition, (_, position) in moved.items()},
        incarnation=source.incarnation,
        state=None if state == source.state else state,
        sealed=ends,
        begun=source.begun,
        identity=proposal.identity if identifies else "",
        schema="" if source.entered else _schema(connection, source.id),
        details=proposal.details,
    )
    after_it = _Newest(
        source.id,
        source.identified or identifies,
        after,
        ids,
        state,
        source.incarnation,
        begun=(),
        entered=source.entered or moves.bind,
    )
    return after_it, moves


def _schema(connection: Connection, source_id: int) -> str:
    """Return the columns of a source in the store's words, "" where they are not known."""
    return connection.scalar(select(sources.c.schema).where(sources.c.id == source_id)) or ""


def _number(
    connection: Connection, source: _Newest, moved: Mapping[str, Any], details: Mapping[str, Detail]
) -> Mapping[str, int]:
    """Write the details, and give every partition that is new a number."""
    text = {partition: as_json(detail) for partition, detail in details.items()}
    known = [{"number": source.ids[key], "text": text[key]} for key in text if key in source.ids]
    if known:
        change = update(partitions).where(partitions.c.id == bindparam("number")).values(detail=bindparam("text"))
        connection.execute(change, known)
    fresh = sorted({key for key in (*moved, *text) if key not in source.ids})
    if not fresh:
        return source.ids
    made = connection.execute(
        insert(partitions).returning(partitions.c.key, partitions.c.id),
        [{"source_id": source.id, "key": key, "detail": text.get(key)} for key in fresh],
    )
    return {**source.ids, **{row.key: row.id for row in made}}


def _read_head(connection: Connection, lease: Lease, upper: int) -> Head:
    """Return where the sources stand: each partition at its last change in the present incarnation."""
    lives = newest(connection, lease.flow_id)
    found = {}
    sealed = set(connection.scalars(select(seals.c.source_id)))
    for source in connection.execute(
        select(sources.c.id, sources.c.name, sources.c.identity).where(sources.c.flow_id == lease.flow_id)
    ).all():
        number, first = lives.get(source.id, (0, 0))
        latest = (
            select(changes.c.position)
            .where(changes.c.source_id == source.id, changes.c.partition_id == partitions.c.id)
            .where(changes.c.epoch >= first)
            .order_by(changes.c.epoch.desc())
            .limit(1)
            .scalar_subquery()
        )
        rows = connection.execute(
            select(partitions.c.key, partitions.c.id, latest).where(partitions.c.source_id == source.id)
        ).all()
        positions = {key: position for key, _, position in rows if position is not None}
        state = state_at(connection, source.id, first=first, last=upper - 1)
        begun = read(connection, source.id) if number and first == upper else ()
        found[source.name] = _Newest(
            id=source.id,
            identified=source.identity is not None,
            frontier=Frontier(positions, sealed=source.id in sealed),
            ids={key: id_ for key, id_, _ in rows},
            state=state,
            incarnation=number,
            begun=tuple(beginning_of(life) for life in begun if life.began_at == upper),
            entered=(bool(positions) or state is not None) and not untold(connection, source.id),
        )
    last = connection.execute(
        select(timeline.c.minted_at, timeline.c.digest)
        .where(timeline.c.flow_id == lease.flow_id)
        .where(timeline.c.epoch == upper - 1)
    ).one_or_none()
    if last is None:
        return Head(lease.incarnation, upper, None, found, "" if upper else origin(lease.incarnation))
    return Head(lease.incarnation, upper, last.minted_at, found, last.digest or "")
