"""Publish and resumption: what follows from the outputs' uppers, in the store and upstream.

*Publish.* An epoch is published when every output that follows live holds it. The operator listens to frontiers
alone: that of each output is its upper, because a persist sink holds its capability until its commit is durable. An
output that failed for good has dropped its capability, on purpose, and is not waited for. A late output is not waited
for either, until it holds everything that is published: from then on it is live. Nor is one that is paused, which
comes back as a late one.

*Resumption.* What every output holds, turned back into the frontier that each source may forget. If every output of
a source has an upper of at least `e + 1`, everything of the source in epochs `0 .. e` is held, and those records
are exactly the ones not beyond `F(e) = inverse(e + 1)`. An output that has failed keeps its upper, and so holds
back the source it reads, as does one that is paused: both until their patience is spent (`patience`). A driver that
starts tells what it finds held: the one before it may have died before it told that, and nothing new may come for
long.

Invariants. `published` never passes what some live output lacks, nor what nobody holds, and moves by
compare-and-append. Upstream's
acknowledged position never passes the position that every output holds durably, translated through the durable
bindings (law 4); and nothing is acknowledged before it is published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from tidegauge import reclock
from tidegauge.dataflow import (
    InputCapability,
    OperatorBuilder,
    OperatorContext,
    OperatorInput,
    OperatorOutput,
    Scope,
    Stream,
)
from tidegauge.env import Env
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.store import Lease, Store
from tidegauge.remap.timeline import Timeline
from tidegauge.sinks.patience import Patience
from tidegauge.sinks.pausing import Pausing
from tidegauge.sinks.persist import Committed

__all__ = ["Published", "publish", "resumption"]


@dataclass(frozen=True, slots=True)
class Published:
    """Every epoch before `upper` is published."""

    upper: int


def publish(
    committed: Mapping[str, Stream[Committed]],
    scope: Scope,
    *,
    late: Collection[str],
    pausing: Pausing,
    store: Store,
    lease: Lease,
    timeline: Timeline,
    published: int,
    env: Env,
    watch: Callable[[int], None],
) -> Stream[Published]:
    """Build the operator.

    committed: of each output. late: those that do not follow live yet. pausing: nor do those that are paused.
    published: the upper that is published already. watch: is told each new one.
    """
    builder = OperatorBuilder(scope, "publish")
    for stream in committed.values():
        builder.input(stream)
    output: Stream[Published] = builder.output()

    def build(context: OperatorContext) -> Callable[[list[OperatorInput], list[OperatorOutput]], None]:
        capability = context.capabilities[0]
        capability.downgrade(published)
        pausing.attach(context.sync_activator().activate)
        upper, live = published, committed.keys() - late

        def step(inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
            nonlocal upper
            uppers: dict[str, int] = {}
            for name, handle in zip(committed, inputs, strict=True):
                for _capability, _batch in handle.drain():
                    pass
                if (front := min(handle.frontier.shown, default=None)) is not None:
                    uppers[name] = front
            live.update(name for name, front in uppers.items() if front >= upper)
            live.difference_update(pausing.outputs)
            followed = [front for name, front in uppers.items() if name in live]
            held = min(followed or uppers.values(), default=timeline.upper)
            if held > upper:
                # Durable before anybody hears of it: upstream may delete what is published.
                store.publish(lease, expected=upper, upper=held, at=env.now())
                upper = held
                watch(upper)
                outputs[0].give(capability, [Published(upper)])
                capability.downgrade(upper)

        return step

    builder.build(build)
    return output


def resumption(
    published: Stream[Published],
    committed: Stream[Committed],
    *,
    timeline: Timeline,
    readers: Mapping[str, str],
    uppers: Mapping[str, int],
    since: int,
    patience: Patience,
) -> Mapping[str, Stream[Frontier]]:
    """Build the operator: for each source a stream of frontiers to acknowledge; one that did not move is not sent.

    readers: the source that each output reads. uppers: the outputs' uppers at the start. since: the epochs before it
    were published by then. patience: of outputs that do not go on; it is looked at with each publication.
    """
    builder = OperatorBuilder(published.scope, "resumption")
    builder.input(published)
    builder.input(committed)
    sources = sorted(set(readers.values()))
    outputs: dict[str, Stream[Frontier]] = {source: builder.output() for source in sources}

    def build(context: OperatorContext) -> Callable[[list[OperatorInput], list[OperatorOutput]], None]:
        held, upto, beginning = dict(uppers), since, True

        def uppers_of(source: str) -> dict[str, int]:
            spent = patience.spent(held)
            mine = {name: upper for name, upper in held.items() if readers[name] == source and name not in spent}
            return {**mine, "": upto}  # no output has an empty name

        def durable(source: str, mine: Mapping[str, int]) -> Frontier:
            return reclock.resumption({source: timeline.tables[source]}, mine)[source]

        told = {source: durable(source, uppers_of(source)) for source in sources}
        reached = {source: min(uppers_of(source).values()) for source in sources}

        def begin(handles: list[OperatorOutput]) -> None:
            """Tell upstream how far all is held: the run before may not have told it, and nothing new may come."""
            for capability, handle, source in zip(context.capabilities, handles, sources, strict=True):
                if told[source] != ORIGIN:
                    handle.give(capability, [told[source]])
                capability.drop()

        def step(inputs: list[OperatorInput], handles: list[OperatorOutput]) -> None:
            nonlocal upto, beginning
            if beginning:
                beginning = False
                begin(handles)
            moved: InputCapability | None = None
            for capability, commits in inputs[1].drain():  # of one that lagged, perhaps: then nothing is published
                moved = capability
                held.update({done.output: done.upper for done in commits})
            for capability, publications in inputs[0].drain():
                moved, upto = capability, publications[-1].upper
            if moved is None:
                return
            for port, source in enumerate(sources):
                least = min((mine := uppers_of(source)).values())
                if least <= reached[source]:  # less once an output goes on whose patience was spent
                    continue
                reached[source] = least
                if told[source] != (frontier := durable(source, mine)):
                    told[source] = frontier
                    handles[port].give(moved, [frontier])

        context.activator.activate()
        return step

    builder.build(build, notify=False)
    return outputs
