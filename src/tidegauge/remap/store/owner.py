"""The owner of a shared source, as the store has it: who may follow it, its news, what its followers lack.

Invariants. What the owner has run with is what its rows say, not what anybody's code says: so a follower whose code
has other options than the owner had is refused, before its rows could differ from the owner's. Nothing is written
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.following import NotAFollower, OwnerDiffers, OwnerLacksSource, OwnerNotThere, OwnerRecreated
from tidegauge.remap.store.read import find_flow, read_flow
from tidegauge.remap.store.schema import Unreadable, as_json, from_json, losses, sources
from tidegauge.remap.store.values import COLLECTED, FlowRecord, HoldRecord

__all__ = [
    "HOLDER",
    "SHARED",
    "Following",
    "check_config",
    "check_following",
    "failures_of",
    "followed",
    "holder_of",
    "lacked",
    "look",
    "newest_loss",
    "owner_of",
    "rows_of",
]

SHARED: Final = "shared"
"""Where the configuration of a shared source says whose it is."""

_NOT_DECLARED: Final = {SHARED, COLLECTED}
"""What a configuration has that the source does not say of itself."""

HOLDER: Final = "flow "
"""How the name begins under which a follower holds the owner's epochs; its own name comes after it."""


def holder_of(flow: str) -> str:
    """Return under which name a follower holds the owner's epochs."""
    return HOLDER + flow


def lacked(holds: Sequence[HoldRecord], *, since: int) -> int | None:
    """Return the first epoch of a flow that one of its followers lacks, by their holds; None without a follower.

    A follower holds the last epoch that all of its outputs have, so that the one after it can be told apart. At
    `since`, the first that can be held, it may have none.

    >>> from datetime import UTC, datetime
    >>> noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    >>> held = [HoldRecord("flow billing", 7, noon), HoldRecord("audit", 2, noon)]
    >>> lacked(held, since=0), lacked(held, since=7), lacked(held[1:], since=0)
    (8, 7, None)
    """
    epochs = [one.epoch for one in holds if one.owner.startswith(HOLDER)]
    return min((epoch if epoch <= since else epoch + 1 for epoch in epochs), default=None)


@dataclass(frozen=True, slots=True)
class Following:
    """Whom a flow follows. sources: the owner's names of the shared sources, by this flow's names."""

    flow: str
    sources: Mapping[str, str]

    def said(self, source: str, incarnation: str) -> dict[str, str]:
        """Return what the configuration of a shared source says of it. incarnation: "" where it is not known."""
        return {"flow": self.flow, "source": self.sources[source], "incarnation": incarnation}


def check_following(
    connection: Connection, name: str, following: Following, configs: Mapping[str, Mapping[str, Any]], *, url: str
) -> str:
    """Return the incarnation of the owner, if the flow of this name may follow it.

    configs: how the follower describes the sources. Raises `OwnerNotThere`, `OwnerLacksSource`, `OwnerDiffers`,
    `OwnerRecreated`, `NotAFollower`.
    """
    flow = read_flow(connection, name)
    owner = owner_of(connection, name, following, url)
    theirs = rows_of(connection, owner.id)
    known = {source: from_json(row.config) for source, row in rows_of(connection, flow.id).items()}
    for mine, source in following.sources.items():
        if source not in theirs:
            raise OwnerLacksSource(flow=name, source=source, owner=following.flow, known=sorted(theirs))
        check_config(name, following, mine, theirs[source], configs[mine])
        _check_before(name, following, mine, known.get(mine), owner, ran=flow.upper > 0)
    if flow.upper and (others := sorted(known.keys() - following.sources.keys() - _shared_names(known, following))):
        raise NotAFollower(
            flow=name,
            owner=following.flow,
            source=next(iter(following.sources)),
            before=f"it has bound {', '.join(map(repr, others))} by itself",
        )
    return owner.incarnation


def _shared_names(known: Mapping[str, Mapping[str, Any]], following: Following) -> set[str]:
    """Return the known sources that were shared with this owner, whether they still are or not."""
    return {name for name, config in known.items() if not config or _said(config).get("flow") == following.flow}


def _said(config: Mapping[str, Any]) -> Mapping[str, Any]:
    said = config.get(SHARED)
    return said if isinstance(said, Mapping) else {}


