"""Publish: an epoch is published when every output that follows live holds it.

The operator listens to frontiers alone. Its input is the outputs' streams joined; the frontier of the join is the
least upper over the outputs, because each persist sink holds its capability until its commit is durable. An output
that failed for good has dropped its capability, on purpose, and is not waited for.

Invariant: `published` never passes what some live output lacks, and moves by compare-and-append.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegauge.dataflow import OperatorBuilder, OperatorContext, OperatorInput, OperatorOutput, Stream
from tidegauge.env import Env
from tidegauge.remap.store import Lease, Store
from tidegauge.remap.timeline import Timeline
from tidegauge.sinks.persist import Committed

__all__ = ["Published", "publish"]


@dataclass(frozen=True, slots=True)
class Published:
    """Every epoch before `upper` is published."""

    upper: int


def publish(
    committed: Stream[Committed],
    *,
    store: Store,
    lease: Lease,
    timeline: Timeline,
    published: int,
    env: Env,
    watch: Callable[[int], None],
) -> Stream[Published]:
    """Build the operator. `published` is the upper that is published already, `watch` is told each new one."""
    builder = OperatorBuilder(committed.scope, "publish")
    builder.input(committed)
    output: Stream[Published] = builder.output()

    def build(context: OperatorContext) -> Callable[[list[OperatorInput], list[OperatorOutput]], None]:
        capability = context.capabilities[0]
        upper = published

        def step(inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
            nonlocal upper
            for _capability, _batch in inputs[0].drain():
                pass
            elements = inputs[0].frontier.elements()
            held = min(elements) if elements else timeline.upper
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
