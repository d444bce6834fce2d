"""Which events a capture can have recorded: the legality of a captured stream, event by event.

A capture begins with one count at the minimum. What it records is legal when every message, and every count gained,
lies at or beyond a time whose count was positive before, and no count is ever negative. A frontier that is made of
legal events never passes a message that is still to come; of others, nothing can be said.

Invariant: the counts are those after legal events alone, so none is ever negative.

>>> from tidegauge.dataflow.order import INT
>>> ledger = Ledger(INT)
>>> ledger.note(Progress(((0, -1), (3, 1))))
>>> ledger.frontier()
(3,)
>>> ledger.refusal(Messages((2,), "late"))
'a batch at 2 when the frontier is [3]'
"""

from __future__ import annotations

from typing import Any

from tidegauge.dataflow.frontier import ChangeBatch, mutable_antichain
from tidegauge.dataflow.operators.capture import Event, Messages, Progress
from tidegauge.dataflow.order import Order, Time

__all__ = ["Ledger"]


class Ledger:
    """The counts of one captured stream after the events so far."""

    __slots__ = ("_counts",)

    def __init__(self, order: Order[Any]) -> None:
        self._counts = mutable_antichain(order)
        self._counts.update([(order.minimum, 1)])

    def frontier(self) -> tuple[Time, ...]:
        """Return the frontier of the stream; nothing more can come when it is empty."""
        return self._counts.elements()

    def refusal(self, event: Event) -> str | None:
        """Return why an event is illegal now, None if it is not."""
        if isinstance(event, Messages):
            for time in event.stamp:
                if not self._counts.less_equal(time):
                    return f"a batch at {time!r} when the frontier is {list(self.frontier())!r}"
            return None
        for time, delta in event.changes:
            if delta > 0 and not self._counts.less_equal(time):
                return f"{delta} more at {time!r} when the frontier is {list(self.frontier())!r}"
        for time, delta in ChangeBatch(event.changes).items():
            if self._counts.count_for(time) + delta < 0:
                return f"{-delta} fewer at {time!r}, where there are {self._counts.count_for(time)}"
        return None

    def note(self, event: Event) -> None:
        """Count a legal event."""
        if isinstance(event, Progress):
            self._counts.update(event.changes)
