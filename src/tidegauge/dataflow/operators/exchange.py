"""Exchange and broadcast: batches go from one worker to another.

A route splits a batch: `route(batch, peers)` gives pairs `(peer, piece)`, peers being numbered from 0. Progress
counts the pieces. What keeps related records together is the route alone: the same key must give the same peer on
every worker.

Invariant: the route runs within the operator's invocation, so one that raises has sent nothing to anybody.

>>> from tidegauge.dataflow import INT, DeterministicCluster, Messages
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
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput
from tidegauge.errors.dataflow import InvalidRoute

if TYPE_CHECKING:
    from tidegauge.dataflow.stream import Stream

__all__ = ["Route", "broadcast", "exchange"]

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
