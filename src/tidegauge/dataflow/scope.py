"""Putting a dataflow together: scopes, and the streams in them.

A `Scope` is a graph of operators whose times have one order. It is open within its `with` block and runs after it;
when the block raises, the dataflow is never installed. Nested scopes see the streams of the outer one through
`enter`, and give streams back through `leave`.

Invariant: a stream is only ever connected within its own scope.

>>> from tidegauge.dataflow import INT, Worker
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("halve", order=INT) as scope:
...     numbers, stream = scope.input("numbers")
...     with scope.iterative("loop") as loop:
...         handle, again = loop.feedback((0, 1))
...         halves = stream.enter(loop).concat(again).map(lambda n: n // 2)
...         handle.connect(halves.filter(lambda n: n > 1))
...         result = halves.filter(lambda n: n <= 1).leave()
...     probe = result.inspect(lambda stamp, n: print(stamp, n)).probe()
>>> numbers.send(13); numbers.close()
>>> while worker.step(): pass
(0,) 1
>>> probe.done()
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar

from tidegauge.dataflow.build import OperatorContext
from tidegauge.dataflow.capability import Capability
from tidegauge.dataflow.channel import Egress, Ingress, Receiver, Tee
from tidegauge.dataflow.invocation import OperatorOutput
from tidegauge.dataflow.operators import generic
from tidegauge.dataflow.operators.capture import EventSource, replay
from tidegauge.dataflow.operators.feedback import FeedbackHandle, ThroughHandle, feedback, paced
from tidegauge.dataflow.operators.input import (
    InputHandle,
    UnorderedHandle,
    ordered_input,
    to_stream,
    unordered_input,
)
from tidegauge.dataflow.order import INT, Order, Refinement, Summary, Time, product, same
from tidegauge.dataflow.progress import Slot, Subgraph
from tidegauge.dataflow.schedule import Runtime, ScopePlace
from tidegauge.dataflow.stream import Stream
from tidegauge.dataflow.topology import Port
from tidegauge.dataflow.workers.mailbox import Address
from tidegauge.errors.dataflow import InvalidGraph

__all__ = ["Scope"]

D = TypeVar("D")


class Scope:
    """A graph of operators under construction. `path` names it in errors, `order` is that of its times."""

    def __init__(
        self,
        path: str,
        address: Address,
        refinement: Refinement,
        place: ScopePlace,
        runtime: Runtime,
        finish: Callable[[Subgraph], None],
        *,
        parent: Scope | None = None,
        number: int = 0,
        zero_cycles: bool = False,
    ) -> None:
        self.path: Final = path
        self.order: Final = refinement.order
        self.runtime: Final = runtime
        self.graph: Final = Subgraph(path, address, refinement, place, runtime)
        self.parent: Final = parent
        self.number: Final = number
        self._refinement: Final = refinement
        self._finish: Final = finish
        self._zero_cycles: Final = zero_cycles
        self._open = False
        self._names: set[str] = set()

    def __enter__(self) -> Scope:
        if self.parent is not None:
            self.parent.check_open()
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if kind is None:
            self.graph.seal(zero_cycles=self._zero_cycles)
            self._finish(self.graph)

    @property
    def index(self) -> int:
        """Which worker this is, from 0."""
        return self.runtime.index

    @property
    def peers(self) -> int:
        """How many workers build this dataflow."""
        return self.runtime.peers

    # What users build with.

    def input(self, name: str) -> tuple[InputHandle, Stream[Any]]:
        """Return a handle to send batches with, in the order of their times, and the stream of them."""
        return ordered_input(self, name)

    def unordered_input(self, name: str) -> tuple[UnorderedHandle, Capability, Stream[Any]]:
        """Return a handle to send batches by capability, the first capability, and the stream of the batches."""
        return unordered_input(self, name)

    def source(
        self, name: str, build: Callable[[OperatorContext], Callable[[OperatorOutput], bool | None]]
    ) -> Stream[Any]:
        """Add an operator without input: `build(context)` returns `step(output)`. It runs when it is activated."""
        return generic.source(self, name, build)

    def to_stream(self, batches: Iterable[D], *, name: str = "to_stream") -> Stream[D]:
        """Return all batches of an iterable as a stream, at the minimum. It is read a portion a step.

        Each worker sends what it is given itself: where all are given the same, everything comes once for each.
        """
        return to_stream(self, batches, name)

    def empty(self) -> Stream[Any]:
        """Return a stream on which nothing ever comes: it is complete at once."""
        return to_stream(self, (), "empty")

    def paced(self, items: Iterable[tuple[Time, D]], *, name: str = "paced") -> tuple[ThroughHandle, Stream[D]]:
        """Return a handle to connect a later stream to, and the batches of an iterable of `(time, batch)`.

        A time begins when all before it have come to the stream that was connected; until then nothing more is read.
        """
        return paced(self, items, name)

    def replay(self, *queues: EventSource, name: str = "replay") -> Stream[Any]:
        """Return the streams that were captured in `queues`, as one. Raises InvalidGraph for another order.

        A queue may be an EventReader of a file, or an EventReceiver of a socket.
        """
        return replay(self, queues, name)

    def feedback(self, summary: Summary, *, name: str = "feedback") -> tuple[FeedbackHandle, Stream[Any]]:
        """Return a handle to connect a later stream to, and that stream with its times advanced by `summary`."""
        return feedback(self, summary, name)

    def loop_variable(self, summary: Summary, *, name: str = "loop_variable") -> tuple[FeedbackHandle, Stream[Any]]:
        """Return a feedback that advances the inner part of the times of an iterative scope by `summary`."""
        return feedback(self, (None, summary), name)

    def concatenate(self, streams: Iterable[Stream[D]]) -> Stream[D]:
        """Send what comes on all of the streams. Without any, the stream is complete at once."""
        return generic.concatenate(self, tuple(streams))

    def region(self, name: str, *, zero_cycles: bool = False) -> Scope:
        """Return a nested scope of the same times, to be used in a `with` statement."""
        return self._nested(name, same(self.order), zero_cycles=zero_cycles)

    def iterative(self, name: str, inner: Order[Any] = INT, *, zero_cycles: bool = False) -> Scope:
        """Return a nested scope of times `(outer, inner)`, to be used in a `with` statement."""
        return self._nested(name, product(self.order, inner), zero_cycles=zero_cycles)

    def _nested(self, name: str, refinement: Refinement, *, zero_cycles: bool) -> Scope:
        number, path = self.reserve(name)
        return Scope(
            path,
            self.graph.address_of(number),
            refinement,
            Slot(self.graph, number),
            self.runtime,
            lambda graph: self.graph.install(number, graph),
            parent=self,
            number=number,
            zero_cycles=zero_cycles,
        )

    # What operators are built with.

    def check_open(self) -> None:
        """Raise InvalidGraph unless the scope is still under construction."""
        if not self._open:
            raise InvalidGraph(
                path=self.path,
                problem="the scope is not open for building",
                reason="operators and streams can only be added within the scope's `with` block",
                advice="build everything in the block",
            )

    def reserve(self, name: str) -> tuple[int, str]:
        """Return the number and the path of a new node. A second one of a name gets its number behind it."""
        self.check_open()
        shown = f"{name}#{len(self.graph.blueprint.children)}" if name in self._names else name
        self._names.add(name)
        return self.graph.blueprint.reserve(shown), f"{self.path}/{shown}"

    def stream(self, port: Port, tee: Tee) -> Stream[Any]:
        """Return the stream of an output of this scope."""
        return Stream(self, port, tee)

    def connect(self, stream: Stream[Any], input: Port, receiver: Receiver) -> None:
        """Let a stream arrive at an input. Raises InvalidGraph for a stream of another scope."""
        self.check_open()
        if stream.scope is not self:
            raise self._foreign(stream, "connect it where it belongs, or bring it here with enter, leave or replay")
        self.graph.blueprint.edges.append((stream.port, input))
        stream.tee.receivers.append(receiver)

    def take_in(self, stream: Stream[D]) -> Stream[D]:
        """Return a stream of the scope around, seen from here."""
        self.check_open()
        if self.parent is None or stream.scope is not self.parent:
            raise self._foreign(stream, "a stream can enter the scopes nested directly in its own")
        port, inside, place = len(self.graph.entrances), Tee(), Slot(self.parent.graph, self.number)
        ingress = Ingress(inside, self._refinement.to_inner, lambda: self.runtime.activations.soon(place))
        self.parent.connect(stream, (self.number, port), ingress)
        self.graph.entrances.append(ingress)
        return Stream(self, (0, port), inside)

    def let_out(self, stream: Stream[D]) -> Stream[D]:
        """Return a stream of this scope, seen from the scope around."""
        if self.parent is None:
            raise self._foreign(
                stream, "the scope of a whole dataflow has no scope around it; use capture and replay"
            )
        port, outside, place = len(self.graph.exits), Tee(), self.graph.place
        wake = partial(self.runtime.activations.soon, place)
        egress = Egress(outside, self._refinement.to_outer, self.parent.order, wake)
        self.connect(stream, (0, port), egress)
        self.graph.exits.append(egress)
        return Stream(self.parent, (self.number, port), outside)

    def _foreign(self, stream: Stream[Any], advice: str) -> InvalidGraph:
        return InvalidGraph(
            path=self.path,
            problem=f"a stream of the scope {stream.scope.path} cannot be used here",
            reason="a stream belongs to one scope",
            advice=advice,
        )
