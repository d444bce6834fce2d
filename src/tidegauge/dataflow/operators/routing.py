"""Where batches go, piece by piece: to one of several streams, or to one of several workers.

`partition` is one operator with as many outputs as asked for, so what it costs to build and to run is linear in them.
In `exchange` a route splits a batch: `route(batch, peers)` gives pairs `(peer, piece)`, peers being numbered from 0.
Progress counts the pieces. What keeps related records together is the route alone: the same key must give the same
peer on every worker.

Invariant: pieces leave at the stamp of the batch that they were cut from, each on exactly one output, or to one
worker. The route runs within the operator's invocation, so one that raises has sent nothing to anybody.

Take care: a stamp is permission, not content. It says that nothing in the batch comes before it; the rows may carry
later times of their own. To tell rows by *their* time look at the rows; `branch` by the stamp sends whole batches.

>>> from tidegauge.dataflow import INT, DeterministicCluster, Messages, Worker, records
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     numbers, stream = scope.input("numbers")
...     even, odd = stream.partition(2, records.split(lambda n: (n % 2, n)))
...     _ = even.concat(odd.map(records.map(lambda n: -n))).inspect(print)
>>> numbers.send([1, 2, 3]); numbers.close()
>>> while worker.step(): pass
(0,) [2]
(0,) [-1, -3]
>>> def parity(batch, peers):
...     return [(peer, [n for n in batch if n % peers == peer]) for peer in range(peers)]
>>> def build(worker):
...     with worker.dataflow("numbers", order=INT) as scope:
...         numbers, stream = scope.input("numbers")
...         seen = stream.exchange(parity).capture()
...     if worker.index == 0:
...         numbers.send([1, 2, 3, 4])
...     numbers.close()
...     return seen
>>> for queue in DeterministicCluster(peers=2, seed=1).run(build):
...     print([event.batch for event in queue.drain() if isinstance(event, Messages)])
[[2, 4]]
[[1, 3]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from tidegauge.dataflow.build import OperatorBuilder, OperatorContext, Step
from tidegauge.dataflow.channel import Stamp
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput
from tidegauge.errors.dataflow import InvalidGraph, InvalidRoute, NoSuchOutput

if TYPE_CHECKING:
    from tidegauge.dataflow.stream import Stream

__all__ = ["Route", "broadcast", "exchange", "partition"]


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


Route: TypeAlias = Callable[[Any, int], Iterable[tuple[SupportsIndex, Any]]]
"""From a batch and the number of workers: the pieces, each with the worker it goes to."""


def exchange(stream: Stream[Any], route: Route, name: str) -> Stream[Any]:
    """Send each piece of each batch to the worker that `route` says. Alone, a worker keeps its batches whole."""
    builder = OperatorBuilder(stream.scope, name)
    builder.input(stream)
    crossed = builder.crossing()

    def build(context: OperatorContext) -> Step:
        context.capabilities[0].drop()
        peers = context.peers

        def step(inputs: list[OperatorInput], outputs: list[OperatorOutput]) -> None:
            for capability, batch in inputs[0].drain():
                pieces = ((0, batch),) if peers == 1 else route(batch, peers)
                for peer, piece in pieces:
                    outputs[0].give(capability, (_one_of(peer, peers, context.path), piece))

        return step

    builder.build(build, notify=False)
    return crossed


def _one_of(peer: SupportsIndex, peers: int, path: str) -> int:
    """Return the number of a worker. It is looked at here: once the batch is on its way there is nobody to tell."""
    if not isinstance(peer, SupportsIndex) or not 0 <= (number := index(peer)) < peers:
        raise InvalidRoute(path=path, peer=repr(peer), peers=peers)
    return number


def broadcast(stream: Stream[Any], name: str) -> Stream[Any]:
    """Send each batch to every worker. It is one and the same object everywhere: nobody may change it."""
    return exchange(stream, lambda batch, peers: ((peer, batch) for peer in range(peers)), name)
