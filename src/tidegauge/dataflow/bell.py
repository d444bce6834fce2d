"""What a thread sleeps on: others ring it, at any instant, and a ring that comes before the sleep ends it at once.

Ctrl-C may come in the middle of a ring or of a sleep. A `threading.Event` is Python code around a lock: an interrupt
there leaves the lock taken for good. A `queue.SimpleQueue` is in one piece, but when a signal's handler takes longer
than the rest of the sleep, it sleeps for ever. So the bell is the interpreter's lock itself: held, it is silent; to
ring is to release it.

Invariant: it rings or it does not, at whatever instant a thread was interrupted; a sleep ends at its time.

>>> bell = Bell()
>>> bell.ring(); bell.ring()
>>> bell.heard(within=10.0), bell.heard(within=0.0)
(True, False)
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

__all__ = ["Bell"]


class Bell:
    """Is silent at first."""

    __slots__ = ("_silent",)

    def __init__(self) -> None:
        self._silent: Final = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Let it ring, if it does not already. From any thread."""
        if self._silent.locked():
            with suppress(RuntimeError):  # another thread was quicker
                self._silent.release()

    def hush(self) -> None:
        """Let it be silent."""
        self._silent.acquire(blocking=False)

    def heard(self, *, within: float) -> bool:
        """Wait until it rings, at most `within` seconds, and hush it; say whether it rang."""
        return self._silent.acquire(timeout=within)
