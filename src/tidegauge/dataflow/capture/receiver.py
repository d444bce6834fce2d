"""Captured events from a socket, to be replayed in a dataflow.

A thread of its own reads and decodes, and wakes the replay. It is ahead of the replay by a bounded number of events
and bytes; then it stops reading, the connection fills, and the writer at the other end waits.

A connection that ends before the stream has come to its end is broken: what came is replayed, the frontier stays
where it was, `ending` says where it broke, and `explain_stuck` names the replay.

Invariant: at most `AHEAD` events wait here, and at most `AHEAD_BYTES` and one event more.

>>> import socket
>>> from tidegauge.dataflow import INT, EventWriter, Messages, Worker
>>> here, there = socket.socketpair()
>>> EventWriter(here, INT).append(Messages((0,), ["tea"]))
>>> here.close()
>>> with EventReceiver(there, INT) as receiver:
...     worker = Worker(monotonic=lambda: 0.0)
...     with worker.dataflow("there", order=INT) as scope:
...         _ = scope.replay(receiver).inspect(print)
...     while receiver.ending is None: _ = worker.step()
(0,) ['tea']
>>> receiver.ending.complete, receiver.ending.frontier
(False, (0,))
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from tidegauge.dataflow.capture.files import named
from tidegauge.dataflow.capture.form import Decoder, Ending
from tidegauge.dataflow.operators.capture import Event, once
from tidegauge.dataflow.order import Order
from tidegauge.dataflow.schedule import SyncActivator
from tidegauge.errors.base import brief

__all__ = ["AHEAD", "AHEAD_BYTES", "EventReceiver"]

AHEAD: Final = 256
AHEAD_BYTES: Final = 16 * 2**20


class EventReceiver:
    """Receives the events of one captured stream for one replay.

    connection: an open socket, which is the receiver's from now on.
    """

    def __init__(self, connection: socket.socket, order: Order[Any]) -> None:
        self.order: Final = order
        self._name: Final = named(connection)
        self._connection: Final = connection
        self._waiting: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._room: Final = threading.Condition()
        self._closed = False
        self._last: Ending | Exception | None = None
        self._wake: SyncActivator | None = None
        self._thread: threading.Thread | None = None

    @property
    def ending(self) -> Ending | None:
        """How the stream ended, None as long as events may come or have not been taken, or when it is damaged.

        A connection can end long after its stream, whose replay then is gone: so nobody has to take the end.
        """
        with self._room:
            return self._last if isinstance(self._last, Ending) and not self._waiting else None

    @property
    def waiting(self) -> int:
        """How many events have come that were not taken."""
        return len(self._waiting)

    def attach(self, reader: SyncActivator) -> None:
        """Begin to receive for a replay. Raises InvalidGraph the second time."""
        self._wake = once(self._wake, reader)
        self._connection.settimeout(None)
        self._thread = threading.Thread(target=self._receive, args=(reader,), name=self._name, daemon=True)
        self._thread.start()

    def drain(self) -> Iterator[Event]:
        """Yield the events that are there, and make room for more.

        Raises the error of the next one, but only when all events before it were taken by another call: an invocation
        that raises has published nothing.
        """
        with self._room:
            taken, self._waiting = self._waiting, deque()
            self._bytes = 0
            last = self._last
            self._room.notify()
        for event, _ in taken:
            yield event
        if isinstance(last, Exception):
            if not taken:
                raise last
            if self._wake is not None:
                self._wake.activate()

    def waits_for(self) -> str:
        """Return what a replay of it waits for."""
        if isinstance(self._last, Exception):
            return brief(self._last)
        return f"{self._name} is open" if self._last is None else f"{self._name}: {self._last}"

    def close(self) -> None:
        """Close the connection. No more events come then, and the frontier stays where it is."""
        with self._room:
            self._closed = True
            self._room.notify()
        with suppress(OSError):  # it may be closed already, by whichever end
            self._connection.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join()
        self._connection.close()

    def __enter__(self) -> EventReceiver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # In the thread.

    def _receive(self, wake: SyncActivator) -> None:
        with self._connection.makefile("rb") as incoming:
            events = Decoder(self._name, self.order, incoming.read)
            last: Ending | Exception
            try:
                at = events.at
                while self._room_for() and (event := events.next()) is not None:
                    self._put(event, events.at - at)
                    wake.activate()
                    at = events.at
                last = events.ending("closed here" if self._closed else "")
            except OSError as error:
                last = events.ending(brief(error))
            except Exception as error:  # noqa: BLE001 - it is raised where the events are taken
                last = error
        with self._room:
            self._last = last
        wake.activate()

    def _room_for(self) -> bool:
        """Wait until something may be added; return False when it was closed meanwhile."""
        with self._room:
            while not self._closed and (len(self._waiting) >= AHEAD or self._bytes >= AHEAD_BYTES):
                self._room.wait()
            return not self._closed

    def _put(self, event: Event, size: int) -> None:
        with self._room:
            self._waiting.append((event, size))
            self._bytes += size
