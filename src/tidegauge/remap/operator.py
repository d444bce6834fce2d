"""The remap operator: on each tick it asks every source how far it is, and binds the answers to the next epoch.

Invariants. A binding is durable before anything downstream hears of it (law 2). One tick makes at most one binding,
for all sources in one compare-and-append; a tick without news makes none. The operator holds the capability for the
epoch that it would mint next, so the frontier of its output is exactly the upper of the timeline.

It is the clock of the flow: its looks probe the sources. A look is one message that names the sources to ask; the
sweep asks them, beside the worker. The flow's policy (`policy`) decides when to look, and whether the findings are
bound then; a look follows at once if a source reported more than an epoch takes, or if somebody asks for one
(`requests`). A source is not asked while some output of it lacks `AHEAD` epochs. A source that does not answer keeps
its frontier. In both cases the others go on; but without a *required* source nothing is bound.

The rows of a tick's life, as events in and effects out:

    Answer(observed) -> remembered; when the round is over and it is a tick: mint -> append bindings -> Span
    Answer(observed) -> what upstream has taken back, where its user goes on without: record gap
    Answer(columns)  -> other columns than the source has: the flow is opened anew with them; nothing of it is bound
    Answer(failure)  -> record failure; the source is not asked again
    Failure          -> the source is not asked again; the stage operator tells it, which has recorded it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import pyarrow as pa

from tidegauge.dataflow import (
    EventQueue,
    Messages,
    OperatorBuilder,
    OperatorContext,
    OperatorOutput,
    Scope,
    Stream,
)
from tidegauge.env import Env
from tidegauge.errors.base import Definite
from tidegauge.errors.running import TickHeld, UpstreamRecreated
from tidegauge.errors.sources import EndTakenBack
from tidegauge.remap.binding import Observation, Proposal
from tidegauge.remap.derived import Derived, as_bound
from tidegauge.remap.frontier import Frontier
from tidegauge.remap.mint import mint
from tidegauge.remap.policy import LOOK, SECOND, Due, Manual, Pace, Policy, enough
from tidegauge.remap.round import Answer, Asking, Failure, Requests, Round
from tidegauge.remap.store import Gap, Lease, Store
from tidegauge.remap.timeline import Timeline

__all__ = ["AHEAD", "PATIENCE", "Bindings", "RemapSetup", "Span", "Watcher", "caught_up", "recreated", "remap"]

AHEAD = 256
"""How many epochs may be bound and neither be published nor in every output of a source before it is asked again."""

PATIENCE = 30.0
"""Seconds after which a round goes on without the sources that have not answered."""

_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Span:
    """The epochs `[lower, upper)` are bound, durably."""

    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class Bindings:
    """The outputs of the remap operator: the spans that are bound, and whom to ask."""

    spans: Stream[Span]
    asked: Stream[Asking]


class Watcher(Protocol):
    """Is told what the remap operator learns of the sources, for people."""

    def answered(self, answer: Answer) -> None: ...  # noqa: D102
    def minted(self) -> None: ...  # noqa: D102
    def failed(self, failure: Failure) -> None: ...  # noqa: D102
    def settled(self, *, caught_up: bool, awaited: tuple[str, ...]) -> None: ...  # noqa: D102


def caught_up(timeline: Timeline, answers: Mapping[str, Answer], live: set[str]) -> bool:
    """Whether every live source has said in this round that all it has is bound."""
    for source in live:
        answer = answers.get(source)
        if answer is None or answer.observed is None or answer.observed.more or answer.observed.coming:
            return False
        if not answer.observed.upper.less_equal(timeline.tables[source].frontier):
            return False
    return True


def recreated(source: str, known: str, found: str) -> UpstreamRecreated | None:
    """Return the error of an upstream that is not the one that was bound, None when it is (law 9)."""
    if not known or not found or known == found:
        return None
    return UpstreamRecreated(source=source, known=known, found=found)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemapSetup:
    """What the operator works with.

    resume: the epoch to read the flow again from; it is announced first. live: the sources that can be asked.
    answers: the answers of all of them. record_failure: makes that of a source durable. failures: those that staging
    found, durable by then. published: the published upper. held: the first epoch that is not published and that some
    output of a source lacks. ticking: whether to look at the sources at all. policy: when to look, and when to bind.
    requests: additional ticks that somebody asks for. required: sources that are not sealed and without whose answer
    nothing is bound. units: the unit of each source's positions. columned: who hears of other columns than a source
    has, of those that are scouted: the flow is opened anew with these before a record that has them is bound.
    derived: the sources that are made of others; they are bound with these, and not asked.
    """

    timeline: Timeline
    store: Store
    lease: Lease
    env: Env
    policy: Policy
    requests: Requests
    required: frozenset[str]
    units: Mapping[str, str]
    resume: int
    live: Collection[str]
    answers: EventQueue
    record_failure: Callable[[Failure], None]
    failures: EventQueue
    published: Callable[[], int]
    held: Callable[[str], int]
    ticking: Callable[[], bool]
    watcher: Watcher
    columned: Mapping[str, Callable[[pa.Schema], None]] = field(default_factory=dict)
    derived: Mapping[str, Derived] = field(default_factory=dict)


def remap(scope: Scope, setup: RemapSetup) -> Bindings:
    """Build the operator."""
    builder = OperatorBuilder(scope, "remap")
    spans: Stream[Span] = builder.output()
    asked: Stream[Asking] = builder.output()
    builder.build(lambda context: _Remap(context, setup).step)
    return Bindings(spans, asked)


class _Remap:
    """The operator's state. All of it can be lost: what lasts is in the store."""

    def __init__(self, context: OperatorContext, setup: RemapSetup) -> None:
        self.setup = setup
        self.timeline = setup.timeline
        self.queues = (setup.failures, setup.answers)
        self.activator = context.activator
        self.capability, self.asking_capability = context.capabilities
        self.live = set(setup.live)
        self.required = set(setup.required)
        self.derived = dict(setup.derived)
        self.behind = set(setup.derived)
        """The derived sources that may lack something that is bound of their inputs: they may be new."""
        self.round: Round | None = None
        self.number = 0
        self.pace = Pace.of(setup.policy)
        self.due = Due.NOTHING
        self.hurry = False
        self.answers: dict[str, Answer] = {}
        self.announced = setup.resume
        for queue in self.queues:
            queue.attach(context.sync_activator())
        setup.requests.open(context.sync_activator().activate)
        for held in context.capabilities:
            held.downgrade(setup.resume)

    def step(self, _inputs: list[Any], outputs: list[OperatorOutput]) -> None:
        """Take in answers, bind when a round is over, announce new bindings, tick when it is time."""
        for queue in self.queues:
            for event in queue.drain():
                if isinstance(event, Messages):
                    for said in event.batch:
                        self.fail(said) if isinstance(said, Failure) else self.hear(said)
        now = self.setup.env.monotonic()
        if self.round is not None and self.round.over(now=now):
            self.round = None
            self.settle({s: a.observed for s, a in self.answers.items() if a.observed is not None and s in self.live})
        self.announce(outputs[0])
        if self.round is None:
            self.tick(outputs, now)

    def hear(self, answer: Answer) -> None:
        """Remember what a source answered; a definite error is the end of its source."""
        if answer.source not in self.live:
            return
        self.setup.watcher.answered(answer)
        self.answers[answer.source] = answer
        if self.round is not None and answer.tick == self.round.number:
            self.round.answered(answer.source)
        error = answer.error
        if answer.observed is not None:
            self.timeline.look(answer.source, answer.observed)
            error = recreated(answer.source, self.timeline.identity(answer.source), answer.observed.identity)
            self.note(answer.source, answer.observed)
        if isinstance(error, Definite):
            failure = Failure(answer.source, None, self.timeline.upper, error)
            self.setup.record_failure(failure)
            self.fail(failure)

    def note(self, source: str, observed: Observation) -> None:
        """Note durably what upstream has taken back before it was bound, of the epoch from which on it is missing."""
        for partition, (lower, upper) in observed.taken_back.items():
            error = EndTakenBack(place=partition, seen=upper, end=lower)
            place = (source, self.timeline.upper, partition, lower, upper)
            self.setup.store.record_gap(self.setup.lease, Gap(*place, observed.at, error.code, error.summary))

    def fail(self, failure: Failure) -> None:
        """Ask a source no more that has failed, which is durable. Of several failures, the least epoch counts.

        A source that is no longer asked can be found to have failed too: when an epoch is read that was bound before.
        """
        self.live.discard(failure.source)
        self.derived.pop(failure.source, None)
        self.behind.discard(failure.source)
        if self.round is not None:  # what it answers now is not heard, so nobody waits for it
            self.round.answered(failure.source)
        self.setup.watcher.failed(failure)

    def settle(self, observations: Mapping[str, Observation]) -> None:
        """End a look: bind what it found when it is a tick, and tell those who asked for one."""
        setup = self.setup
        awaited = self.awaited(observations)
        epoch = None
        bound = {source: self.timeline.tables[source].frontier for source in observations}
        tick = self.due is Due.TICK or enough(setup.policy, bound, observations, units=setup.units)
        others = self.columned(observations)
        if setup.ticking() and tick and not awaited:
            epoch = self.bind({s: said for s, said in observations.items() if s not in others}, bound)
        if setup.ticking() and not others:  # else who asked for the tick gets the one that follows
            self.tell(epoch, awaited)
        done = caught_up(self.timeline, self.answers, self.live) and not self.behind
        setup.watcher.settled(caught_up=done, awaited=awaited)

    def columned(self, observations: Mapping[str, Observation]) -> frozenset[str]:
        """Tell of scouted sources with other columns than they have, and return them: the flow is opened anew."""
        others = dict[str, pa.Schema]()
        for source in self.setup.columned.keys() & observations.keys():
            found, known = observations[source].schema, self.timeline.schema(source)
            if found is not None and known is not None and not found.equals(known):
                others[source] = found
        for source, found in others.items():
            self.setup.columned[source](found)
        return frozenset(others)

    def awaited(self, observations: Collection[str]) -> tuple[str, ...]:
        """Return the required sources that have not said how far they are."""
        return tuple(sorted(self.required.difference(observations)))

    def tell(self, epoch: int | None, awaited: tuple[str, ...]) -> None:
        """Answer to those who asked for the tick that is over."""
        if awaited:
            self.setup.requests.refuse(TickHeld(sources=awaited))
        else:
            self.setup.requests.answer(epoch)

    def bind(self, observations: Mapping[str, Observation], bound: Mapping[str, Frontier]) -> int | None:
        """Make the next epoch durable, if anything moved or a source has another state, and return it.

        A source is bound only once its columns are known. bound: where the sources stand.
        """
        setup = self.setup
        for source, observed in observations.items():
            if observed.schema is not None and self.timeline.schema(source) is None:
                setup.store.record_schema(setup.lease, source, observed.schema)
                self.timeline.fix_schema(source, observed.schema)
        known = {s: p for s, p in observations.items() if self.timeline.schema(s) is not None}
        proposals = mint(bound, known, states=self.timeline.states())
        proposals |= self.derive(proposals)
        self.behind.clear()
        if not proposals:
            return None
        at = max((observed.at for observed in known.values()), default=setup.env.now())
        epoch = setup.store.append(setup.lease, expected=self.timeline.upper, at=at, proposals=proposals)
        self.timeline.append(epoch, proposals, at=at)  # after the store: others act on what the timeline shows
        ended = {source for source, proposal in proposals.items() if proposal.frontier.sealed}
        self.live -= ended
        self.required -= ended
        setup.watcher.minted()
        self.hurry = not isinstance(setup.policy, Manual) and any(observed.more for observed in observations.values())
        return epoch

    def derive(self, proposals: Mapping[str, Proposal]) -> dict[str, Proposal]:
        """Return the proposals of derived sources that go with those of their inputs; see `remap.derived`."""
        found: dict[str, Proposal] = {}
        for name, source in list(self.derived.items()):
            if name not in self.behind and proposals.keys().isdisjoint(source.made_of):
                continue
            mine = self.timeline.bound(name)
            inputs = {one: as_bound(self.timeline.bound(one), proposals.get(one)) for one in source.made_of}
            try:
                observed = source.derive(mine, inputs, now=self.setup.env.now())
            except Definite as error:
                failure = Failure(name, None, self.timeline.upper, error)
                self.setup.record_failure(failure)
                self.fail(failure)
                continue
            self.timeline.look(name, observed)
            self.setup.watcher.answered(Answer(name, self.number, observed))
            found |= mint({name: mine.frontier}, {name: observed})
        return found

    def announce(self, output: OperatorOutput) -> None:
        """Tell of the epochs that have become durable, and give up the capability for them."""
        if self.announced < self.timeline.upper:
            output.give(self.capability, [Span(self.announced, self.timeline.upper)])
            self.announced = self.timeline.upper
            for held in (self.capability, self.asking_capability):
                held.downgrade(self.announced)

    def tick(self, outputs: list[OperatorOutput], now: float) -> None:
        """Ask every live source, when it is time; otherwise come back then."""
        setup = self.setup
        ahead = self.ahead()
        if not setup.ticking() or (ahead and ahead == self.live):
            self.activator.activate_after(LOOK if isinstance(setup.policy, Manual) else setup.policy.between)
            return
        clock = (setup.env.now() - _ZERO) // _MICRO
        wanted = setup.requests.begin()
        self.pace, self.due = self.pace.step(clock)
        if wanted or self.hurry:
            self.due = Due.TICK
        wait = self.pace.wait(clock)
        if not self.live:
            epoch = self.bind({}, {}) if self.behind else None  # their inputs have all ended, or failed
            self.announce(outputs[0])
            self.tell(epoch, self.awaited(()))
        elif self.due is not Due.NOTHING:
            self.number += 1
            self.hurry = False
            self.answers = {s: answer for s, answer in self.answers.items() if s in self.live and _last(answer)}
            asked = self.live - self.answers.keys() - ahead
            self.round = Round(self.number, now + PATIENCE, asked)
            if asked:
                bounds = {source: self.timeline.bound(source) for source in sorted(asked)}
                outputs[1].give(self.asking_capability, [Asking(self.number, bounds)])
            self.activator.activate_after(PATIENCE if asked else 0.0)
        elif wait is not None:
            self.activator.activate_after(wait / SECOND)

    def ahead(self) -> set[str]:
        """Return the live sources that are not to be asked, because too much that is bound of them waits."""
        upper, setup = self.timeline.upper, self.setup
        if upper - setup.published() < AHEAD:
            return set()
        return {source for source in self.live if upper - setup.held(source) >= AHEAD}


def _last(answer: Answer) -> bool:
    """Whether a reader has said all that it ever will. When it comes after its round, it is kept for the next one."""
    return answer.observed is not None and answer.observed.upper.sealed
