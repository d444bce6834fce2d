"""One operator: its ports, and its invocation as one indivisible progress update.

Everything an invocation did (batches taken and sent, capabilities gained and lost) is kept back until it returns, and
is then published at once: `run` returns it as one list of changes. The batches sent leave at the same instant. So an
invocation that raises has done nothing: what it drained is still counted at its inputs, what it held it still holds,
and what it sent nobody saw. It is *faulted* and never runs again.

Invariant (law 10): no change is published without all others of its invocation.

>>> from tidegauge.dataflow.order import INT
>>> from tidegauge.dataflow.topology import identity_shape
>>> from tidegauge.dataflow.channel import Tee
>>> operator = Operator("shop/double", INT, identity_shape(1, 1), [Queue(lambda: None)], [Tee()])
>>> operator.attach(NodePlace(targets=(0,), sources=(1,), fed=((2,),)))
>>> def step():
...     for capability, batch in operator.inputs[0].drain():
...         operator.outputs[0].session(capability).give([2 * x for x in batch])
>>> operator.logic = step
>>> operator.inputs[0].queue.push(((0,), [1, 2]))
>>> operator.run()
[(0, 0, -1), (2, 0, 1)]
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from tidegauge.dataflow.capability import Account, InputCapability, InputOrigin, Invocation
from tidegauge.dataflow.channel import Message, Outlet, Queue, Stamp
from tidegauge.dataflow.frontier import ChangeBatch, FrontierView
from tidegauge.dataflow.order import Order, Time, advance
from tidegauge.dataflow.reachability import Change
from tidegauge.dataflow.topology import NodePlace, Shape
from tidegauge.errors.dataflow import CapabilityGone, NotRun, ProgressViolation

__all__ = ["Operator", "OperatorInput", "OperatorOutput", "Permit", "Session", "has_run"]

R = TypeVar("R")


class Permit(Protocol):
    """What entitles to send: a Capability, an InputCapability or a CapabilitySet."""

    def stamp_for(self, account: Account) -> Stamp:
        """Return the stamp of batches sent with it."""
        ...


class OperatorInput:
    """An input as its operator sees it."""

    __slots__ = ("consumed", "frontier", "origin", "queue")

    def __init__(self, origin: InputOrigin, queue: Queue) -> None:
        self.origin: Final = origin
        self.queue: Final = queue
        self.consumed: ChangeBatch[Time] = ChangeBatch()
        self.frontier: Final = FrontierView(origin.order)

    def drain(self) -> Iterator[tuple[InputCapability, Any]]:
        """Yield each waiting batch with its capability. Batches that are not taken wait for an invocation that takes
        them; only the operator itself wakes it for them.
        """
        messages, consumed, origin = self.queue.messages, self.consumed, self.origin
        if not messages:
            return
        last = messages[0][0]
        capability = InputCapability(origin, last)
        while messages:
            stamp, batch = messages.popleft()
            for time in stamp:
                consumed[time] = consumed.get(time, 0) + 1
            if stamp is not last and stamp != last:  # what comes at one time has one capability
                last, capability = stamp, InputCapability(origin, stamp)
            yield capability, batch

    def __len__(self) -> int:
        return len(self.queue.messages)


class Session:
    """Sending by one permit, for as long as the invocation lasts that opened it."""

    __slots__ = ("_output", "_serial", "_stamp")

    def __init__(self, output: OperatorOutput, stamp: Stamp) -> None:
        self._output = output
        self._stamp = stamp
        self._serial = output.invocation.serial

    def give(self, batch: Any) -> None:
        """Send one batch. Raises CapabilityGone after the invocation."""
        if self._serial != self._output.invocation.serial:
            account = self._output.account
            raise CapabilityGone(path=account.path, held=repr(self._stamp), ended="the session's invocation returned")
        self._output.outbox.append((self._stamp, batch))

    def give_all(self, batches: Iterable[Any]) -> None:
        """Send each of several batches."""
        for batch in batches:
            self.give(batch)


class OperatorOutput:
    """An output as its operator sees it. Batches leave when the invocation returns."""

    __slots__ = ("account", "invocation", "outbox", "outlet")

    def __init__(self, account: Account, invocation: Invocation, outlet: Outlet) -> None:
        self.account: Final = account
        self.invocation: Final = invocation
        self.outbox: list[Message] = []
        self.outlet: Final = outlet

    def session(self, permit: Permit) -> Session:
        """Begin to send by `permit`. Raises ForeignCapability, NotConnected, CapabilityGone."""
        return Session(self, permit.stamp_for(self.account))

    def give(self, permit: Permit, batch: Any) -> None:
        """Send one batch by `permit`."""
        self.outbox.append((permit.stamp_for(self.account), batch))


class Operator:
    """A node that runs a function.

    logic: one invocation; True says that there is unfinished work that keeps the dataflow alive. notify: whether a
    change of an input's frontier is a reason to run. incomplete: until it has run once, while `logic` says so, and
    once faulted. validate: keep books of the capabilities, and check each invocation by them. remark: what people
    should know when it holds a frontier back, or "". targets: the locations of its inputs.
    """

    def __init__(
        self,
        path: str,
        order: Order[Any],
        shape: Shape,
        queues: Sequence[Queue],
        outlets: Sequence[Outlet],
        *,
        validate: bool = False,
    ) -> None:
        self.path: Final = path
        self.order: Final = order
        self.shape: Final = shape
        self.invocation: Final = Invocation()
        accounts = tuple(Account(path, port, order) for port in range(shape.outputs))
        self.outputs: Final = tuple(
            OperatorOutput(a, self.invocation, outlet) for a, outlet in zip(accounts, outlets, strict=True)
        )
        self.inputs: Final = tuple(
            OperatorInput(InputOrigin(path, port, order, dict(connection), accounts, self.invocation), queue)
            for port, (connection, queue) in enumerate(zip(shape.connections, queues, strict=True))
        )
        self.logic: Callable[[], bool | None] = _nothing
        self.notify = bool(shape.inputs)
        self.validate: Final = validate
        self.incomplete = True
        self.fault: BaseException | None = None
        self.report: Callable[[str, BaseException], None] = _nobody
        self.remark: Callable[[], str] = _silent
        self.targets: tuple[int, ...] = ()
        self._sources: tuple[int, ...] = ()
        self._edges: tuple[tuple[int, ...], ...] = ()
        self._held = tuple(ChangeBatch([(order.minimum, 1)]) for _ in accounts) if validate else ()

    def attach(self, place: NodePlace) -> None:
        """Take its locations in the scope."""
        self.targets, self._sources, self._edges = place

    def initial(self) -> list[Change]:
        """Return the capabilities that it begins with: one for each output, at the minimum."""
        return [(source, self.order.minimum, 1) for source in self._sources]

    @property
    def unpublished(self) -> bool:
        """Whether changes of capabilities wait for the operator to run."""
        return self.fault is None and any(output.account.changes for output in self.outputs)

    def untaken(self, port: int) -> Iterator[Time]:
        """Yield the times that batches waiting at the inputs may cause on an output. Batches drained by the
        invocation that raised count as waiting.
        """
        for inlet in self.inputs:
            for summary in inlet.origin.connection.get(port, ()):
                waiting = {time for stamp, _ in inlet.queue.messages for time in stamp}
                results = (advance(self.order, time, summary) for time in waiting.union(inlet.consumed))
                yield from (time for time in results if time is not None)

    def run(self) -> list[Change]:
        """Invoke the operator and return all that it did; nothing, and `fault` is set, when it raised."""
        if self.fault is not None:
            return []
        try:
            result: object = self.logic()
            if result is not None and not isinstance(result, bool):
                has_run(result, path=self.path, role="its step")
            self.incomplete = result is True
            if self.validate:
                self._justify()  # while it is still to be undone: nothing has left
        except BaseException as error:  # noqa: BLE001 - whatever it is, this invocation must not be half published
            self.fault = error
            self.incomplete = True
            self.report(self.path, error)
            return []
        return self._publish()

    def _publish(self) -> list[Change]:
        changes: list[Change] = []
        self.invocation.serial += 1  # before any batch leaves: the capabilities that came with messages end here
        for inlet, target in zip(self.inputs, self.targets, strict=True):
            if inlet.consumed:
                for time, count in inlet.consumed.items():
                    changes.append((target, time, -count))
                inlet.consumed.clear()
        for output, source, fed in zip(self.outputs, self._sources, self._edges, strict=True):
            if output.account.changes:
                for time, delta in output.account.changes.items():
                    changes.append((source, time, delta))
                if self.validate:
                    self._held[output.account.port].extend(output.account.changes.items())
                output.account.changes.clear()
            if output.outbox:
                sent: dict[Time, int] = {}
                push = output.outlet.push
                for message in output.outbox:
                    push(message)
                    for time in message[0]:
                        sent[time] = sent.get(time, 0) + 1
                for target in fed:
                    for time, count in sent.items():
                        changes.append((target, time, count))
                output.outbox.clear()
        return changes

    def _justify(self) -> None:
        """Check that everything sent or gained lies at or beyond a batch just taken or a capability held before."""
        for output in self.outputs:
            port = output.account.port
            grounds = [time for time, count in self._held[port].items() if count > 0]
            for inlet in self.inputs:
                for summary in inlet.origin.connection.get(port, ()):
                    results = (advance(self.order, time, summary) for time in inlet.consumed)
                    grounds.extend(time for time in results if time is not None)
            claims = [("a batch", time) for stamp, _ in output.outbox for time in stamp]
            claims += [("a capability", time) for time, delta in output.account.changes.items() if delta > 0]
            for kind, time in claims:
                if not any(self.order.less_equal(ground, time) for ground in grounds):
                    raise ProgressViolation(path=self.path, kind=kind, wanted=repr(time), output=port)


def has_run(result: R, *, path: str, role: str) -> R:
    """Return what a function returned. Raises NotRun where that shows that nothing of the function has run."""
    if result is not None and isinstance(result, Generator | Coroutine | AsyncGenerator):
        if isinstance(result, Generator | Coroutine):
            result.close()
        kind = type(result).__name__.replace("_", " ")
        raise NotRun(path=path, role=role, kind=f"{'an' if kind.startswith('a') else 'a'} {kind}")
    return result


def _nothing() -> None:
    """An operator without logic does nothing."""


def _nobody(_path: str, _error: BaseException) -> None:
    """Nobody asked to be told of faults."""


def _silent() -> str:
    """Nothing is known of why the operator holds what it holds."""
    return ""
