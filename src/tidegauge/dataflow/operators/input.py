"""Inputs: batches and progress from outside the dataflow, by the thread that owns the worker, or out of an iterable.

The actions of a handle are recorded at once, and published by the next step, in one piece. An iterable is read a
portion a step, so that downstream operators run in between.

>>> from tidegauge.dataflow import INT, Worker
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("shop", order=INT) as scope:
...     orders, stream = scope.input("orders")
...     _ = stream.inspect(print)
>>> orders.send("first"); orders.advance_to(5); orders.send("second"); orders.close()
>>> while worker.step(): pass
(0,) first
(5,) second
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tidegauge.dataflow.build import OperatorBuilder, OperatorContext
from tidegauge.dataflow.capability import Capability
from tidegauge.dataflow.invocation import Operator, OperatorOutput, Permit, Session
from tidegauge.dataflow.order import Time
from tidegauge.dataflow.schedule import Activator

if TYPE_CHECKING:
    from tidegauge.dataflow.scope import Scope
    from tidegauge.dataflow.stream import Stream

__all__ = ["PORTION", "InputHandle", "UnorderedHandle", "ordered_input", "to_stream", "unordered_input"]

PORTION: Final = 16
"""How many batches are read out of an iterable in one step."""


class InputHandle:
    """Sends at one time, which only goes forward. Its time is held until you close it."""

    __slots__ = ("_activator", "_held", "_output")

    def __init__(self, held: Capability, output: OperatorOutput, activator: Activator) -> None:
        self._held = held
        self._output = output
        self._activator = activator

    @property
    def time(self) -> Time:
        """The time at which it sends."""
        return self._held.time

    def send(self, batch: Any) -> None:
        """Send one batch. Raises CapabilityGone after `close`."""
        self._output.give(self._held, batch)
        self._activator.activate()

    def advance_to(self, time: Time) -> None:
        """Promise to send nothing before `time` any more. Raises NotBeyond, CapabilityGone."""
        self._held.downgrade(time)

    def close(self) -> None:
        """Promise to send nothing any more. A second time does nothing."""
        self._held.drop()


class UnorderedHandle:
    """Sends by any capability that was derived from the first one. Each of these wakes the operator by itself."""

    __slots__ = ("_activator", "_output")

    def __init__(self, output: OperatorOutput, activator: Activator) -> None:
        self._output = output
        self._activator = activator

    def session(self, permit: Permit) -> Session:
        """Begin to send; the batches leave with the next step. Raises ForeignCapability, CapabilityGone."""
        self._activator.activate()
        return self._output.session(permit)


def ordered_input(scope: Scope, name: str) -> tuple[InputHandle, Stream[Any]]:
    """Add an input with a handle for times in order."""
    held, output, activator, stream = _input(scope, name)
    return InputHandle(held, output, activator), stream


def unordered_input(scope: Scope, name: str) -> tuple[UnorderedHandle, Capability, Stream[Any]]:
    """Add an input with a handle for times in any order, as far as capabilities reach."""
    held, output, activator, stream = _input(scope, name)
    return UnorderedHandle(output, activator), held, stream


def to_stream(scope: Scope, batches: Iterable[Any], name: str) -> Stream[Any]:
    """Add a source of all batches of an iterable at the minimum; with the last one it is complete."""
    source = iter(batches)

    def build(context: OperatorContext) -> Callable[[OperatorOutput], None]:
        held = context.capabilities[0]

        def step(output: OperatorOutput) -> None:
            if not held.held:
                return
            portion = list(islice(source, PORTION))
            output.session(held).give_all(portion)
            if len(portion) < PORTION:
                held.drop()
            else:
                context.activator.activate()

        return step

    return scope.source(name, build)


def _input(scope: Scope, name: str) -> tuple[Capability, OperatorOutput, Activator, Stream[Any]]:
    builder = OperatorBuilder(scope, name)
    stream = builder.output()
    made: list[tuple[Capability, OperatorOutput, Activator]] = []

    def make(context: OperatorContext, operator: Operator) -> Callable[[], None]:
        output = operator.outputs[0]
        held = Capability.initial(output.account, wake=context.activator.activate)
        made.append((held, output, context.activator))
        operator.remark = lambda: "input handle: advance or close it"
        return lambda: None  # all was recorded by the handle; to run is to publish it

    builder.install(make, notify=False)
    return (*made[0], stream)
