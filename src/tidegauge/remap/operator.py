"""The remap operator: on each tick it asks every source how far it is, and binds the answers to the next epoch.

Invariants. A binding is durable before anything downstream hears of it (law 2). One tick makes at most one binding,
for all sources in one compare-and-append; a tick in which nothing moved makes none. The operator holds the capability
for the epoch that it would mint next, so the frontier of its output is exactly the upper of the timeline.

It is the clock of the flow: readers probe when they are ticked, and are ticked again after `interval` seconds, or at
once when a source said that there is more. The next tick waits while `ahead` epochs are bound and not yet published.

The rows of a tick's life, as events in and effects out:

    Answer(probe)   -> remembered; when the round is over: mint -> append bindings -> Span
    Answer(failure) -> record failure; the source is not asked again
    Failed(source)  -> the same, told by the stage operator
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidegauge.dataflow import (
    Capability,
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
from tidegauge.remap.binding import Probe
from tidegauge.remap.mint import mint
from tidegauge.remap.round import Answer, Failed, Round, Tick
from tidegauge.remap.store import Lease, Store
from tidegauge.remap.timeline import Timeline

__all__ = ["AHEAD", "Bindings", "Span", "Watcher", "remap"]

AHEAD = 256
"""How many epochs may be bound and not yet published before ticking waits."""

PATIENCE = 30.0
"""Seconds after which a round goes on without the sources that have not answered."""


@dataclass(frozen=True, slots=True)
class Span:
    """The epochs `[lower, upper)` are bound, durably."""

    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class Bindings:
    """The outputs of the remap operator: the spans that are bound, and the ticks for each source's reader."""

    spans: Stream[Span]
    ticks: Mapping[str, Stream[Tick]]


class Watcher(Protocol):
    """Is told what the remap operator learns of the sources, for people."""

    def answered(self, answer: Answer) -> None: ...  # noqa: D102
    def minted(self) -> None: ...  # noqa: D102
    def failed(self, failure: Failed) -> None: ...  # noqa: D102
    def settled(self, *, caught_up: bool) -> None: ...  # noqa: D102


@dataclass(slots=True)
class _State:
    """What the operator remembers between invocations; all of it can be lost."""

    capability: Capability
    live: set[str]
    round: Round | None = None
    ticked_at: float = float("-inf")
    number: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)
    hurry: bool = False


def caught_up(timeline: Timeline, answers: Mapping[str, Answer], live: set[str]) -> bool:
    """Whether every live source has said in this round that all it has is bound."""
    for source in live:
        answer = answers.get(source)
        if answer is None or answer.probe is None or answer.probe.more:
            return False
        if not answer.probe.upper.less_equal(timeline.tables[source].frontier):
            return False
    return True


def remap(
    scope: Scope,
    *,
    timeline: Timeline,
    store: Store,
    lease: Lease,
    env: Env,
    interval: float,
    resume: int,
    answers: Mapping[str, EventQueue],
    failures: EventQueue,
    published: Callable[[], int],
    ticking: Callable[[], bool],
    watcher: Watcher,
) -> Bindings:
    """Build the operator. `resume` is the first epoch that some output does not hold; it is announced first.

    answers: what each live source's reader says, captured in its own scope. failures: `Failed` from the stage
    operator.
    """
    builder = OperatorBuilder(scope, "remap")
    spans: Stream[Span] = builder.output()
    ticks: dict[str, Stream[Tick]] = {source: builder.output() for source in answers}
    ports = {source: 1 + i for i, source in enumerate(ticks)}

    def build(context: OperatorContext) -> Callable[[list[Any], list[OperatorOutput]], None]:
        capability, *tick_capabilities = context.capabilities
        for queue in (*answers.values(), failures):
            queue.attach(context.sync_activator())
        for held in context.capabilities:
            held.downgrade(resume)
        state = _State(capability=capability, live=set(answers))
        announced = resume

        def fail(failure: Failed) -> None:
            if failure.source in state.live:
                store.record_failure(lease, failure.source, failure.epoch, failure.error)
                state.live.discard(failure.source)
                watcher.failed(failure)

        def receive() -> None:
            for event in failures.drain():
                if isinstance(event, Messages):
                    for failure in event.batch:
                        fail(failure)
            for queue in answers.values():
                for event in queue.drain():
                    if isinstance(event, Messages):
                        for answer in event.batch:
                            hear(answer)

        def hear(answer: Answer) -> None:
            if answer.source not in state.live:
                return
            watcher.answered(answer)
            state.answers[answer.source] = answer
            if state.round is not None and answer.tick == state.round.number:
                state.round = state.round.answered(answer.source)
            if isinstance(answer.error, Definite):
                fail(Failed(answer.source, timeline.upper, answer.error))

        def bind(probes: Mapping[str, Probe]) -> None:
            for source, probe in probes.items():
                if timeline.bound(source).schema is None and probe.schema is not None:
                    store.record_schema(lease, source, probe.schema)
                    timeline.fix_schema(source, probe.schema)
            known = {s: p for s, p in probes.items() if timeline.bound(s).schema is not None}
            proposals = mint({s: timeline.tables[s].frontier for s in known}, known)
            if proposals:
                at = max(probe.at for probe in known.values())
                epoch = store.append(lease, expected=timeline.upper, at=at, proposals=proposals)
                timeline.append(epoch, proposals)
                state.live -= {source for source, proposal in proposals.items() if proposal.frontier.sealed}
                watcher.minted()
            state.hurry = bool(proposals) and any(probe.more for probe in probes.values())

        def announce(output: OperatorOutput) -> None:
            nonlocal announced
            if announced < timeline.upper:
                output.give(state.capability, [Span(announced, timeline.upper)])
                announced = timeline.upper
            for held in (state.capability, *tick_capabilities):
                held.downgrade(timeline.upper)

        def tick(outputs: list[OperatorOutput], now: float) -> None:
            due = state.ticked_at if state.hurry else state.ticked_at + interval
            if not ticking() or timeline.upper - published() >= AHEAD:
                context.activator.activate_after(interval)
            elif now < due:
                context.activator.activate_after(due - now)
            elif state.live:
                state.number += 1
                state.ticked_at = now
                state.round = Round(state.number, now + PATIENCE, frozenset(state.live))
                state.answers.clear()
                for source in sorted(state.live):
                    asked = Tick(state.number, timeline.bound(source))
                    outputs[ports[source]].give(tick_capabilities[ports[source] - 1], [asked])
                context.activator.activate_after(PATIENCE)

        def step(_inputs: list[Any], outputs: list[OperatorOutput]) -> None:
            receive()
            now = env.monotonic()
            if state.round is not None and state.round.over(now=now):
                probes = {s: a.probe for s, a in state.answers.items() if a.probe is not None and s in state.live}
                if ticking():
                    bind(probes)
                state.round = None
                watcher.settled(caught_up=caught_up(timeline, state.answers, state.live))
            announce(outputs[0])
            if state.round is None:
                tick(outputs, now)

        return step

    builder.build(build)
    return Bindings(spans, ticks)
