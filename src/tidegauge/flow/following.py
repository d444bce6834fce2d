"""A flow that shares another one's sources: who that is, how it is taken up, and what it holds there.

A follower needs the owner's bindings and nothing else of it: not its tables, its publications or its driver. What it
leaves behind in the owner is one hold, which says how far all outputs here are. By that the owner's history stays
distinct as far as this flow has not followed it, and the owner tells upstream no more than what this flow holds, too
(law 4).

Invariants. The hold is there before the first epoch is followed, and never beyond what every output here holds
durably. Whatever a crash interrupts, the next opening does again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tidegauge.errors.flow import UnknownName
from tidegauge.errors.store import HoldNotBound, HoldTooEarly
from tidegauge.flow.spec import FlowSpec
from tidegauge.remap.store import Following, Lease, Store, holder_of, lacked

__all__ = ["FollowedFlow", "Followers", "catch_up", "hold", "take_up"]


@dataclass(frozen=True, slots=True)
class FollowedFlow:
    """The flow that is followed, as this run found it. configs: how this flow describes the shared sources."""

    following: Following
    incarnation: str
    configs: Mapping[str, Mapping[str, Any]]


class Followers:
    """The flows that follow this one, in turn. Their holds are looked up while there are any, or may be new ones.

    A new hold is counted as a decision is (`deciding`), so a flow without followers asks nothing.
    since: the first epoch that can be held.
    """

    def __init__(self, flow: str, store: Store, lease: Lease, *, since: int) -> None:
        self._flow: Final = flow
        self._store: Final = store
        self._lease: Final = lease
        self._since: Final = since
        self._alone: int | None = None
        """The number of the decisions at which there was no follower."""

    def lacked(self) -> int | None:
        """Return the first epoch that some follower lacks, None without one."""
        number = self._lease.decisions
        if number == self._alone:
            return None
        found = lacked(self._store.holds(self._flow), since=self._since)
        self._alone = number if found is None else None
        return found


def take_up(flow: FlowSpec, store: Store) -> FollowedFlow | None:
    """Begin to follow, or go on; None for a flow that binds its sources itself, which holds no other one then.

    Raises what says that the flow cannot be followed.
    """
    following = flow.following
    for other in store.followed(flow.name) - ({following.flow} if following else set()):
        with suppress(UnknownName):
            store.release(other, holder_of(flow.name))
    if following is None:
        return None
    configs = {name: source.describe() for name, source in flow.sources.items()}
    owner = FollowedFlow(following, store.check_following(flow.name, following, configs), configs)
    held = {one.owner for one in store.holds(following.flow)}
    if holder_of(flow.name) not in held:
        hold(flow, store, 0)
    return owner


def catch_up(flow: FlowSpec, store: Store, lease: Lease, owner: FollowedFlow) -> None:
    """Bind all that the owner has bound, many epochs at once, before the flow is opened."""
    found = store.flow(flow.name)
    upper = 0 if found is None else found.upper
    while True:
        followed = store.follow(
            lease, owner.following, expected=upper, incarnation=owner.incarnation, configs=owner.configs
        )
        if not followed.links:
            return
        upper = followed.links[-1].epoch + 1


def hold(flow: FlowSpec, store: Store, lacks: int) -> None:
    """Hold the owner's epochs from the last one on that every output here has. lacks: the first that one lacks."""
    if flow.following is None:
        return
    owner, me = flow.following.flow, holder_of(flow.name)
    try:
        with suppress(HoldNotBound, UnknownName):  # the owner went back, or away: the next look says so
            store.hold(owner, me, max(lacks - 1, 0))
    except HoldTooEarly as error:  # nobody needs earlier ones: what is followed is kept here
        store.hold(owner, me, error.evidence["since"])
