"""The order of a source's own scope: its times are frontiers, readings of its gauge.

A reading names the next position of every partition at once, and `a <= b` iff no partition has gone back. It is the
product of all partitions' orders, those not seen yet included: they read 0. So a reader needs a single capability,
however many partitions it has, and a new partition needs no bookkeeping.

>>> GAUGE.less_equal(Frontier({"p0": 5}), Frontier({"p0": 5, "p1": 2}))
True
>>> GAUGE.less_equal(Frontier({"p0": 5}), Frontier({"p1": 9}))
False
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegauge.remap.frontier import ORIGIN, Frontier

__all__ = ["GAUGE", "Gauge"]


@dataclass(frozen=True, slots=True)
class Gauge:
    """The pointwise order on frontiers. It has no summaries: a source's scope has no loops."""

    @property
    def minimum(self) -> Frontier:
        """The reading before anything was read."""
        return ORIGIN

    @property
    def total(self) -> bool:
        """Readings of several partitions may cross."""
        return False

    def less_equal(self, a: Frontier, b: Frontier, /) -> bool:
        """Whether no partition is further in `a` than in `b`."""
        return a.less_equal(b)

    def sort_key(self, time: Frontier, /) -> int:
        """Return the sum of all positions: if `a < b`, some position is larger and none smaller, so the sum is."""
        return sum(time.values())


GAUGE: Final = Gauge()
"""The one instance that is needed."""
