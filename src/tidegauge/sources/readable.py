"""Waiting until a connection has something to read.

Invariant: any number of files may be open. `select.select` refuses those from the 1,024th on, and a driver of many
sources has more.

>>> import socket
>>> here, there = socket.socketpair()
>>> readable(here, 0.0)
False
>>> there.send(b"x"), readable(here, 10.0)
(1, True)
>>> here.close(); there.close()
"""

from __future__ import annotations

import selectors
from typing import Final, Protocol

__all__ = ["readable"]

_SELECTOR: Final = getattr(selectors, "PollSelector", selectors.DefaultSelector)


class HasFile(Protocol):
    """A connection with a number among the open files."""

    def fileno(self) -> int:
        """Return the number."""
        ...


def readable(connection: HasFile | int, seconds: float) -> bool:
    """Whether there is anything to read; waits at most `seconds`. The end of the connection counts as something."""
    with _SELECTOR() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(max(seconds, 0.0)))
