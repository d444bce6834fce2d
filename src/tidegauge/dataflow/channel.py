"""How batches get from one output to the inputs it feeds, within a scope and across its walls.

A message is `(stamp, batch)`: the stamp is a tuple of times, usually of one; the batch is anything. Progress counts
one per batch and stamp element, whatever is in the batch: an empty one is a message like any other.

Invariant: each receiver puts a message where exactly one operator, or one scope's account of what entered, will find
it; counting is done by those who send and those who take, never here, but for `Ingress`, which is both.

>>> tee, basin = Tee(), Queue(lambda: None)
>>> tee.receivers.append(basin)
>>> tee.push(((0,), ["ebb"]))
>>> basin.messages.popleft()
((0,), ['ebb'])
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from tidegauge.dataflow.frontier import ChangeBatch
from tidegauge.dataflow.order import Order, Time, minimal

__all__ = ["Crossing", "Egress", "Ingress", "Message", "Outlet", "Queue", "Receiver", "Stamp", "Tee"]

Stamp: TypeAlias = tuple[Time, ...]
Message: TypeAlias = tuple[Stamp, Any]


class Receiver(Protocol):
    """The end of an edge."""

    def push(self, message: Message) -> None:
        """Take over a message."""
        ...

    def wake(self) -> None:
        """Have the node behind the edge run in the next step."""
        ...


class Outlet(Protocol):
    """Where an operator's output sends."""

    def push(self, message: Message) -> None:
        """Take over a message."""
        ...


class Tee:
    """An output: everything goes to each receiver."""

    __slots__ = ("receivers",)

    def __init__(self) -> None:
        self.receivers: Final[list[Receiver]] = []

    def push(self, message: Message) -> None:
        """Send a message to all receivers."""
        for receiver in self.receivers:
            receiver.push(message)

    def wake(self) -> None:
        """Have all that is behind the output run in the next step."""
        for receiver in self.receivers:
            receiver.wake()


class Crossing:
    """An output to the workers: its batches are `(peer, batch)`, and each goes to that peer's `inside`."""

    __slots__ = ("_index", "_post", "inside")

    def __init__(self, inside: Tee, index: int, post: Callable[[int, Message], None]) -> None:
        self.inside: Final = inside
        self._index: Final = index
        self._post: Final = post

    def push(self, message: Message) -> None:
        """Hand a message on here, or send it to the peer it is for."""
        stamp, (peer, batch) = message
        if peer == self._index:
            self.inside.push((stamp, batch))
        else:
            self._post(peer, (stamp, batch))

    def arrive(self, message: Message) -> None:
        """Hand on a peer's batches, and wake the node they are for: nothing here saw them coming."""
        self.inside.push(message)
        self.inside.wake()


class Queue:
    """An operator's input."""

    __slots__ = ("_wake", "messages")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.messages: Final[deque[Message]] = deque()
        self._wake: Final = wake

    def push(self, message: Message) -> None:
        """Keep a message until the operator drains it."""
        self.messages.append(message)

    def wake(self) -> None:
        """Have the operator run in the next step."""
        self._wake()


class Ingress:
    """The way into a nested scope: times become the scope's own, and what entered is counted for it."""

    __slots__ = ("_wake", "entered", "inside", "to_inner")

    def __init__(self, inside: Tee, to_inner: Callable[[Time], Time], wake: Callable[[], None]) -> None:
        self.inside: Final = inside
        self.to_inner: Final = to_inner
        self.entered: Final[ChangeBatch[Time]] = ChangeBatch()
        self._wake: Final = wake

    def push(self, message: Message) -> None:
        """Count a message and hand it on inside."""
        stamp = tuple(self.to_inner(time) for time in message[0])
        for time in stamp:
            self.entered.add(time, 1)
        self.inside.push((stamp, message[1]))

    def wake(self) -> None:
        """Have the nested scope run in the next step: no operator within would do it."""
        self._wake()


class Egress:
    """The way out of a nested scope. The outer operators do not run in this scope's turn, so they are woken.

    Different times of a stamp may be one outside, or come one after another there. Batches that leave have the
    minimal ones; `surplus` counts the others, which the scope was told of and the outside never will be.
    """

    __slots__ = ("_order", "_wake", "outside", "surplus", "to_outer")

    def __init__(
        self, outside: Tee, to_outer: Callable[[Time], Time], order: Order[Any], wake: Callable[[], None]
    ) -> None:
        self.outside: Final = outside
        self.to_outer: Final = to_outer
        self.surplus: Final[ChangeBatch[Time]] = ChangeBatch()
        self._order: Final = order
        self._wake: Final = wake

    def push(self, message: Message) -> None:
        """Hand a message on outside."""
        stamp, batch = message
        leaving = tuple(map(self.to_outer, stamp))
        if len(leaving) > 1:
            first: dict[Time, Time] = {}
            for outer, inner in zip(leaving, stamp, strict=True):
                first.setdefault(outer, inner)
            leaving = minimal(self._order, leaving)
            self.surplus.extend((time, 1) for time in stamp)
            self.surplus.extend((first[time], -1) for time in leaving)
        self.outside.push((leaving, batch))
        self.outside.wake()

    def wake(self) -> None:
        """Have the nested scope run in the next step: what came from a peer may have left more than it counts."""
        if self.surplus:
            self._wake()
