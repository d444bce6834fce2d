"""Following: a timeline that is another flow's, the owner's, as far as it concerns the sources that both share.

Definition. Let `A` be the owner and `B` the follower. Epoch `e` of `B` binds of each shared source what epoch `e` of
`A` binds of it, with the same time of minting, and nothing else; every epoch of `A` is one of `B`, also where no
shared source moved. So a number means the same in the tables of both.

Bindings are copied, not referred to: `B` has a history of its own, which its tables carry, which can be
explained, verified, recovered and compacted like any other, and which stays when `A` goes. To follow costs one read
of the store, whatever the sources are; nothing upstream is asked.

*Columns.* The owner says which columns the records of a shared source have, and from which epoch on. That comes along
with the epochs: the follower has the same ones, for the records before the same positions.

*The same history.* The digest of `A`'s epoch stands in `B`'s row of the epoch, as what wrote it. It says everything
of `A` up to there. So to know that `A` is still the same is to compare one digest, however long the history
is. Where it does not say that (`B` was recovered from its tables, which do not know of `A`) the bindings themselves
are compared, and the first epoch that differs is named.

Invariants. Each call is one transaction under the lease of `B`: it begins with the comparison, and appends a prefix
of what `A` has bound durably beyond `B`. It may be repeated after any crash, and writes nothing twice.
Nothing of `A` is written but a hold: see `compaction`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Row, bindparam, func, insert, literal, select, update

from tidegauge.errors.following import (
    FollowedDiffers,
    OwnerCompacted,
    OwnerLacksSource,
    OwnerRecreated,
    OwnerWentBack,
)
from tidegauge.errors.store import UpperMismatch
from tidegauge.remap.binding import Detail
from tidegauge.remap.history import Link, Missed, Moves, rest
from tidegauge.remap.history import follow as digest_after
from tidegauge.remap.store.chain import LONGEST, digest_before, read_links
from tidegauge.remap.store.columns import decode_schema
from tidegauge.remap.store.earlier import columns_at, share_columns
from tidegauge.remap.store.lease import Held, Lease, guard
from tidegauge.remap.store.losses import bring_back
from tidegauge.remap.store.moves import write_moves
from tidegauge.remap.store.owner import (
    Following,
    check_config,
    failures_of,
    newest_loss,
    owner_of,
    rows_of,
)
from tidegauge.remap.store.schema import flows, from_json, losses, partitions, sources, timeline
from tidegauge.remap.store.values import FlowRecord

__all__ = ["Followed", "follow"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """What a call has appended: its links, as the follower has them, after the digest `before`.

    owned: how many epochs the owner has bound. noted: how many losses of the owner came along. schemas: of the shared
    sources, where they are known. failures: of the owner's sources, by this flow's names, in the words of their
    errors. columned: whether a source has got other columns than it had.
    """

    links: tuple[Link, ...] = ()
    before: str = ""
    owned: int = 0
    noted: int = 0
    schemas: Mapping[str, pa.Schema] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    columned: bool = False

    @property
    def anew(self) -> bool:
        """Whether something came along that a run knows from its opening: an incarnation, a loss, other columns."""
        begun = any(moves.begun for link in self.links for moves in link.sources.values())
        return bool(self.noted) or self.columned or begun


@dataclass(frozen=True, slots=True)
class _Shared:
    """A shared source: the follower's name for it, and the rows of both."""

    name: str
    mine: Row[Any]
    theirs: Row[Any]


def follow(
    connection: Connection,
    lease: Lease,
    following: Following,
    *,
    expected: int,
    incarnation: str,
    configs: Mapping[str, Mapping[str, Any]],
    url: str,
    most: int = LONGEST,
) -> tuple[Followed, int]:
    """Append what the owner has bound beyond `expected`, at most `most` epochs; see `Store.follow`.

    Returns also the owner's newest loss. Epochs beyond `expected` that are bound already, by a call whose answer
    was lost, are part of the answer.
    """
    flow = guard(connection, lease)
    owner = owner_of(connection, lease.flow, following, url)
    if owner.incarnation != incarnation:
        raise OwnerRecreated(flow=lease.flow, owner=following.flow, known=incarnation, found=owner.incarnation)
    shared = _pairs(connection, lease, following, owner)
    for one in shared:
        check_config(lease.flow, following, one.name, one.theirs, configs[one.name])
    _check_same(connection, lease, following, flow, owner, shared)
    if flow.upper < expected:
        raise UpperMismatch(flow=lease.flow, what="bound", expected=expected, actual=flow.upper)
    before = digest_before(connection, lease.flow_id, lease.incarnation, expected)
    links: tuple[Link, ...] = ()
    if flow.upper < min(owner.upper, expected + most):
        first = flow.upper or _begins(connection, owner)  # what lies before that is one epoch
        upper = min(owner.upper, first + min(most, LONGEST))
        links = _append(connection, lease, following, flow, owner, shared, upper)
    if flow.upper > expected:
        mine = FlowRecord(lease.flow_id, lease.flow, lease.incarnation, flow.upper, flow.published, flow.since)
        links = (*read_links(connection, mine, expected, flow.upper), *links)
    upper = links[-1].epoch + 1 if links else flow.upper
    told = [one for one in shared if one.theirs.schema is not None]
    columned = [share_columns(connection, one.mine.id, one.theirs.id, one.theirs.schema, upper) for one in told]
    newest = newest_loss(connection, owner.id)
    new = Followed(
        links=links,
        before=before,
        owned=owner.upper,
        noted=_bring_losses(connection, lease, shared) if newest else 0,
        schemas={one.name: _columns(connection, one, upper) for one in told},
        columned=any(columned),
        failures=failures_of({one.name: one.theirs for one in shared}),
    )
    return new, newest


