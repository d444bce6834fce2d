"""Aggregate: one result for each time, when the time is complete.

Definition. With `b1 ... bn` the batches at a time, in the order of arrival, the result is `fold(... fold(fold(zero(),
b1), b2) ..., bn)`. A time without batches has none. Batches are folded on arrival, so only the state of a time is
kept, not its batches.

Invariant: the result of a time is sent once, at that time, and no batch at the time comes after it.

>>> from tidegauge.dataflow import INT, Worker, records
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     orders, stream = scope.input("orders")
...     _ = stream.aggregate(int, lambda total, batch: total + len(batch)).inspect(print)
...     by_length = records.fold_by(len, int, lambda count, word: count + 1)
...     _ = stream.aggregate(dict, by_length).inspect(print)
>>> orders.send(["ebb", "flood"]); orders.send(["sea"]); orders.close()
>>> while worker.step(): pass
(0,) 3
(0,) {3: 2, 5: 1}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegauge.dataflow.build import OperatorContext
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput
from tidegauge.dataflow.operators.stash import Stash

if TYPE_CHECKING:
    from tidegauge.dataflow.stream import Stream

__all__ = ["aggregate"]


def aggregate(
    stream: Stream[Any], name: str, zero: Callable[[], Any], fold: Callable[[Any, Any], Any]
) -> Stream[Any]:
    """Fold the batches of each time; send the state when the time is complete."""

    def build(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
        context.capabilities[0].drop()
        stash: Stash[list[Any]] = Stash(lambda: [zero()])

        def step(inlet: OperatorInput, output: OperatorOutput) -> None:
            for capability, batch in inlet.drain():
                cell = stash.at(capability.time, capability.retain)
                cell[0] = fold(cell[0], batch)
            for held, (state,) in stash.ready([inlet.frontier]):
                output.give(held, state)
                held.drop()

        return step

    return stream.unary(name, build)
