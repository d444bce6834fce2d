"""Virtual time: seconds that pass only when told, and wall clocks that are wrong by as much as one likes.

Invariant: `monotonic` never goes back. A wall clock may, for it is the monotonic one plus a skew that anyone changes,
and that grows by itself while the wall clock runs at another rate.

>>> clock = VirtualClock()
>>> fast = RIGHT.drifting(1.5, clock.monotonic())
>>> clock.pass_to(90.0)
>>> clock.monotonic(), clock.now().isoformat(), clock.now(skew=-60.0).isoformat()
(90.0, '2026-01-01T00:01:30+00:00', '2026-01-01T00:00:30+00:00')
>>> clock.now(skew=fast.at(90.0)).isoformat(), fast.jumping(-5.0).at(90.0), fast.drifting(0.9, 90.0).at(100.0)
('2026-01-01T00:02:15+00:00', 40.0, 44.0)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["RIGHT", "Skew", "VirtualClock"]

_ORIGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Skew:
    """How wrong a wall clock is: `ahead` seconds at the instant `since`. In each second `rate` seconds pass by it."""

    ahead: float = 0.0
    rate: float = 1.0
    since: float = 0.0

    def at(self, instant: float) -> float:
        """Return by how many seconds the clock is ahead at an instant."""
        return self.ahead + (self.rate - 1.0) * (instant - self.since)

    def jumping(self, seconds: float) -> Skew:
        """Return the skew after a jump."""
        return replace(self, ahead=self.ahead + seconds)

    def drifting(self, rate: float, instant: float) -> Skew:
        """Return the skew of a clock that runs at a rate from an instant on."""
        return Skew(self.at(instant), rate, instant)


RIGHT: Final = Skew()
"""Of a clock that is right."""


class VirtualClock:
    """Seconds since the world began. It begins at 0, on the first of January 2026."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._seconds

    def micros(self) -> int:
        """Return the time of day of a clock that is right, in microseconds since 1970."""
        return int(self.now().timestamp() * 1_000_000)

    def now(self, *, skew: float = 0.0) -> datetime:
        """Return what a wall clock shows that is `skew` seconds ahead."""
        return _ORIGIN + timedelta(seconds=self._seconds + skew)

    def pass_to(self, instant: float) -> None:
        """Let time pass until an instant. One that has passed already changes nothing."""
        self._seconds = max(self._seconds, instant)
