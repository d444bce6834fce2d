"""Feedback: a stream that comes round again, at later times.

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
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegauge.dataflow.build import OperatorBuilder, OperatorContext
from tidegauge.dataflow.invocation import Operator
from tidegauge.dataflow.order import Summary, advance, normal

if TYPE_CHECKING:
    from tidegauge.dataflow.scope import Scope
    from tidegauge.dataflow.stream import Stream

__all__ = ["FeedbackHandle", "feedback"]


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
