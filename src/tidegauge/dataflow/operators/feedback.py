"""Streams that come round again: into a loop at later times, or back to where the next time has to wait for them.

What ends a loop is that nothing is sent round any more, or that a bounded time runs out. Take care: an empty batch is
a batch like any other. Where records are taken out of batches one by one, take out the empty batches as well, by
`filter(bool)`: else they go round for ever.

>>> from tidegauge.dataflow import INT, Worker
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("loop", order=INT) as scope:
...     numbers, stream = scope.input("numbers")
...     handle, again = scope.feedback(1)
...     seen = stream.concat(again).inspect(print)
...     handle.connect(seen.filter(lambda n: n > 0).map(lambda n: n - 1))
>>> numbers.send(2); numbers.close()
>>> while worker.step(): pass
(0,) 2
(1,) 1
(2,) 0

In flow control the next time begins when all before it are through. The downstream end is connected to a handle, and
comes back as a frontier: a time is let go when no earlier one can still come back. Nothing polls: the operator runs
when that frontier moves. The way back causes nothing on the output, so it is no cycle, and time need not advance
along it.

Invariant: of the times between the operator and the stream that was connected, none is strictly before another; so
where every two times compare, one at most is in flight. Within a time nothing is held back.

>>> def tides():
...     for hour in range(3):
...         print("read", hour)
...         yield hour, f"tide {hour}"
>>> with worker.dataflow("gauge", order=INT) as scope:
...     through, stream = scope.paced(tides())
...     through.connect(stream.map(str.upper).inspect(print))
>>> while worker.step(): pass
read 0
read 1
(0,) TIDE 0
read 2
(1,) TIDE 1
(2,) TIDE 2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tidegauge.dataflow.build import Build, OperatorBuilder, OperatorContext, Step
from tidegauge.dataflow.invocation import Operator, OperatorInput, OperatorOutput
from tidegauge.dataflow.operators.input import PORTION
from tidegauge.dataflow.operators.stash import Before, Stash
from tidegauge.dataflow.order import Summary, Time, advance, normal

if TYPE_CHECKING:
    from tidegauge.dataflow.scope import Scope
    from tidegauge.dataflow.stream import Stream

__all__ = ["FeedbackHandle", "ThroughHandle", "feedback", "limit_in_flight", "paced"]


class FeedbackHandle:
    """The end of a loop that is not yet closed."""

    __slots__ = ("_builder", "_summary")

    def __init__(self, builder: OperatorBuilder, summary: Summary) -> None:
        self._builder = builder
        self._summary = summary

    def connect(self, stream: Stream[Any]) -> None:
        """Close the loop. A batch whose time cannot be advanced is dropped. Raises InvalidGraph the second time."""
        summary = self._summary
        self._builder.input(stream, {0: (summary,)})

        def make(context: OperatorContext, operator: Operator) -> Callable[[], None]:
            context.capabilities[0].drop()
            inlet, outbox, order = operator.inputs[0], operator.outputs[0].outbox, context.order

            def step() -> None:
                for capability, batch in inlet.drain():
                    advanced = (advance(order, time, summary) for time in capability.stamp)
                    stamp = tuple(time for time in advanced if time is not None)
                    if stamp:
                        outbox.append((stamp, batch))

            return step

        self._builder.install(make, notify=False)


def feedback(scope: Scope, summary: Summary, name: str) -> tuple[FeedbackHandle, Stream[Any]]:
    """Add a feedback that advances times by `summary`. Raises InvalidSummary."""
    builder = OperatorBuilder(scope, name)
    stream = builder.output()
    return FeedbackHandle(builder, normal(scope.order, summary)), stream


class ThroughHandle:
    """The end of flow control that is not yet connected: times that have passed there are through."""

    __slots__ = ("_build", "_builder")

    def __init__(self, builder: OperatorBuilder, build: Build) -> None:
        self._builder = builder
        self._build = build

    def connect(self, stream: Stream[Any]) -> None:
        """Let go a time when `stream` has passed all before it. Raises InvalidGraph the second time.

        stream: something that comes of the controlled stream; any other might never get there.
        """
        self._builder.input(stream, {})
        self._builder.build(self._build)


def paced(scope: Scope, items: Iterable[tuple[Time, Any]], name: str) -> tuple[ThroughHandle, Stream[Any]]:
    """Send the batches of an iterable of `(time, batch)`; stop reading at the first whose time has to wait.

    Each time is at or beyond the one before it; the operator raises NotBeyond for another.
    """
    builder = OperatorBuilder(scope, name)
    stream = builder.output()
    source = iter(items)

    def build(context: OperatorContext) -> Step:
        held = context.capabilities[0]
        read: list[Any] = []

        def step(inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
            through = inputs[0]
            _discard(through)
            for _ in range(PORTION):
                if not read and held.held:
                    for time, batch in source:
                        held.downgrade(time)
                        read.append(batch)
                        break
                    else:
                        held.drop()
                if not read or through.frontier.less_than(held.time):
                    return
                outputs[0].give(held, read.pop())
            context.activator.activate()

        return step

    return ThroughHandle(builder, build), stream


def limit_in_flight(stream: Stream[Any], name: str) -> tuple[ThroughHandle, Stream[Any]]:
    """Send on the batches of a time when all before it are through; until then they are kept."""
    builder = OperatorBuilder(stream.scope, name)
    builder.input(stream)
    result = builder.output()

    def build(context: OperatorContext) -> Step:
        context.capabilities[0].drop()
        stash: Stash[list[Any]] = Stash(list)

        def step(inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
            arriving, through = inputs
            _discard(through)
            for capability, batch in arriving.drain():
                stash.at(capability.time, capability.retain).append(batch)
            for held, batches in stash.ready([Before(through.frontier)]):
                outputs[0].session(held).give_all(batches)
                held.drop()

        return step

    return ThroughHandle(builder, build), result


def _discard(inlet: OperatorInput) -> None:
    """Take what came back: it is the frontier that matters."""
    for _ in inlet.drain():
        pass
