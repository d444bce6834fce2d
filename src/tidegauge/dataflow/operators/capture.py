"""Capture and replay: a stream as a sequence of events, batches and progress, and back.

A capture begins with an implied capability at the minimum; it records changes from there. So a replay begins with one
capability at the minimum for each captured stream, and has to hear of every event exactly once.

Invariant (legality): starting from one count at the minimum, every message and every count gained lies at or beyond a
time whose count is positive.

>>> from tidegauge.dataflow import INT, Worker
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("here", order=INT) as scope:
...     orders, stream = scope.input("orders")
...     queue = stream.capture()
>>> with worker.dataflow("there", order=INT) as scope:
...     probe = scope.replay(queue).inspect(print).probe()
>>> orders.send("first"); orders.close()
>>> while worker.step(): pass
(0,) first
>>> probe.done()
True
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from tidegauge.dataflow.build import OperatorBuilder, OperatorContext
from tidegauge.dataflow.channel import Stamp
from tidegauge.dataflow.frontier import ChangeBatch
from tidegauge.dataflow.invocation import Operator
from tidegauge.dataflow.order import Order, Time
from tidegauge.dataflow.schedule import SyncActivator
from tidegauge.errors.dataflow import InvalidGraph

if TYPE_CHECKING:
    from tidegauge.dataflow.scope import Scope
    from tidegauge.dataflow.stream import Stream

__all__ = ["Event", "EventQueue", "EventSink", "EventSource", "Messages", "Progress", "capture", "once", "replay"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How the frontier changed, as `(time, +1 or -1)` in sort order."""

    changes: tuple[tuple[Time, int], ...]


@dataclass(frozen=True, slots=True)
class Messages:
    """One batch and its stamp."""

    stamp: Stamp
    batch: Any


Event: TypeAlias = Progress | Messages


class EventSink(Protocol):
    """Where a capture puts what it records: a queue, or a writer of `dataflow.capture`."""

    @property
    def order(self) -> Order[Any]:
        """The order of the stream that it takes."""
        ...

    def append(self, event: Event, /) -> None:
        """Take the next event. What it raises is the capture's fault, and nothing of that invocation is published."""
        ...


class EventSource(Protocol):
    """What a replay takes events from: a queue, or a reader of `dataflow.capture`. Each gives every event once."""

    @property
    def order(self) -> Order[Any]:
        """The order of the stream that was captured."""
        ...

    def attach(self, reader: SyncActivator, /) -> None:
        """Wake `reader` whenever there is something to drain, now included. Raises InvalidGraph the second time."""
        ...

    def drain(self) -> Iterable[Event]:
        """Take events that are there. What it raises is the replay's fault."""
        ...

    def waits_for(self) -> str:
        """Return what a replay that stands still waits for, for people to read."""
        ...


S = TypeVar("S", bound=EventSink)


class EventQueue:
    """The events of one captured stream, for one reader. Any thread may append, any one thread may take."""

    def __init__(self, order: Order[Any]) -> None:
        self.order: Final = order
        self._events: deque[Event] = deque()
        self._reader: SyncActivator | None = None

    def append(self, event: Event) -> None:
        """Add an event and wake the reader."""
        self._events.append(event)  # first, so that a reader that wakes finds it
        if self._reader is not None:
            self._reader.activate()

    def popleft(self) -> Event | None:
        """Take the first event, None when there is none."""
        try:
            return self._events.popleft()
        except IndexError:
            return None

    def drain(self) -> Iterator[Event]:
        """Take all events that are there."""
        while self._events:  # nobody else takes any
            yield self._events.popleft()

    def attach(self, reader: SyncActivator) -> None:
        """Wake `reader` for each event from now on, and now for those that are there. Raises InvalidGraph the second
        time: two readers would each miss events.
        """
        self._reader = once(self._reader, reader)  # first: an event that comes meanwhile wakes it, or is seen here
        if self._events:
            reader.activate()

    def waits_for(self) -> str:
        """Return what a replay of it waits for."""
        return "a captured stream that it replays has not come further"

    def __len__(self) -> int:
        return len(self._events)


def once(attached: SyncActivator | None, reader: SyncActivator) -> SyncActivator:
    """Return `reader`. Raises InvalidGraph when another one is attached already."""
    if attached is not None:
        raise InvalidGraph(
            path="a captured stream",
            problem="it has a reader already",
            reason="a captured stream can be replayed once; a second reader would take events from the first",
            advice="capture the stream again for the second reader, or read its file by a second reader",
        )
    return reader


def capture(stream: Stream[Any], queue: S, name: str, *, progress: bool) -> S:
    """Record a stream: with `progress`, first how far its frontier has come, then what arrived.

    Raises InvalidGraph.
    """
    builder = OperatorBuilder(stream.scope, name)
    _same_order(builder.path, stream.scope.order, queue.order, "recorded")
    builder.input(stream)

    def make(context: OperatorContext, operator: Operator) -> Callable[[], None]:
        inlet, key = operator.inputs[0], context.order.sort_key
        told: tuple[Time, ...] = (context.order.minimum,)

        def step() -> None:
            nonlocal told
            now = inlet.frontier.shown
            if progress and now != told:
                changes = ChangeBatch([*((time, -1) for time in told), *((time, 1) for time in now)])
                told = now
                queue.append(Progress(tuple(sorted(changes.items(), key=lambda change: key(change[0])))))
            for capability, batch in inlet.drain():
                queue.append(Messages(capability.stamp, batch))

        return step

    builder.install(make, notify=progress)
    return queue


def replay(scope: Scope, queues: Sequence[EventSource], name: str) -> Stream[Any]:
    """Turn captured streams back into one stream, with their progress. Raises InvalidGraph."""
    builder = OperatorBuilder(scope, name)
    stream = builder.output()
    for queue in queues:
        _same_order(builder.path, queue.order, scope.order, "replayed")

    def make(context: OperatorContext, operator: Operator) -> Callable[[], None]:
        output = operator.outputs[0]
        changes, outbox = output.account.changes, output.outbox
        changes.add(context.order.minimum, len(queues) - 1)
        operator.remark = lambda: "; ".join(queue.waits_for() for queue in queues)
        for queue in queues:
            queue.attach(context.sync_activator())

        def step() -> None:
            for queue in queues:
                for event in queue.drain():
                    if isinstance(event, Progress):
                        changes.extend(event.changes)
                    else:
                        outbox.append((event.stamp, event.batch))

        return step

    builder.install(make, notify=False)
    return stream


def _same_order(path: str, stream: Order[Any], other: Order[Any], what: str) -> None:
    if stream != other:
        raise InvalidGraph(
            path=path,
            problem=f"a stream captured with the order {stream!r} cannot be {what} with {other!r}",
            reason="its times mean something else there",
            advice="use the same order on both sides, or attach an operator to the queue and translate the events",
        )