def _columns(connection: Connection, one: _Shared, upper: int) -> pa.Schema:
    return decode_schema(columns_at(connection, one.theirs.id, one.theirs.schema, upper))


def _pairs(connection: Connection, lease: Lease, following: Following, owner: FlowRecord) -> tuple[_Shared, ...]:
    mine, theirs = rows_of(connection, lease.flow_id), rows_of(connection, owner.id)
    for source in following.sources.values():
        if source not in theirs:
            raise OwnerLacksSource(flow=lease.flow, source=source, owner=following.flow, known=sorted(theirs))
    return tuple(_Shared(name, mine[name], theirs[source]) for name, source in sorted(following.sources.items()))


def _mark(row: Row[Any]) -> str:
    """Return what says of an epoch which history it ends: its digest, or what wrote it where none was kept."""
    return str(row.digest or row.write_id)


def _epoch(connection: Connection, flow_id: int, epoch: int) -> Row[Any] | None:
    mine = (timeline.c.flow_id == flow_id) & (timeline.c.epoch == epoch)
    return connection.execute(select(timeline).where(mine)).one_or_none()


def _check_same(
    connection: Connection,
    lease: Lease,
    following: Following,
    flow: Held,
    owner: FlowRecord,
    shared: Sequence[_Shared],
) -> None:
    """Raise unless the owner's epochs are those that were followed, as far as anybody can tell."""
    if not flow.upper:
        return
    if owner.upper < flow.upper:
        raise OwnerWentBack(flow=lease.flow, owner=following.flow, upper=owner.upper, followed=flow.upper)
    if owner.since > flow.upper - 1:
        raise OwnerCompacted(
            flow=lease.flow,
            owner=following.flow,
            since=owner.since,
            last=flow.upper - 1,
        )
    mine = _epoch(connection, lease.flow_id, flow.upper - 1)
    theirs = _epoch(connection, owner.id, flow.upper - 1)
    if mine is not None and theirs is not None and mine.write_id == _mark(theirs):
        return
    _compare(connection, lease, following, flow, owner, shared)
    if theirs is not None:
        where = (timeline.c.flow_id == lease.flow_id) & (timeline.c.epoch == flow.upper - 1)
        connection.execute(update(timeline).where(where).values(write_id=_mark(theirs)))


def _compare(
    connection: Connection,
    lease: Lease,
    following: Following,
    flow: Held,
    owner: FlowRecord,
    shared: Sequence[_Shared],
) -> None:
    """Compare the bindings of all epochs that both can tell apart. Raises `FollowedDiffers` for the first other."""
    own = FlowRecord(lease.flow_id, lease.flow, lease.incarnation, flow.upper, flow.published, flow.since)
    first = max(flow.since, owner.since)
    for lower in range(first, flow.upper, LONGEST):
        upper = min(lower + LONGEST, flow.upper)
        whole = lower == first
        ours = {one.epoch: one for one in read_links(connection, own, lower, upper, whole=whole)}
        theirs = {one.epoch: one for one in read_links(connection, owner, lower, upper, whole=whole)}
        for epoch in range(lower, upper):
            said = {one.name: _content(ours.get(epoch), one.name) for one in shared}
            there = {one.name: _content(theirs.get(epoch), one.theirs.name) for one in shared}
            if said != there:
                differing = [name for name in said if said[name] != there[name]]
                shown = [f"{name!r} is {there[name]} there and {said[name]} here" for name in differing]
                raise FollowedDiffers(
                    flow=lease.flow, owner=following.flow, epoch=epoch, differences="; ".join(shown)[:1000]
                )


