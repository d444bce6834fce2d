"""How many rows a second may be read: the generic cell rate algorithm as a value.

What begins is paid for afterwards: rows that are read keep the next ones waiting for as long as they take at the
rate. Nothing is saved up while there is nothing to do, so no idle time is followed by a flood.

Law: in any stretch of T seconds there begin to be read at most `rate * T` rows, and those of one step besides.

>>> limiter, wait = Limiter(4).step(0.0, 4)
>>> wait, limiter.wait(0.25), limiter.wait(1.0)
(1.0, 0.75, 0.0)
>>> limiter.changed(8, now=0.0).wait(0.0)
0.5
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Limiter"]


@dataclass(frozen=True, slots=True)
class Limiter:
    """At most `rate` rows a second begin; the next ones at `free_at`. rate: more than 0."""

    rate: float
    free_at: float = float("-inf")

    def wait(self, now: float) -> float:
        """Return the seconds until the next rows may begin."""
        return max(0.0, self.free_at - now)

    def step(self, now: float, rows: int) -> tuple[Limiter, float]:
        """Return the limiter after rows that began at `now`, and how long the next ones wait from then on."""
        free_at = max(self.free_at, now) + rows / self.rate
        return replace(self, free_at=free_at), free_at - now

    def changed(self, rate: float, *, now: float) -> Limiter:
        """Return a limiter of another rate that owes the same rows."""
        return Limiter(rate, now + self.wait(now) * self.rate / rate)
