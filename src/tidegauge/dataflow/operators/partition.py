"""Partition: one stream becomes several, piece by piece.

It is one operator with as many outputs as asked for, so what it costs to build and to run is linear in them.

Invariant: pieces leave at the stamp of the batch that they were cut from, each on exactly one output.

Take care: a stamp is permission, not content. It says that nothing in the batch comes before it; the rows may carry
later times of their own. To tell rows by *their* time look at the rows; `branch` by the stamp sends whole batches.

>>> from tidegauge.dataflow import INT, Worker, records
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     numbers, stream = scope.input("numbers")
...     even, odd = stream.partition(2, records.split(lambda n: (n % 2, n)))
...     _ = even.concat(odd.map(records.map(lambda n: -n))).inspect(print)
>>> numbers.send([1, 2, 3]); numbers.close()
>>> while worker.step(): pass
(0,) [2]
(0,) [-1, -3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

from tidegauge.dataflow.build import OperatorBuilder, OperatorContext, Step
from tidegauge.dataflow.channel import Stamp
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput
from tidegauge.errors.dataflow import InvalidGraph, NoSuchOutput

if TYPE_CHECKING:
    from tidegauge.dataflow.stream import Stream

__all__ = ["partition"]


def partition(
    stream: Stream[Any], name: str, outputs: int, cut: Callable[[Stamp, Any], Iterable[tuple[int, Any]]]
) -> tuple[Stream[Any], ...]:
    """Send each piece of `cut(stamp, batch)`, pairs `(output, piece)`, on its output.

    Raises InvalidGraph without an output; the operator raises NoSuchOutput for a piece that has none.
    """
    builder = OperatorBuilder(stream.scope, name)
    if outputs < 1:
        raise InvalidGraph(
            path=builder.path,
            problem=f"a stream is to be parted into {outputs}",
            reason="every batch has to go somewhere",
            advice="ask for one output at least, or filter what is to be dropped",
        )
    builder.input(stream)
    results = tuple(builder.output() for _ in range(outputs))

    def build(context: OperatorContext) -> Step:
        for capability in context.capabilities:
            capability.drop()
        known = range(outputs)

        def step(inlets: list[OperatorInput], outlets: list[OperatorOutput]) -> None:
            for capability, batch in inlets[0].drain():
                for output, piece in cut(capability.stamp, batch):
                    if not isinstance(output, SupportsIndex) or index(output) not in known:
                        raise NoSuchOutput(path=context.path, output=repr(output), outputs=outputs)
                    outlets[output].give(capability, piece)

        return step

    builder.build(build, notify=False)
    return results
