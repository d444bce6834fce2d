"""Building operators: ports first, then the function that makes the step.

`build(context)` runs once, while the dataflow is put together, and returns the step that the scheduler calls. What
the operator holds at the beginning is `context.capabilities`, one for each output at the order's minimum: keep,
downgrade or drop each of them, or nothing downstream will ever be complete.

>>> from tidegauge.dataflow import INT, Worker
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     numbers, stream = scope.input("numbers")
...     builder = OperatorBuilder(scope, "double")
...     port = builder.input(stream)
...     doubled = builder.output()
...     def build(context):
...         context.capabilities[0].drop()
...         def step(inputs, outputs):
...             for capability, batch in inputs[0].drain():
...                 outputs[0].session(capability).give([2 * x for x in batch])
...         return step
...     builder.build(build, notify=False)
...     _ = doubled.inspect(lambda stamp, batch: print(stamp, batch))
>>> numbers.send([1, 2])
>>> worker.step()
(0,) [2, 4]
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidegauge.dataflow.capability import Capability
from tidegauge.dataflow.channel import Crossing, Outlet, Queue, Tee
from tidegauge.dataflow.invocation import Operator, OperatorInput, OperatorOutput
from tidegauge.dataflow.order import Order, Summary, normal
from tidegauge.dataflow.progress import Slot
from tidegauge.dataflow.schedule import Activator, SyncActivator
from tidegauge.dataflow.topology import IDENTITY, Connection, Shape, admit
from tidegauge.errors.dataflow import InvalidGraph

if TYPE_CHECKING:
    from tidegauge.dataflow.scope import Scope
    from tidegauge.dataflow.stream import Stream

__all__ = ["Build", "OperatorBuilder", "OperatorContext", "Step"]

Step: TypeAlias = Callable[[list[OperatorInput], list[OperatorOutput]], bool | None]
"""One invocation. Returning True says that there is unfinished work which keeps the dataflow alive."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What an operator is given to begin with.

    path: the names from the dataflow down. capabilities: one for each output, at the order's minimum. index, peers:
    which worker this is, of how many.
    """

    path: str
    name: str
    order: Order[Any]
    capabilities: tuple[Capability, ...]
    activator: Activator
    sync_activator: Callable[[], SyncActivator]
    index: int
    peers: int


Build: TypeAlias = Callable[[OperatorContext], Step]


class OperatorBuilder:
    """An operator under construction. It takes its place in the sequence of scheduling now, before its ports are
    known.

    Raises InvalidGraph when the scope is no longer open, or when a stream of another scope is connected.
    """

    def __init__(self, scope: Scope, name: str) -> None:
        self.scope: Final = scope
        self.name: Final = name
        self.number, self.path = scope.reserve(name)
        self._slot: Final = Slot(scope.graph, self.number)
        self._queues: list[Queue] = []
        self._connections: list[Mapping[int, Iterable[Summary]] | None] = []
        self._outlets: list[Outlet] = []
        self._built = False

    def input(self, stream: Stream[Any], connection: Mapping[int, Iterable[Summary]] | None = None) -> int:
        """Connect a stream; return the number of the input.

        connection: for each output that this input can cause, the least summaries on the way; an output that is not
        named is never caused. None: every output, at the same time. Raises InvalidGraph, InvalidSummary.
        """
        self._unbuilt()
        activations = self.scope.runtime.activations
        queue = Queue(lambda: activations.soon(self._slot))
        self.scope.connect(stream, (self.number, len(self._queues)), queue)
        self._queues.append(queue)
        self._connections.append(connection)
        return len(self._queues) - 1

    def output(self) -> Stream[Any]:
        """Add an output and return its stream."""
        self._unbuilt()
        tee = Tee()
        self._outlets.append(tee)
        return self.scope.stream((self.number, len(self._outlets) - 1), tee)

    def crossing(self) -> Stream[Any]:
        """Add an output whose batches are `(peer, batch)`; return the stream of what the peers send to this worker.

        The operator answers for `peer` being one of them. An operator has one crossing at most.
        """
        self._unbuilt()
        runtime, address = self.scope.runtime, self.scope.graph.address_of(self.number)
        tee = Tee()
        crossing = Crossing(tee, runtime.index, lambda peer, message: runtime.post(peer, address, message))
        self.scope.graph.doors[address] = crossing.arrive
        self._outlets.append(crossing)
        return self.scope.stream((self.number, len(self._outlets) - 1), tee)

    def build(self, build: Build, *, notify: bool = True) -> None:
        """Make the step and install the operator.

        notify: whether a change of an input's frontier is a reason to run it; a message, an activation and the
        beginning of the dataflow always are.
        """

        def install(context: OperatorContext, operator: Operator) -> Callable[[], bool | None]:
            step = build(context)
            return partial(step, list(operator.inputs), list(operator.outputs))

        self.install(install, notify=notify)

    def install(
        self, make: Callable[[OperatorContext, Operator], Callable[[], bool | None]], *, notify: bool
    ) -> None:
        """Install an operator whose logic sees the operator itself: the raw level, for those that keep accounts."""
        self._unbuilt()
        self.scope.check_open()
        order, runtime = self.scope.order, self.scope.runtime
        shape = Shape(len(self._queues), len(self._outlets), tuple(map(self._connection, self._connections)))
        operator = Operator(self.path, order, shape, self._queues, self._outlets, validate=runtime.validate)
        operator.notify = notify and bool(self._queues)
        operator.report = runtime.report
        context = OperatorContext(
            path=self.path,
            name=self.name,
            order=order,
            capabilities=tuple(Capability.initial(output.account) for output in operator.outputs),
            activator=Activator(runtime.activations, self._slot),
            sync_activator=lambda: SyncActivator(runtime.activations, self._slot),
            index=runtime.index,
            peers=runtime.peers,
        )
        operator.logic = make(context, operator)
        self.scope.graph.install(self.number, operator)
        self._built = True

    def _connection(self, given: Mapping[int, Iterable[Summary]] | None) -> Connection:
        if given is None:
            return tuple((output, IDENTITY) for output in range(len(self._outlets)))
        order = self.scope.order
        connection = []
        for output, summaries in sorted(given.items()):
            if not 0 <= output < len(self._outlets):
                raise self._invalid(f"an input is connected to output {output}, which it does not have")
            least: list[Summary] = []
            for summary in summaries:
                admit(order, least, normal(order, summary))
            if least:
                connection.append((output, tuple(least)))
        return tuple(connection)

    def _unbuilt(self) -> None:
        if self._built:
            raise self._invalid("it is built already")

    def _invalid(self, problem: str) -> InvalidGraph:
        return InvalidGraph(
            path=self.path,
            problem=problem,
            reason="ports and connections are fixed when an operator is built",
            advice="add inputs and outputs first, then call build once",
        )
