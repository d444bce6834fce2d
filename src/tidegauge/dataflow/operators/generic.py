"""Operators with a fixed number of ports, as functions of their handles.

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
...     _ = scope.source("ticks", build).inspect(print)
>>> while worker.step(): pass
(0,) [0]
(1,) [1]
(2,) [2]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegauge.dataflow.build import OperatorBuilder, OperatorContext, Step
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput

if TYPE_CHECKING:
    from tidegauge.dataflow.scope import Scope
    from tidegauge.dataflow.stream import Stream

__all__ = ["binary", "sink", "source", "unary"]


def source(
    scope: Scope, name: str, build: Callable[[OperatorContext], Callable[[OperatorOutput], bool | None]]
) -> Stream[Any]:
    """Add an operator without input. It runs once, and then whenever it is activated."""
    builder = OperatorBuilder(scope, name)
    stream = builder.output()

    def whole(context: OperatorContext) -> Step:
        step = build(context)
        return lambda _inputs, outputs: step(outputs[0])

    builder.build(whole)
    return stream


def sink(
    stream: Stream[Any], name: str, build: Callable[[OperatorContext], Callable[[OperatorInput], bool | None]]
) -> None:
    """Add an operator without output. It runs for each change of its input's frontier."""
    builder = OperatorBuilder(stream.scope, name)
    builder.input(stream)

    def whole(context: OperatorContext) -> Step:
        step = build(context)
        return lambda inputs, _outputs: step(inputs[0])

    builder.build(whole)


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

    def whole(context: OperatorContext) -> Step:
        step = build(context)
        return lambda inputs, outputs: step(inputs[0], outputs[0])

    builder.build(whole, notify=notify)
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

    def whole(context: OperatorContext) -> Step:
        step = build(context)
        return lambda inputs, outputs: step(inputs[0], inputs[1], outputs[0])

    builder.build(whole, notify=notify)
    return result