def _content(link: Link | None, source: str) -> Any:
    moves = None if link is None else link.sources.get(source)
    return moves.content if moves is not None and moves.bind else None


def _begins(connection: Connection, owner: FlowRecord) -> int:
    """Return the first epoch of the owner that can be told from those before it, and has a digest."""
    told = (timeline.c.flow_id == owner.id) & (timeline.c.epoch >= owner.since) & timeline.c.digest.is_not(None)
    return connection.scalar(select(func.min(timeline.c.epoch)).where(told)) or 0


def _append(
    connection: Connection,
    lease: Lease,
    following: Following,
    flow: Held,
    owner: FlowRecord,
    shared: Sequence[_Shared],
    upper: int,
) -> tuple[Link, ...]:
    """Write the owner's epochs from the follower's upper to `upper`, and return them as the follower's links."""
    found = read_links(connection, owner, flow.upper, upper, last=upper == owner.upper)
    first = found[0].epoch
    if flow.upper and (first != flow.upper or found[0].whole):
        raise OwnerCompacted(
            flow=lease.flow,
            owner=following.flow,
            since=first,
            last=flow.upper - 1,
        )
    facts = _facts(connection, shared, found) if upper == owner.upper else {}
    digest, links = digest_before(connection, lease.flow_id, lease.incarnation, flow.upper), list[Link]()
    for link in found:
        moved = {one.name: link.sources[one.theirs.name] for one in shared if one.theirs.name in link.sources}
        if link.epoch == upper - 1:
            for name, details in facts.items():
                moved[name] = replace(known := moved.get(name, Moves()), details={**known.details, **details})
        digest = rest(lease.incarnation, link.epoch + 1, moved) if link.whole else digest_after(digest, moved)
        links.append(replace(link, digest=digest, sources=moved))
    theirs = (timeline.c.flow_id == owner.id) & (timeline.c.epoch >= flow.upper) & (timeline.c.epoch < upper)
    mark = func.coalesce(timeline.c.digest, timeline.c.write_id)
    copied = select(literal(lease.flow_id), timeline.c.epoch, timeline.c.minted_at, mark).where(theirs)
    connection.execute(insert(timeline).from_select(["flow_id", "epoch", "minted_at", "write_id"], copied))
    mine = (timeline.c.flow_id == lease.flow_id) & (timeline.c.epoch == bindparam("at"))
    digests = [{"at": link.epoch, "digested": link.digest} for link in links]
    connection.execute(update(timeline).where(mine).values(digest=bindparam("digested")), digests)
    for one in shared:
        moves = [(link, link.sources[one.name]) for link in links if one.name in link.sources]
        if moves:
            write_moves(connection, one.mine.id, moves)
        if any(said.begun for _, said in moves):  # what was wrong with the upstream before is over
            over = {"failed_at": None, "failure": None}
            connection.execute(update(sources).where(sources.c.id == one.mine.id).values(**over))
    since = {"since": first} if not flow.upper and first else {}
    connection.execute(update(flows).where(flows.c.id == lease.flow_id).values(upper=upper, **since))
    return tuple(links)


def _facts(connection: Connection, shared: Sequence[_Shared], links: Sequence[Link]) -> dict[str, dict[str, Detail]]:
    """Return the facts of partitions that the follower does not have as the owner has them now, with the links."""
    found: dict[str, dict[str, Detail]] = {}
    mine = partitions.alias("mine")
    for one in shared:
        moved = [link.sources[one.theirs.name] for link in links if one.theirs.name in link.sources]
        there = (mine.c.source_id == one.mine.id) & (mine.c.key == partitions.c.key)
        told = select(partitions.c.key, partitions.c.detail).select_from(partitions.outerjoin(mine, there))
        told = told.where(partitions.c.source_id == one.theirs.id, partitions.c.detail.is_not(None))
        if not any(moves.begun for moves in moved):  # what is known here goes with an incarnation that is over
            told = told.where(mine.c.detail.is_(None) | (mine.c.detail != partitions.c.detail))
        carried = {key for moves in moved for key in moves.details}
        left = {row.key: from_json(row.detail) for row in connection.execute(told) if row.key not in carried}
        if left:
            found[one.name] = dict[str, Detail](left)
    return found


def _bring_losses(connection: Connection, lease: Lease, shared: Sequence[_Shared]) -> int:
    """Note the owner's losses here, too, and return how many are new: nobody reads those ranges any more."""
    found: dict[str, list[Missed]] = {}
    for one in shared:
        for row in connection.execute(select(losses).where(losses.c.source_id == one.theirs.id)):
            place = (row.epoch, row.partition, row.lower, row.upper)
            found.setdefault(one.name, []).append(Missed(*place, row.at.isoformat(), row.code, row.reason))
    return bring_back(connection, lease, found)
