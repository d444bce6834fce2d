"""The event log: what a worker does, told as it happens.

A worker that is given `log=` calls it, within its steps, with small immutable events: operators added, invocations
begun and ended, batches taken and sent, progress published and applied, faults. Without, nothing is recorded, and the
price is one test for None at each place.

    Operates            an operator or a scope is part of a dataflow now
    Schedules           an invocation begins, or ends
    Takes, Sends        in one invocation: batches taken from an input, sent to an input
    Publishes           all that one invocation did, as one update (law 10); `Applies` is when a scope counts it
    Fails               an operator raised; nothing of that invocation was published

Invariant: between the two `Schedules` of an invocation there is what this invocation did and nothing else; one that
failed took nothing, sent nothing and published nothing.

>>> from tidegauge.dataflow import INT, Worker
>>> events = []
>>> worker = Worker(monotonic=lambda: 0.5, log=events.append)
>>> with worker.dataflow("shop", order=INT) as scope:
...     orders, stream = scope.input("orders")
...     _ = stream.map(len)
>>> orders.send(["tea"])
>>> _ = worker.step()
>>> for event in events:
...     if isinstance(event, (Operates, Takes, Sends)): print(event)
Operates(worker=0, at=0.5, path='shop/orders', number=1, inputs=0, outputs=1)
Operates(worker=0, at=0.5, path='shop/map', number=2, inputs=1, outputs=1)
Sends(worker=0, at=0.5, path='shop/orders', to='shop/map', port=0, batches=1)
Takes(worker=0, at=0.5, path='shop/map', port=0, batches=1)

`LogQueue` makes a stream of another dataflow of it. The sink is called by the worker's own thread and must not raise:
it would stop the worker in the middle of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from tidegauge.dataflow.order import Time
from tidegauge.errors.base import brief

__all__ = [
    "Applies",
    "Fails",
    "Log",
    "LogEvent",
    "Operates",
    "Pointstamp",
    "Publishes",
    "Schedules",
    "Sends",
    "Takes",
]


class Pointstamp(NamedTuple):
    """How a count changes, of batches at an input or of capabilities at an output. path: "" for the world outside."""

    path: str
    kind: str
    port: int
    time: Time
    delta: int


class Operates(NamedTuple):
    """A node was added. number: its place in the sequence of its scope."""

    worker: int
    at: float
    path: str
    number: int
    inputs: int
    outputs: int


class Schedules(NamedTuple):
    """An invocation begins or ends. at, here and everywhere: seconds of the worker's clock."""

    worker: int
    at: float
    path: str
    begins: bool


class Takes(NamedTuple):
    """Batches were taken from an input, each counted once for each time of its stamp."""

    worker: int
    at: float
    path: str
    port: int
    batches: int


class Sends(NamedTuple):
    """Batches were sent to the input `port` of `to`, each counted once for each time of its stamp."""

    worker: int
    at: float
    path: str
    to: str
    port: int
    batches: int


class Publishes(NamedTuple):
    """An invocation published its update."""

    worker: int
    at: float
    path: str
    changes: tuple[Pointstamp, ...]


class Applies(NamedTuple):
    """A scope counted updates: its own operators', its peers', and what entered it."""

    worker: int
    at: float
    path: str
    changes: tuple[Pointstamp, ...]


class Fails(NamedTuple):
    """An operator raised."""

    worker: int
    at: float
    path: str
    error: str


LogEvent: TypeAlias = Operates | Schedules | Takes | Sends | Publishes | Applies | Fails


class Log:
    """What the runtime tells: it puts the worker's number and the time to it and hands it on."""

    __slots__ = ("_now", "_sink", "_worker")

    def __init__(self, sink: Callable[[LogEvent], object], worker: int, now: Callable[[], float]) -> None:
        self._sink: Final = sink
        self._worker: Final = worker
        self._now: Final = now

    def operates(self, path: str, number: int, inputs: int, outputs: int) -> None:
        """Tell that a node was added."""
        self._sink(Operates(self._worker, self._now(), path, number, inputs, outputs))

    def begins(self, path: str) -> None:
        """Tell that an invocation begins."""
        self._sink(Schedules(self._worker, self._now(), path, begins=True))

    def ends(self, path: str, changes: Iterable[Pointstamp], fault: BaseException | None) -> None:
        """Tell what an invocation did, and that it has ended."""
        now, worker, sink = self._now(), self._worker, self._sink
        published = tuple(changes)
        for (name, port), count in _batches(published, -1).items():
            sink(Takes(worker, now, name, port, count))
        for (name, port), count in _batches(published, 1).items():
            sink(Sends(worker, now, path, name, port, count))
        if published:
            sink(Publishes(worker, now, path, published))
        if fault is not None:
            sink(Fails(worker, now, path, brief(fault)))
        sink(Schedules(worker, now, path, begins=False))

    def applies(self, path: str, changes: Iterable[Pointstamp]) -> None:
        """Tell that a scope counts updates."""
        self._sink(Applies(self._worker, self._now(), path, tuple(changes)))


def _batches(changes: Iterable[Pointstamp], sign: int) -> dict[tuple[str, int], int]:
    """Return how many batches were sent to each input (sign 1), or taken from it (sign -1)."""
    counts: dict[tuple[str, int], int] = {}
    for path, kind, port, _, delta in changes:
        if kind == "input" and delta * sign > 0:
            counts[path, port] = counts.get((path, port), 0) + delta * sign
    return counts
