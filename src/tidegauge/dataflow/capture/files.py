"""Captured events into a file, a pipe or a socket, and out of a file, to be replayed or looked at one by one.

`stream.capture(into=EventWriter("orders.events", INT))` writes each event as one frame, at once and whole;
`scope.replay(EventReader("orders.events", INT))` reads them.

Invariant: the written events are a legal stream at any instant, but for at most one frame that is cut off at its end;
they are read in the sequence of their capture, each once, and none after damage.

>>> import io
>>> from tidegauge.dataflow import INT, EventWriter, Messages, Worker
>>> file = io.BytesIO()
>>> EventWriter(file, INT).append(Messages((0,), ["tea"]))
>>> reader = EventReader(io.BytesIO(file.getvalue()), INT)
>>> worker = Worker(monotonic=lambda: 0.0)
>>> with worker.dataflow("there", order=INT) as scope:
...     _ = scope.replay(reader).inspect(print)
>>> worker.step()
(0,) ['tea']
True
>>> reader.ending.complete, reader.ending.frontier
(False, (0,))
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

from tidegauge.dataflow.capture.form import Decoder, Encoder, Ending
from tidegauge.dataflow.operators.capture import Event, once
from tidegauge.dataflow.order import Order
from tidegauge.dataflow.schedule import SyncActivator
from tidegauge.errors.base import brief
from tidegauge.errors.events import WriterBroken

__all__ = ["EventReader", "EventWriter"]


class EventWriter:
    """Writes the events of one captured stream.

    When the other side does not read, writing waits: that is how far a capture can be ahead of its reader. So the two
    ends of one connection do not belong into one worker. After a write that failed nothing more is written. If the
    machine itself stops, events not yet on disk are lost: that is for the file system.

    into: the path of a file, which must not exist yet; or a binary file, a pipe or a socket that is open and blocks.
    Raises FileExistsError and other OSErrors.
    """

    def __init__(self, into: str | os.PathLike[str] | BinaryIO | socket.socket, order: Order[Any]) -> None:
        self.order: Final = order
        self._own: BinaryIO | None = None
        if isinstance(into, str | os.PathLike):
            self._own = into = Path(into).open("xb", buffering=0)  # noqa: SIM115 - open until `close`
        self._name: Final = named(into)
        self._write: Final = into.sendall if isinstance(into, socket.socket) else _whole(into)
        self._encoder: Final = Encoder(self._name, order)
        self._broken: BaseException | None = None
        self._send(self._encoder.start())

    def append(self, event: Event) -> None:
        """Write an event.

        Raises NotWritable, EventTooLarge, IllegalEvent, and then nothing was written; OSError, and WriterBroken from
        then on.
        """
        if self._broken is not None:
            raise WriterBroken(name=self._name, error=brief(self._broken)) from self._broken
        self._send(self._encoder.encode(event))

    def _send(self, frame: bytes) -> None:
        try:
            self._write(frame)
        except BaseException as error:
            self._broken = error
            raise

    def close(self) -> None:
        """Close the file, if its path was given. The captured stream is over only if its frontier was empty."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def named(what: Any) -> str:
    """Return how a file or a socket is called in errors.

    >>> import io
    >>> named(io.BytesIO())
    'BytesIO'
    """
    if isinstance(what, socket.socket):
        try:
            return f"the connection with {what.getpeername()!r}"
        except OSError:
            return "a connection"
    name = getattr(what, "name", None)
    return str(name) if isinstance(name, str | os.PathLike) else type(what).__name__


def _whole(file: BinaryIO) -> Callable[[bytes], None]:
    """Return a function that writes all of what it is given, and hands it on: a raw file may take a part only."""

    def write(frame: bytes) -> None:
        rest = memoryview(frame)
        while rest:
            taken = file.write(rest)
            if not taken:
                raise BlockingIOError("the file takes nothing now, and it was to block")
            rest = rest[taken:]
        file.flush()

    return write


_EVENTS, _BYTES = 256, 4 * 2**20
"""How much is taken in one invocation: other operators have their turn, and memory its bound."""


class EventReader:
    """Reads the events of one captured stream, for one replay.

    You can read a file any number of times, with a reader for each. A tail that was cut off, because the writer was
    stopped within an event, is left out; `ending` says so. If the events do not come to the end of the stream, its
    frontier stays where it was: nothing is released, and `explain_stuck` names the replay.

    source: the path of a file, or a binary file that is open. ending: how the stream ended, None before that.
    Raises NotEvents, NewerEvents, EventsOfAnotherOrder, DamagedEvents, OSError.
    """

    def __init__(self, source: str | os.PathLike[str] | BinaryIO, order: Order[Any]) -> None:
        self.order: Final = order
        self.ending: Ending | None = None
        self._own: BinaryIO | None = None
        if isinstance(source, str | os.PathLike):
            self._own = source = Path(source).open("rb")  # noqa: SIM115 - open until `close`
        self._events: Final = Decoder(named(source), order, source.read)
        self._wake: SyncActivator | None = None
        self._problem: Exception | None = None
        try:
            self._events.open()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Event]:
        """Yield all events from here to the end. Raises DamagedEvents, EventTooLarge, IllegalEvent, OSError."""
        while self.ending is None:
            yield from self.drain()

    def drain(self) -> Iterator[Event]:
        """Yield some events, and wake the replay if there is more. Raises what iterating raises, but only when all
        events before it were taken by another call: an invocation that raises has published nothing.
        """
        if self._problem is not None:
            raise self._problem
        begun, taken = self._events.at, 0
        while self.ending is None and self._problem is None and taken < _EVENTS and self._events.at - begun < _BYTES:
            try:
                event = self._events.next()
            except Exception as error:
                self.close()
                self._problem = error
                if not taken:
                    raise
                break
            if event is None:
                self.ending = self._events.ending()
                self.close()
            else:
                taken += 1
                yield event
        if self.ending is None and self._wake is not None:
            self._wake.activate()

    def attach(self, reader: SyncActivator) -> None:
        """Read for a replay from now on. Raises InvalidGraph the second time."""
        self._wake = once(self._wake, reader)
        reader.activate()

    def waits_for(self) -> str:
        """Return what a replay of it waits for."""
        if self._problem is not None:
            return brief(self._problem)
        return "its file has not been read to the end" if self.ending is None else f"its file is {self.ending}"

    def close(self) -> None:
        """Close the file, if its path was given. No more events come then, and the frontier stays where it is."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> EventReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
