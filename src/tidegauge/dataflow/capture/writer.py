"""Captured events into a file, a pipe or a socket.

`stream.capture(into=EventWriter("orders.events", INT))` writes each event as one frame, at once and whole. When the
other side does not read, writing waits: that is how far a capture can be ahead of its reader. So the two ends of one
connection do not belong into one worker.

Invariant: the written events are a legal stream at any instant, but for at most one frame that is cut off at its end.
After a write that failed nothing more is written. If the machine itself stops, events not yet on disk are lost: that
is for the file system.

>>> import io
>>> from tidegauge.dataflow import INT, Messages
>>> file = io.BytesIO()
>>> writer = EventWriter(file, INT)
>>> writer.append(Messages((0,), ["tea"]))
>>> file.getvalue()[-7:-4]
b'a"]'
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

from tidegauge.dataflow.capture.form import Encoder
from tidegauge.dataflow.operators.capture import Event
from tidegauge.dataflow.order import Order
from tidegauge.errors.base import brief
from tidegauge.errors.events import WriterBroken

__all__ = ["EventWriter"]


class EventWriter:
    """Writes the events of one captured stream.

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
