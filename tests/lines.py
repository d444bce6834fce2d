"""A line to a server that breaks on purpose: it is cut after so many bytes, or goes silent, as networks do.

Invariant: bytes that come through are those that were sent, in their order.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["Line", "line_to"]

_RESET = struct.pack("ii", 1, 0)


class Line:
    """Forwards connections of `port` to a port of this machine.

    cut_after: is asked for each connection after how many bytes from the server it is reset, None for never. silent:
    while it is set, nothing comes through, and nobody is told.
    """

    def __init__(self, to: int, *, cut_after: Callable[[], int | None] = lambda: None) -> None:
        self._to, self._cut_after = to, cut_after
        self.silent = threading.Event()
        self.cuts = self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Reset all connections, and take no more."""
        self._closed.set()
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections that are open."""
        for one in self._open:
            _reset(one)
        self._open.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                try:
                    far = socket.create_connection(("127.0.0.1", self._to), timeout=10)
                except OSError:
                    _reset(near)
                    continue
                far.settimeout(None)
                self._open += [near, far]
                for source, target, most in ((near, far, None), (far, near, self._cut_after())):
                    threading.Thread(target=self._pump, args=(source, target, most), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, most: int | None) -> None:
        left = most
        try:
            while data := source.recv(4096):
                while self.silent.is_set() and not self._closed.is_set():
                    self._closed.wait(0.05)
                if left is not None and len(data) >= left:
                    target.sendall(data[:left])
                    self.cuts += 1
                    break
                target.sendall(data)
                left = None if left is None else left - len(data)
        except OSError:
            pass
        _reset(source)
        _reset(target)


@contextmanager
def line_to(port: int, *, cut_after: Callable[[], int | None] = lambda: None) -> Iterator[Line]:
    """A line that is closed in the end."""
    one = Line(port, cut_after=cut_after)
    try:
        yield one
    finally:
        one.close()


def _reset(one: socket.socket) -> None:
    """Close a socket so that its other end sees a reset. `shutdown` wakes up the thread that reads from it."""
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        one.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        one.close()
