"""A rate of late outputs that gives way to the live ones: it is halved while these lag, and grows by steps otherwise.

The lag of the live outputs is the age of the oldest epoch that is bound and not published. It does not depend on how
often epochs are minted, nor on whether anything is new upstream.

Laws. The rate stays between `LEAST` and `MOST`. However long the live outputs lag, late ones get a job each `ROUND`
seconds (`Pacing`). Once the lag is over, the rate comes back by `MORE` a step.

>>> lagging, well = Observed(lag=9.0, late=True), Observed(lag=0.2, late=True)
>>> [round(rate) for rate in (BEGIN, step(BEGIN, lagging), step(step(BEGIN, lagging), well))]
[10000, 5000, 15000]
>>> step(LEAST, lagging), step(MOST, well), step(MOST, Observed(lag=0.2, late=False))
(100.0, 10000000.0, 10000.0)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

__all__ = ["BEGIN", "EACH", "LEAST", "MORE", "MOST", "ROUND", "TARGET", "LiveLag", "Observed", "step"]

TARGET: Final = 5.0
"""Seconds of lag up to which the live outputs are well."""

EACH: Final = 1.0
"""Seconds between two steps."""

ROUND: Final = 10.0
"""Seconds after a job of late outputs within which the next one may begin, whatever the rate."""

BEGIN: Final = 10_000.0
"""Rows a second at which late outputs begin."""

MORE: Final = 10_000.0
"""By how many rows a second the rate grows in a step."""

LEAST: Final = 100.0
MOST: Final = 10_000_000.0

_SPAN: Final = 600
"""How many epochs, or stretches of them, are remembered while nothing is published."""


@dataclass(frozen=True, slots=True)
class Observed:
    """lag: that of the live outputs, in seconds. late: whether any output is."""

    lag: float
    late: bool


def step(rate: float, observed: Observed) -> float:
    """Return the rate for the next second. Once no output is late, the next one begins as the first did."""
    if not observed.late:
        return BEGIN
    return max(LEAST, rate / 2) if observed.lag > TARGET else min(MOST, rate + MORE)


class LiveLag:
    """For how long the oldest epoch has waited that is bound and not published.

    >>> lag = LiveLag()
    >>> lag.seen(0.0, upper=5, published=5), lag.seen(1.0, upper=6, published=5), lag.seen(4.0, upper=9, published=5)
    (0.0, 0.0, 3.0)
    >>> lag.seen(6.0, upper=9, published=6), lag.seen(7.0, upper=9, published=9)
    (2.0, 0.0)
    """

    def __init__(self) -> None:
        self._bound: Final[deque[tuple[int, float]]] = deque()

    def seen(self, now: float, *, upper: int, published: int) -> float:
        """Take note of how far the flow is, and return the lag in seconds."""
        if not self._bound or self._bound[-1][0] < upper:
            since = self._bound.pop()[1] if len(self._bound) >= _SPAN else now
            self._bound.append((upper, since))
        while self._bound and self._bound[0][0] <= published:
            self._bound.popleft()
        return now - self._bound[0][1] if self._bound else 0.0
