"""Operators that look at one batch at a time and keep nothing: but to be inspected, they never ask for frontiers.

>>> from tidegauge.dataflow import INT, Worker
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     numbers, stream = scope.input("numbers")
...     odd = stream.filter(lambda n: n % 2 == 1)
...     _ = odd.concat(stream.map(lambda n: -n)).inspect(print)
>>> numbers.send(1); numbers.send(2); numbers.close()
>>> while worker.step(): pass
(0,) 1
(0,) -1
(0,) -2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidegauge.dataflow.build import OperatorBuilder, OperatorContext, Step
from tidegauge.dataflow.frontier import Antichain
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput, has_run

if TYPE_CHECKING:
    from tidegauge.dataflow.scope import Scope
    from tidegauge.dataflow.stream import Stream

__all__ = ["concatenate", "each", "inspect"]


def each(stream: Stream[Any], name: str, function: Callable[[Any], Iterable[Any]]) -> Stream[Any]:
    """Send every batch of `function(batch)` at the time of `batch`."""

    def build(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
        context.capabilities[0].drop()

        def step(inlet: OperatorInput, output: OperatorOutput) -> None:
            for capability, batch in inlet.drain():
                for result in function(batch):
                    output.give(capability, result)

        return step

    return stream.unary(name, build, notify=False)


def inspect(
    stream: Stream[Any],
    name: str,
    look: Callable[[tuple[Any, ...], Any], object],
    frontier: Callable[[Antichain[Any]], object] | None,
) -> Stream[Any]:
    """Call `look(stamp, batch)` for each batch and send it on; before that `frontier(now)`, if it has changed."""

    def build(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
        context.capabilities[0].drop()
        told = Antichain([context.order.minimum], context.order)

        def step(inlet: OperatorInput, output: OperatorOutput) -> None:
            nonlocal told
            if frontier is not None and (now := inlet.frontier.antichain()) != told:
                told = now
                has_run(frontier(now), path=context.path, role="the function of the frontier")
            for capability, batch in inlet.drain():
                has_run(look(capability.stamp, batch), path=context.path, role="the function of the batches")
                output.give(capability, batch)

        return step

    return stream.unary(name, build, notify=frontier is not None)


def concatenate(scope: Scope, streams: Sequence[Stream[Any]]) -> Stream[Any]:
    """Send what comes on all of the streams."""
    builder = OperatorBuilder(scope, "concat")
    for stream in streams:
        builder.input(stream)
    result = builder.output()

    def build(context: OperatorContext) -> Step:
        context.capabilities[0].drop()

        def step(inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
            for inlet in inputs:
                for capability, batch in inlet.drain():
                    outputs[0].give(capability, batch)

        return step

    builder.build(build, notify=False)
    return result
