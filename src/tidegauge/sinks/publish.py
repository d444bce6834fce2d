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
long. A flow that follows this one (`remap.store.following`) is like one more output of every source: its hold says
how far all of its outputs are.

Invariants. `published` never passes what some live output lacks, nor what nobody holds, and moves by
compare-and-append. Upstream's
acknowledged position never passes the position that every output holds durably, translated through the durable
bindings (law 4); and nothing is acknowledged before it is published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Final, TypeAlias

from tidegauge import reclock
from tidegauge.dataflow import (
    Capability,
    InputCapability,
    OperatorBuilder,
    OperatorContext,
    OperatorInput,
    OperatorOutput,
    Scope,
    Stream,
)
from tidegauge.env import Env
from tidegauge.remap.derived import Derived
from tidegauge.remap.frontier import ORIGIN, Frontier
from tidegauge.remap.store import Lease, Store
from tidegauge.remap.timeline import Timeline
from tidegauge.sinks.patience import Patience
from tidegauge.sinks.pausing import Pausing
from tidegauge.sinks.persist import Committed

__all__ = ["Published", "publish", "resumption"]


AGAIN: Final = 1.0
"""Seconds after which a follower that lags is looked after again."""


Sending: TypeAlias = Capability | InputCapability
"""What permits to send."""


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
    derived: Mapping[str, Derived],
    uppers: Mapping[str, int],
    since: int,
    patience: Patience,
    followed: Callable[[], int | None],
    reach: Callable[[int], None] | None = None,
) -> Mapping[str, Stream[Frontier]]:
    """Build the operator: for each source a stream of frontiers to acknowledge; one that did not move is not sent.

    readers: the source that each output reads. derived: those of the sources that are made of others, which are told
    in their place. uppers: the outputs' uppers at the start. since: the epochs before it were published by then.
    patience: of outputs that do not go on; it is looked at with each publication. followed: returns the first epoch
    that some follower lacks, None without any. reach: is told the first epoch that some output lacks, at the start
    and when it moves.
    """
    builder = OperatorBuilder(published.scope, "resumption")
    builder.input(published)
    builder.input(committed)
    origins = {name: derived[source].made_of if source in derived else (source,) for name, source in readers.items()}
    sources = sorted(set(chain.from_iterable(origins.values())))
    outputs: dict[str, Stream[Frontier]] = {source: builder.output() for source in sources}

    def build(context: OperatorContext) -> Callable[[list[OperatorInput], list[OperatorOutput]], None]:
        held, upto, beginning, told_reach = dict(uppers), since, True, -1
        kept: dict[str, Capability] = {}
        told, reached = dict.fromkeys(sources, ORIGIN), dict.fromkeys(sources, -1)

        def standing() -> dict[str, dict[str, int]]:
            """Return the uppers that hold each source back: those of its outputs, and the published one."""
            spent = patience.spent(held)
            found: dict[str, dict[str, int]] = {source: {"": upto} for source in sources}  # no output has that name
            for name, upper in held.items():
                for source in () if name in spent else origins[name]:
                    found[source][name] = upper
            return found

        def held_of(source: str, uppers: Mapping[str, int]) -> Frontier:
            """Return what all hold of a source, each by the bindings of what it reads."""
            read: dict[str, dict[str, int]] = {source: {"": uppers[""]}}
            for name in uppers.keys() - {""}:
                read.setdefault(readers[name], {})[name] = uppers[name]
            found = [reclock.resumption({one: timeline.tables[one]}, read[one])[one] for one in read]
            incarnation = timeline.bound(source).incarnation
            parts = [
                frontier if one == source else derived[one].part_of(source, frontier, incarnation=incarnation)
                for one, frontier in zip(read, found, strict=True)
            ]
            return reduce(Frontier.meet, parts)

        def tell(source: str, uppers: Mapping[str, int], handle: OperatorOutput, by: Sending) -> None:
            """Tell the upstream of a source how far all is held, if that is further than before."""
            if min(uppers.values()) <= reached[source]:  # less once an output goes on whose patience was spent
                return
            reached[source] = min(uppers.values())
            frontier = held_of(source, uppers)
            if told[source] != frontier:
                told[source] = frontier
                handle.give(by, [frontier])

        def step(inputs: list[OperatorInput], handles: list[OperatorOutput]) -> None:
            """Tell upstream of what moved, and at the start: the run before may not have, and nothing may come."""
            nonlocal upto, beginning, told_reach
            moved: InputCapability | None = None
            for capability, commits in inputs[1].drain():  # of one that lagged, perhaps: then nothing is published
                moved = capability
                held.update({done.output: done.upper for done in commits})
            for capability, publications in inputs[0].drain():
                moved, upto = capability, publications[-1].upper
            if beginning:
                kept.update(zip(sources, context.capabilities, strict=True))
            if moved is None and not kept:
                return
            uppers = standing()
            if not kept and all(min(uppers[source].values()) <= reached[source] for source in sources):
                return
            beginning = False
            lacked = followed()  # right before: one may have begun to follow
            most = upto if lacked is None else min(lacked, upto)
            for port, (source, handle) in enumerate(zip(sources, handles, strict=True)):
                tell(source, {**uppers[source], "": most}, handle, moved or kept[source])
                if most < upto and moved is not None and source not in kept:
                    kept[source] = moved.retain(port)
                elif most == upto and source in kept:
                    kept.pop(source).drop()
            if most < upto:  # a follower says nothing here, so it is looked after
                context.activator.activate_after(AGAIN)
            if reach is not None and (least := min([most, *reached.values()])) > told_reach:
                told_reach = least
                reach(least)

        context.activator.activate()
        return step

    builder.build(build, notify=False)
    return outputs
