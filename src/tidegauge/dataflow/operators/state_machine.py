"""State machine: one state from the first time to the last, and the batches in the order of their times.

A batch is taken at once when nothing strictly before its time can still come, even if more may come at that time;
else it waits. Times that do not compare have no order to keep.

Invariant: when a batch is taken, no batch at an earlier time comes after it.

Argument. Whatever arrives is stashed, and then all times are taken which the frontier is not strictly before, in sort
order. If a time `t` is taken and an earlier `s` waits on, the frontier has some `f < s < t`: so it is strictly before
`t`, and `t` was not to be taken. And nothing at an earlier time can come later, by what a frontier is.

>>> from tidegauge.dataflow import INT, Worker, records
>>> worker = Worker(monotonic=lambda: 0.0)
>>> def count(seen, word):
...     return (seen or 0) + 1, [(word, (seen or 0) + 1)]
>>> with worker.dataflow("shop", order=INT) as scope:
...     words, stream = scope.input("words")
...     _ = stream.state_machine(dict, records.stateful(str, count)).inspect(print)
>>> words.send(["ebb", "flood"]); words.advance_to(1); words.send(["ebb"]); words.close()
>>> while worker.step(): pass
(0,) [('ebb', 1), ('flood', 1)]
(1,) [('ebb', 2)]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegauge.dataflow.build import OperatorContext
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput
from tidegauge.dataflow.operators.stash import Before, Stash

if TYPE_CHECKING:
    from tidegauge.dataflow.stream import Stream

__all__ = ["state_machine"]


def state_machine(
    stream: Stream[Any], name: str, zero: Callable[[], Any], step: Callable[[Any, Any], tuple[Any, Any]]
) -> Stream[Any]:
    """Call `step(state, batch)` in the order of times: it returns the next state, and what to send or None."""

    def build(context: OperatorContext) -> Callable[[OperatorInput, OperatorOutput], None]:
        context.capabilities[0].drop()
        stash: Stash[list[Any]] = Stash(list)
        state = zero()

        def take(inlet: OperatorInput, output: OperatorOutput) -> None:
            nonlocal state
            for capability, batch in inlet.drain():
                stash.at(capability.time, capability.retain).append(batch)
            for held, batches in stash.ready([Before(inlet.frontier)]):
                for batch in batches:
                    state, result = step(state, batch)
                    if result is not None:
                        output.give(held, result)
                held.drop()

        return take

    return stream.unary(name, build)
