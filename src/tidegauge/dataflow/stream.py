"""A stream: what one output of an operator sends, and what can be done with it.

The functions given to a stream's methods see whole batches, never single records: progress counts batches, and so do
the operators. Invariant: a stream is only ever connected within its own scope.

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
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tidegauge.dataflow.build import OperatorContext
from tidegauge.dataflow.channel import Tee
from tidegauge.dataflow.invocation import OperatorInput, OperatorOutput
from tidegauge.dataflow.operators import elementwise, generic
from tidegauge.dataflow.operators.capture import EventQueue, capture
from tidegauge.dataflow.operators.probe import Probe
from tidegauge.dataflow.topology import Port

if TYPE_CHECKING:
    from tidegauge.dataflow.scope import Scope

__all__ = ["Stream"]

D = TypeVar("D")
E = TypeVar("E")


class Stream(Generic[D]):
    """What one output sends: batches of type `D`. The functions given to its methods see whole batches."""

    __slots__ = ("port", "scope", "tee")

    def __init__(self, scope: Scope, port: Port, tee: Tee) -> None:
        self.scope: Final = scope
        self.port: Final = port
        self.tee: Final = tee

    def map(self, function: Callable[[D], E], *, name: str = "map") -> Stream[E]:
        """Send `function(batch)` for each batch, at the same time."""
        return elementwise.each(self, name, lambda batch: (function(batch),))

    def flat_map(self, function: Callable[[D], Iterable[E]], *, name: str = "flat_map") -> Stream[E]:
        """Send every batch of `function(batch)`, at the same time."""
        return elementwise.each(self, name, function)

    def filter(self, keep: Callable[[D], bool], *, name: str = "filter") -> Stream[D]:
        """Send the batches for which `keep(batch)` holds."""
        return elementwise.each(self, name, lambda batch: (batch,) if keep(batch) else ())

    def inspect(self, look: Callable[[tuple[Any, ...], D], object], *, name: str = "inspect") -> Stream[D]:
        """Call `look(stamp, batch)` for each batch and send it on."""
        return elementwise.inspect(self, name, look)

    def concat(self, *others: Stream[D]) -> Stream[D]:
        """Send what comes on this stream and on the others."""
        return elementwise.concatenate(self.scope, (self, *others))

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

    def probe(self, into: Probe | None = None) -> Probe:
        """Return a probe that sees the frontier of this stream; `into` makes an existing one see it as well."""
        probe = Probe(self.scope.order) if into is None else into
        self.scope.check_open()
        self.scope.graph.watched.append((self.port, probe.watch()))
        return probe

    def capture(self, into: EventQueue | None = None, *, name: str = "capture") -> EventQueue:
        """Record batches and progress in a queue, which can be replayed or drained elsewhere.

        into: an empty queue that its reader has already, where two scopes capture from each other.
        """
        return capture(self, into, name)

    def enter(self, inner: Scope) -> Stream[D]:
        """Return the stream as it is seen in a scope nested in this one. Raises InvalidGraph."""
        return inner.take_in(self)

    def leave(self) -> Stream[D]:
        """Return the stream as it is seen in the scope around this one. Raises InvalidGraph."""
        return self.scope.let_out(self)
