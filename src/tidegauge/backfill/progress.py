"""How far a fill is: exact, from the bindings alone.

Invariants. It counts staged parts of epochs, too. It never goes back while a plan stands, and says 100 % only when
everything is staged.

>>> [Filled(done, 1000).percent for done in (0, 9, 10, 999, 1000)]
[0, 0, 1, 99, 100]
>>> Filled(0, 0).percent, str(Filled(2, 5))
(100, '40 %')
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.backfill.plan import Fill
from tidegauge.reclock.parts import START, Parts
from tidegauge.remap.table import RemapTable

__all__ = ["Filled", "progress"]


@dataclass(frozen=True, slots=True)
class Filled:
    """How many positions of a source are staged, of the `total` that there are."""

    done: int
    total: int

    @property
    def percent(self) -> int:
        """Whole percents, rounded down."""
        return 100 * self.done // self.total if self.total else 100

    def __str__(self) -> str:
        return f"{self.percent} %"


def progress(fill: Fill, table: RemapTable, *, reached: int | None = None, part: int | None = None) -> Filled:
    """Return how far a fill is, given its source's remap table.

    reached: the first epoch that is not staged, where that is known to be beyond the units. part: how many positions
    of that one are staged, where that is known.
    """
    begin = table.inverse(fill.start)
    done = min(fill.reached if reached is None else reached, fill.upper)
    if part is None:
        part = 0 if fill.cursor == START or done != fill.reached else Parts.of(table, done).before(fill.cursor)
    return Filled(table.inverse(done).distance(begin) + part, table.inverse(fill.upper).distance(begin))
