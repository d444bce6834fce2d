"""Work that is done a little at a time, so that a stop does not wait for the end of it.

Invariant: a step ends soon after its time is up; the work is done once.

>>> steps = Steps(number for number in range(3))
>>> steps.go_on(60.0), steps.go_on(60.0)
(True, True)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Final

__all__ = ["Steps"]

_OVER: Final = object()


class Steps:
    """A generator as work: it pauses where it yields. clock: returns seconds."""

    def __init__(self, work: Generator[object, None, None], clock: Callable[[], float] = time.monotonic) -> None:
        self._work: Final = work
        self._clock: Final = clock

    def go_on(self, seconds: float) -> bool:
        """Work for so long; return whether it is done. Raises what the work does."""
        until = self._clock() + seconds
        while self._clock() < until:
            if next(self._work, _OVER) is _OVER:
                return True
        return False

    def close(self) -> None:
        """Give it up."""
        self._work.close()