def _check_before(
    flow: str,
    following: Following,
    name: str,
    config: Mapping[str, Any] | None,
    owner: FlowRecord,
    *,
    ran: bool,
) -> None:
    """Raise unless the source that is known by this name is this owner's. A recovered one knows nothing: {}."""
    said = _said(config or {})
    if said and said.get("flow") == following.flow and said.get("source") == following.sources[name]:
        known = said.get("incarnation")
        if ran and known and known != owner.incarnation:
            raise OwnerRecreated(flow=flow, owner=following.flow, known=known, found=owner.incarnation)
        return
    if not ran or (config is not None and not config):
        return
    if config is None:
        before = "this flow has followed it without that source until now"
    elif said:
        before = f"it has followed source {said.get('source')!r} of flow {said.get('flow')!r} until now"
    else:
        before = f"it has bound {name!r} by itself until now"
    raise NotAFollower(flow=flow, owner=following.flow, source=name, before=before)


def check_config(flow: str, following: Following, name: str, theirs: Row[Any], config: Mapping[str, Any]) -> None:
    """Raise `OwnerDiffers` unless the owner has run with the options that this flow's code has."""
    differing = _differing(theirs, config)
    if not differing:
        return
    shown = [f"{key} is {here!r} here and {there!r} there" for key, (here, there) in differing.items()]
    raise OwnerDiffers(
        flow=flow, source=following.sources[name], owner=following.flow, differences="; ".join(shown)[:1000]
    )


def _differing(theirs: Row[Any], config: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the options that this flow's code has otherwise than the owner ran with: here, there."""
    there = {key: value for key, value in from_json(theirs.config).items() if key not in _NOT_DECLARED}
    here = {key: value for key, value in from_json(as_json(config)).items() if key not in _NOT_DECLARED}
    keys = sorted(key for key in there.keys() | here.keys() if there.get(key) != here.get(key))
    return {key: (here.get(key), there.get(key)) for key in keys}


def followed(connection: Connection, flow_name: str) -> frozenset[str]:
    """Return the flows whose sources a flow shared when it ran last."""
    flow = find_flow(connection, flow_name)
    rows = () if flow is None else rows_of(connection, flow.id).values()
    return frozenset(str(said["flow"]) for row in rows if (said := _said(from_json(row.config))))


def look(
    connection: Connection,
    following: Following,
    *,
    upper: int,
    noted: int,
    incarnation: str,
    configs: Mapping[str, Mapping[str, Any]],
) -> Mapping[str, str] | None:
    """Return the failures of the owner's sources if it has nothing that a follower lacks which stands at `upper` and
    knows of losses up to `noted`; None if it has, or is another one: `follow` says which."""
    owner = find_flow(connection, following.flow)
    if owner is None or (owner.upper, owner.incarnation) != (upper, incarnation):
        return None
    theirs = rows_of(connection, owner.id)
    rows = {name: theirs[source] for name, source in following.sources.items() if source in theirs}
    same = rows.keys() == following.sources.keys() and not any(_differing(rows[n], configs[n]) for n in rows)
    if not same or newest_loss(connection, owner.id) != noted:
        return None
    return failures_of(rows)


def failures_of(theirs: Mapping[str, Row[Any]]) -> dict[str, str]:
    """Return the failures of the owner's sources, in words, by the follower's names."""
    found = {}
    for name, row in theirs.items():
        if row.failure is not None:
            try:
                found[name] = TidegaugeError.decode(from_json(row.failure)).summary
            except (KeyError, TypeError):
                raise Unreadable(f"{row.failure!r} is no error") from None
    return found


def newest_loss(connection: Connection, owner_id: int) -> int:
    """Return the id of the last loss that is noted of a flow's sources, 0 where none is."""
    mine = select(sources.c.id).where(sources.c.flow_id == owner_id).scalar_subquery()
    return connection.scalar(select(func.max(losses.c.id)).where(losses.c.source_id.in_(mine))) or 0


def owner_of(connection: Connection, flow: str, following: Following, url: str) -> FlowRecord:
    """Return the flow that is followed. Raises `OwnerNotThere`."""
    owner = find_flow(connection, following.flow)
    if owner is None:
        raise OwnerNotThere(flow=flow, owner=following.flow, store=url)
    return owner


def rows_of(connection: Connection, flow_id: int) -> dict[str, Row[Any]]:
    """Return the sources of a flow by name, as their table has them."""
    return {row.name: row for row in connection.execute(select(sources).where(sources.c.flow_id == flow_id))}
