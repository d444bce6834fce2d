"""The follow operator: in a flow that shares another one's sources it stands where `remap` stands in others.

On each look it asks the store for the epochs that the owner has bound since, and binds the same (`store.following`).
It probes nothing. What it binds is durable by then in both flows, whether the owner has published it or not: a
binding never changes, so nobody has to wait for the owner's tables.

Invariants. A binding is durable before anything downstream hears of it (law 2). The operator holds the capability for
the epoch that it would bind next. An epoch is the owner's of that number, so nothing is minted here, whatever the
policy; that says when to look.

What came along and a run knows from its opening (another incarnation of a source, a loss) has the flow opened anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tidegauge.dataflow import EventQueue, Messages, OperatorBuilder, OperatorContext, OperatorOutput, Scope, Stream
from tidegauge.env import Env
from tidegauge.remap.binding import Observation
from tidegauge.remap.operator import Span, Watcher
from tidegauge.remap.policy import LOOK, SECOND, Due, Manual, Pace, Policy
from tidegauge.remap.round import Answer, Failure, Requests
from tidegauge.remap.store import Followed, Following, Lease, Store
from tidegauge.remap.timeline import Timeline

__all__ = ["FollowSetup", "follow"]

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO: Final = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowSetup:
    """What the operator works with.

    following: whom the flow follows; incarnation: which flow of that name. configs: how this flow describes the
    sources. resume: the epoch to read the flow again from; it is announced first. live: the sources that have neither
    failed nor ended. failures: those that staging found, durable by then. ticking: whether to look at all. policy:
    when to look. requests: additional looks that somebody asks for. anew: has the flow opened again.
    """

    timeline: Timeline
    store: Store
    lease: Lease
    env: Env
    policy: Policy
    requests: Requests
    following: Following
    incarnation: str
    configs: Mapping[str, Mapping[str, Any]]
    resume: int
    live: Collection[str]
    failures: EventQueue
    ticking: Callable[[], bool]
    watcher: Watcher
    anew: Callable[[], None]


def follow(scope: Scope, setup: FollowSetup) -> Stream[Span]:
    """Build the operator. Its output are the spans that are bound."""
    builder = OperatorBuilder(scope, "follow")
    spans: Stream[Span] = builder.output()
    builder.build(lambda context: _Follow(context, setup).step)
    return spans


class _Follow:
    """The operator's state. All of it can be lost: what lasts is in the store."""

    def __init__(self, context: OperatorContext, setup: FollowSetup) -> None:
        self.setup = setup
        self.timeline = setup.timeline
        self.activator = context.activator
        self.capability = context.capabilities[0]
        self.live = set(setup.live)
        self.pace = Pace.of(setup.policy)
        self.looks = 0
        self.announced = setup.resume
        self.left = False
        setup.failures.attach(context.sync_activator())
        setup.requests.open(context.sync_activator().activate)
        self.capability.downgrade(setup.resume)

    def step(self, _inputs: list[Any], outputs: list[OperatorOutput]) -> None:
        """Hear of failures, announce new bindings, look when it is time."""
        for event in self.setup.failures.drain():
            for failure in event.batch if isinstance(event, Messages) else ():
                self.fail(failure)
        self.look()
        if self.announced < self.timeline.upper:
            outputs[0].give(self.capability, [Span(self.announced, self.timeline.upper)])
            self.announced = self.timeline.upper
            self.capability.downgrade(self.announced)

    def fail(self, failure: Failure) -> None:
        """Say that a source has failed here, whatever the owner makes of it."""
        self.live.discard(failure.source)
        self.setup.watcher.failed(failure)

    def look(self) -> None:
        """Bind what the owner has bound, when it is time; otherwise come back then."""
        setup = self.setup
        if self.left:
            return
        if not setup.ticking():
            self.activator.activate_after(LOOK if isinstance(setup.policy, Manual) else setup.policy.between)
            return
        clock = (setup.env.now() - _ZERO) // _MICRO
        wanted = setup.requests.begin()
        self.pace, due = self.pace.step(clock)
        if wanted or due is not Due.NOTHING:
            self.follow()
        if (wait := self.pace.wait(clock)) is not None and not self.left:
            self.activator.activate_after(max(wait / SECOND, 0.0))

    def follow(self) -> None:
        """Bind what the owner has bound, and say so."""
        setup, at = self.setup, self.setup.env.now()
        before = self.timeline.upper
        followed = setup.store.follow(
            setup.lease,
            setup.following,
            expected=before,
            incarnation=setup.incarnation,
            configs=setup.configs,
        )
        if followed.anew or any(link.whole for link in followed.links):
            self.left = True  # what is bound is read again, when the flow is opened
            setup.anew()
            return
        for source, schema in followed.schemas.items():
            if self.timeline.schema(source) is None:
                self.timeline.fix_schema(source, schema)
        for link in followed.links:
            self.timeline.follow(link)
        if followed.links:
            self.live = {name for name in self.live if not self.timeline.tables[name].frontier.sealed}
            setup.watcher.minted()
        setup.requests.answer(self.timeline.upper - 1 if followed.links else None)
        caught_up = self.timeline.upper >= followed.owned
        if caught_up:
            self.answer(followed, at)
        else:
            self.activator.activate()
        setup.watcher.settled(caught_up=caught_up, awaited=())

    def answer(self, followed: Followed, at: datetime) -> None:
        """Say of each source that all is bound here which the owner has bound, and why that is no more."""
        self.looks += 1
        for name in sorted(self.live):
            frontier = self.timeline.tables[name].frontier
            why = followed.failures.get(name)
            note = f"it has failed in flow {self.setup.following.flow!r}: {why}" if why else ""
            observed = Observation(at=at, upper=frontier, end=frontier, note=note)
            self.setup.watcher.answered(Answer(name, self.looks, observed))
