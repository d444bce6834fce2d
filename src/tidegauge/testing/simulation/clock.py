"""Virtual time: seconds that pass only when told, and wall clocks that are wrong by as much as one likes.

Invariant: `monotonic` never goes back. A wall clock may, for it is the monotonic one plus a skew that anyone changes.

>>> clock = VirtualClock()
>>> clock.pass_to(90.0)
>>> clock.monotonic(), clock.now().isoformat(), clock.now(skew=-60.0).isoformat()
(90.0, '2026-01-01T00:01:30+00:00', '2026-01-01T00:00:30+00:00')
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["VirtualClock"]

_ORIGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Seconds since the world began. It begins at 0, on the first of January 2026."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._seconds

    def now(self, *, skew: float = 0.0) -> datetime:
        """Return what a wall clock shows that is `skew` seconds ahead."""
        return _ORIGIN + timedelta(seconds=self._seconds + skew)

    def pass_to(self, instant: float) -> None:
        """Let time pass until an instant. One that has passed already changes nothing."""
        self._seconds = max(self._seconds, instant)
