"""When it is time to tick: at the multiples of an interval on the wall clock, whatever that clock does meanwhile.

Definition. Let `i` be the interval and `floor(t)` the greatest multiple of `i` that is not beyond `t`. The first tick
is due at once. After a tick at `now`, with `last = floor(now)`, the target is `floor(last + i)`, and a tick is due at
every instant outside of `[last, target)`.

- At the target or beyond it the next tick is due. Multiples that were slept through are skipped, not made up for.
- Before `last` only a clock can be that was put back. It ticks at once, and goes on from there.
- An interval that is changed counts from the next target on: `last` stays a multiple of the old one.

Invariant: `last < target <= last + i`. So whatever the clock did before, once it runs forward the next tick is due
within one interval; and while it runs forward, the times of the ticks grow.

>>> ticker = Ticker(1000)
>>> for now in (1125, 1999, 2000, 3999, 500):
...     ticker, at = ticker.step(now)
...     print(now, at, ticker.wait(now))
1125 1000 875
1999 None 1
2000 2000 1000
3999 3000 1
500 0 500
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegauge.errors.flow import InvalidArgument

__all__ = ["Ticker"]


@dataclass(frozen=True, slots=True)
class Ticker:
    """Ticks every `interval`, in any whole unit of time. last: the time of the last tick, None before the first."""

    interval: int
    last: int | None = None

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise InvalidArgument(parameter="interval", value=self.interval, expected="at least one unit of time")

    def wait(self, now: int) -> int:
        """Return how long it is until the next tick, at most one interval; 0 when it is due."""
        if self.last is None or now < self.last:
            return 0
        return max(0, self._floor(self.last + self.interval) - now)

    def step(self, now: int) -> tuple[Ticker, int | None]:
        """Return the ticker afterwards, and the time of the tick if one is due: a multiple of the interval."""
        if self.wait(now):
            return self, None
        at = self._floor(now)
        return replace(self, last=at), at

    def _floor(self, time: int) -> int:
        return time - time % self.interval
