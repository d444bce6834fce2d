"""The time that passes while a database answers: this machine's, or that of a simulation.

Invariant: a subscription asks for the time here alone, so what it decides depends on nothing else.

>>> HERE.monotonic() <= HERE.monotonic(), HERE.micros() > 0
(True, True)
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["HERE", "MachineClock", "ServerClock"]


class ServerClock(Protocol):
    """The time."""

    def monotonic(self) -> float:
        """Return seconds, which never go back."""
        ...

    def micros(self) -> int:
        """Return the time of day, in microseconds since 1970."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


@dataclass(frozen=True, slots=True)
class MachineClock:
    """The time of this machine."""

    def monotonic(self) -> float:
        """Return its seconds."""
        return time.monotonic()

    def micros(self) -> int:
        """Return its time of day."""
        return time.time_ns() // 1000

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


HERE: Final = MachineClock()
