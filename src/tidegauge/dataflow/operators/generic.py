"""Operators with a fixed number of ports, as functions of their handles, and those that look at one batch at a time.

The latter keep nothing and, but to be inspected, never ask for frontiers.

>>> from tidegauge.dataflow import INT, Worker
>>> worker = Worker(monotonic=lambda: 0.0)
>>> def build(context):
...     held = context.capabilities[0]
...     def step(output):
...         output.session(held).give([held.time])
...         if held.time == 2:
...             held.drop()
...         else:
...             held.downgrade(held.time + 1)
...             context.activator.activate()
...     return step
>>> with worker.dataflow("clock", order=INT) as scope:
...     ticks = scope.source("ticks", build)
...     _ = ticks.filter(lambda n: n != [1]).concat(ticks.map(len)).inspect(print)
>>> while worker.step(): pass
(0,) [0]
(0,) 1
(1,) 1
(2,) [2]
(2,) 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegauge.dataflow.build import OperatorBuilder, OperatorContext, Step
from tidegauge.dataflow.frontier import Antichain
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput, has_run

if TYPE_CHECKING:
    from tidegauge.dataflow.scope import Scope
    from tidegauge.dataflow.stream import Stream

__all__ = ["binary", "concatenate", "each", "inspect", "sink", "source", "unary"]


def source(
    scope: Scope, name: str, build: Callable[[OperatorContext], Callable[[OperatorOutput], bool | None]]
) -> Stream[Any]:
    """Add an operator without input. It runs once, and then whenever it is activated."""
    builder = OperatorBuilder(scope, name)
    stream = builder.output()

    builder.install(lambda context, operator: partial(build(context), operator.outputs[0]), notify=False)
    return stream


def sink(
    stream: Stream[Any], name: str, build: Callable[[OperatorContext], Callable[[OperatorInput], bool | None]]
) -> None:
    """Add an operator without output. It runs for each change of its input's frontier."""
    builder = OperatorBuilder(stream.scope, name)
    builder.input(stream)

    builder.install(lambda context, operator: partial(build(context), operator.inputs[0]), notify=True)


def unary(
    stream: Stream[Any],
    name: str,
    build: Callable[[OperatorContext], Callable[[OperatorInput, OperatorOutput], bool | None]],
    *,
    notify: bool = True,
) -> Stream[Any]:
    """Add an operator of one input and one output."""
    builder = OperatorBuilder(stream.scope, name)
    builder.input(stream)
    result = builder.output()

    builder.install(
        lambda context, operator: partial(build(context), operator.inputs[0], operator.outputs[0]), notify=notify
    )
    return result


def binary(
    stream: Stream[Any],
    other: Stream[Any],
    name: str,
    build: Callable[[OperatorContext], Callable[[OperatorInput, OperatorInput, OperatorOutput], bool | None]],
    *,
    notify: bool,
) -> Stream[Any]:
    """Add an operator of two inputs and one output."""
    builder = OperatorBuilder(stream.scope, name)
    builder.input(stream)
    builder.input(other)
    result = builder.output()

    builder.install(
        lambda context, operator: partial(
            build(context), operator.inputs[0], operator.inputs[1], operator.outputs[0]
        ),
        notify=notify,
    )
    return result


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
    """Send what comes on all of the streams. One alone is that stream already: no operator stands for it."""
    if len(streams) == 1 and streams[0].scope is scope:
        return streams[0]
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
