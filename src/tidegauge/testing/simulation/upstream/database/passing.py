"""The time of a simulated database: it passes while somebody waits for it.

>>> time = PassingTime(VirtualClock())
>>> time.sleep(1.5); time.until(lambda: True, 9.0)
>>> time.monotonic()
1.5
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidegauge.testing.simulation.clock import VirtualClock

__all__ = ["GAP", "LEAST", "PassingTime"]

GAP: Final = 0.03
"""Seconds until more of a log comes after a cut, in the middle of a transaction as anywhere."""
LEAST: Final = 1e-6
"""Seconds that are none."""


@dataclass(frozen=True, slots=True)
class PassingTime:
    """A `ServerClock`. wait: returns when something is so, or after a number of seconds, while all else goes on."""

    clock: VirtualClock
    wait: Callable[[Callable[[], bool], float], None] | None = None

    def monotonic(self) -> float:
        """Return virtual seconds."""
        return self.clock.monotonic()

    def micros(self) -> int:
        """Return the virtual time of day."""
        return self.clock.micros()

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.until(lambda: False, seconds)

    def until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Let virtual time pass until something is so, at most for some seconds."""
        if self.wait is not None:
            self.wait(ready, seconds)
        elif not ready():
            self.clock.pass_to(self.monotonic() + seconds)
