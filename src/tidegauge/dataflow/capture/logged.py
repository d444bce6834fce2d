"""The event log of a worker as a captured stream, to be replayed in another worker's dataflow.

Each batch is a list of log events, stamped with the millisecond of their worker's clock. The frontier goes on with
the events, so a millisecond is complete when something of a later one was logged.

Invariant: every event comes once, in the sequence of logging; one that several workers' threads have brought out of
sequence is stamped with the frontier.

>>> from tidegauge.dataflow import INT, Worker
>>> queue = LogQueue()
>>> watched, watching = Worker(monotonic=lambda: 0.007, log=queue), Worker(monotonic=lambda: 0.0)
>>> with watching.dataflow("log", order=INT) as scope:
...     _ = scope.replay(queue).inspect(lambda stamp, events: print(stamp, len(events), events[0].path))
>>> with watched.dataflow("shop", order=INT) as scope:
...     orders, _ = scope.input("orders")
>>> orders.close()
>>> while watched.step(): pass
>>> queue.close()
>>> while watching.step(): pass
(7,) 5 shop/orders

Let the watching dataflow be on a worker that does not log into the same queue: it would be told of its own reading,
for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from tidegauge.dataflow.looking.log import LogEvent
from tidegauge.dataflow.operators.capture import Event, Messages, Progress, once
from tidegauge.dataflow.order import INT, Integers
from tidegauge.dataflow.schedule import SyncActivator

__all__ = ["LogQueue"]


class LogQueue:
    """A sink for log events, from any number of workers, and the source of one replay."""

    def __init__(self) -> None:
        self.order: Final[Integers] = INT
        self._events: Final[deque[LogEvent]] = deque()
        self._reader: SyncActivator | None = None
        self._told: int | None = 0
        self._closed = False

    def __call__(self, event: LogEvent) -> None:
        """Take an event. From any thread."""
        self._events.append(event)
        self._wake()

    def close(self) -> None:
        """Promise that nothing more will be logged: the stream ends with the events so far. From any thread."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            self._reader.activate()

    def attach(self, reader: SyncActivator) -> None:
        """Wake `reader` from now on. Raises InvalidGraph the second time."""
        self._reader = once(self._reader, reader)
        reader.activate()

    def drain(self) -> Iterator[Event]:
        """Take the logged events, as events of a captured stream."""
        closed = self._closed
        taken = [self._events.popleft() for _ in range(len(self._events))]
        for millisecond, events in groupby(taken, lambda event: int(1000 * event.at)):
            if self._told is None:
                return
            if millisecond > self._told:
                yield Progress(((self._told, -1), (millisecond, 1)))
                self._told = millisecond
            yield Messages((self._told,), list(events))
        if closed and self._told is not None:
            yield Progress(((self._told, -1),))
            self._told = None

    def waits_for(self) -> str:
        """Return what a replay of it waits for."""
        return "the log that it replays is open: close the LogQueue"
