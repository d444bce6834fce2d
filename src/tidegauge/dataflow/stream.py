"""A stream: what one output of an operator sends, and what can be done with it.

The functions given to a stream's methods see whole batches, never single records: progress counts batches, and so do
the operators. Where a batch is a list, `records` makes them of functions on records; `arrow` knows Arrow's batches.
All readers of a stream see one and the same object, so a batch is never changed in place.

Invariant: a stream is only ever connected within its own scope.

>>> from tidegauge.dataflow import INT, Worker
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     orders, stream = scope.input("orders")
...     probe = stream.filter(bool).map(sorted).inspect(print).probe()
>>> orders.send(["tea", "salt"]); orders.send([]); orders.close()
>>> while worker.step(): pass
(0,) ['salt', 'tea']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from tidegauge.dataflow.build import OperatorContext
from tidegauge.dataflow.channel import Stamp, Tee
from tidegauge.dataflow.frontier import Antichain
from tidegauge.dataflow.frontier.view import Probe
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput
from tidegauge.dataflow.operators import generic
from tidegauge.dataflow.operators.capture import EventQueue, EventSink, capture
from tidegauge.dataflow.operators.feedback import ThroughHandle, limit_in_flight
from tidegauge.dataflow.operators.routing import Route, broadcast, exchange, partition
from tidegauge.dataflow.operators.stash import aggregate, state_machine
from tidegauge.dataflow.topology import Port

if TYPE_CHECKING:
    from tidegauge.dataflow.scope import Scope

__all__ = ["Stream"]

D = TypeVar("D")
E = TypeVar("E")
State = TypeVar("State")
S = TypeVar("S", bound=EventSink)


class Stream(Generic[D]):
    """What one output sends: batches of type `D`. The functions given to its methods see whole batches."""

    __slots__ = ("port", "scope", "tee")

    def __init__(self, scope: Scope, port: Port, tee: Tee) -> None:
        self.scope: Final = scope
        self.port: Final = port
        self.tee: Final = tee

    def map(self, function: Callable[[D], E], *, name: str = "map") -> Stream[E]:
        """Send `function(batch)` for each batch, at the same time."""
        return generic.each(self, name, lambda batch: (function(batch),))

    def flat_map(self, function: Callable[[D], Iterable[E]], *, name: str = "flat_map") -> Stream[E]:
        """Send every batch of `function(batch)`, at the same time."""
        return generic.each(self, name, function)

    def filter(self, keep: Callable[[D], bool], *, name: str = "filter") -> Stream[D]:
        """Send the batches for which `keep(batch)` holds."""
        return generic.each(self, name, lambda batch: (batch,) if keep(batch) else ())

    def inspect(
        self,
        look: Callable[[Stamp, D], object],
        *,
        frontier: Callable[[Antichain[Any]], object] | None = None,
        name: str = "inspect",
    ) -> Stream[D]:
        """Call `look(stamp, batch)` for each batch and send it on.

        frontier: called with the frontier when it has changed, before the batches that came with the change. The one
        at the beginning is not reported, and not every one on the way: changes may come merged.
        """
        return generic.inspect(self, name, look, frontier)

    def concat(self, *others: Stream[D]) -> Stream[D]:
        """Send what comes on this stream and on the others."""
        return generic.concatenate(self.scope, (self, *others))

    def partition(
        self, outputs: int, cut: Callable[[D], Iterable[tuple[int, E]]], *, name: str = "partition"
    ) -> tuple[Stream[E], ...]:
        """Send each piece of `cut(batch)`, pairs `(output, piece)`, on its output. Raises InvalidGraph."""
        return partition(self, name, outputs, lambda _, batch: cut(batch))

    def branch(self, when: Callable[[Stamp, D], bool], *, name: str = "branch") -> tuple[Stream[D], Stream[D]]:
        """Return the batches for which `when(stamp, batch)` is false, and those for which it is true.

        The stamp is the least that a batch may hold: to tell rows by their own times, cut the batch with `partition`.
        """
        otherwise, so = partition(self, name, 2, lambda stamp, batch: ((1 if when(stamp, batch) else 0, batch),))
        return otherwise, so

    def aggregate(
        self, zero: Callable[[], State], fold: Callable[[State, D], State], *, name: str = "aggregate"
    ) -> Stream[State]:
        """Fold the batches of each time, from `zero()` on; send the result when the time is complete."""
        return aggregate(self, name, zero, fold)

    def state_machine(
        self,
        zero: Callable[[], State],
        step: Callable[[State, D], tuple[State, E | None]],
        *,
        name: str = "state_machine",
    ) -> Stream[E]:
        """Call `step(state, batch)` in the order of times: it returns the next state, and what to send or None."""
        return state_machine(self, name, zero, step)

    def limit_in_flight(self, *, name: str = "limit_in_flight") -> tuple[ThroughHandle, Stream[D]]:
        """Return a handle to connect a later stream to, and this stream, held back until what went before is there.

        Of times that compare, at most one is in flight. The rest is held back in memory; `Scope.paced` reads no
        further instead.
        """
        return limit_in_flight(self, name)

    def exchange(self, route: Route, *, name: str = "exchange") -> Stream[D]:
        """Send the pieces of each batch, `route(batch, peers)`, to the workers that they are for."""
        return exchange(self, route, name)

    def broadcast(self, *, name: str = "broadcast") -> Stream[D]:
        """Send each batch to every worker."""
        return broadcast(self, name)

    def unary(
        self,
        name: str,
        build: Callable[[OperatorContext], Callable[[OperatorInput, OperatorOutput], bool | None]],
        *,
        notify: bool = True,
    ) -> Stream[Any]:
        """Add an operator of one input and one output: `build(context)` returns `step(input, output)`."""
        return generic.unary(self, name, build, notify=notify)

    def binary(
        self,
        other: Stream[Any],
        name: str,
        build: Callable[[OperatorContext], Callable[[OperatorInput, OperatorInput, OperatorOutput], bool | None]],
        *,
        notify: bool = True,
    ) -> Stream[Any]:
        """Add an operator of two inputs and one output: `build(context)` returns `step(this, other, output)`."""
        return generic.binary(self, other, name, build, notify=notify)

    def sink(self, name: str, build: Callable[[OperatorContext], Callable[[OperatorInput], bool | None]]) -> None:
        """Add an operator without output, run for batches and for changes of the frontier: `build(context)` returns
        `step(input)`.
        """
        generic.sink(self, name, build)

    def probe(self, into: Probe | None = None) -> Probe:
        """Return a probe that sees the frontier of this stream; `into` makes an existing one see it as well."""
        probe = Probe(self.scope.order) if into is None else into
        self.scope.check_open()
        self.scope.graph.watched.append((self.port, probe.watch()))
        return probe

    @overload
    def capture(self, into: None = None, *, progress: bool = True, name: str = "capture") -> EventQueue: ...

    @overload
    def capture(self, into: S, *, progress: bool = True, name: str = "capture") -> S: ...

    def capture(self, into: EventSink | None = None, *, progress: bool = True, name: str = "capture") -> EventSink:
        """Record batches and progress in a queue, which can be replayed or drained elsewhere.

        into: an empty queue that its reader has already, where two scopes capture from each other; or an EventWriter,
        which puts them into a file or a socket. progress: False records the batches alone, for a reader that only
        drains them: it is not woken when a frontier moves, and a replay would never come further. Raises InvalidGraph
        when the queue is for another order.
        """
        return capture(self, EventQueue(self.scope.order) if into is None else into, name, progress=progress)

    def enter(self, inner: Scope) -> Stream[D]:
        """Return the stream, seen from a scope nested in this one. Raises InvalidGraph."""
        return inner.take_in(self)

    def leave(self) -> Stream[D]:
        """Return the stream, seen from the scope around this one. Raises InvalidGraph."""
        return self.scope.let_out(self)
