"""A frontier to look at, never to change, from any thread.

It shows a value: when a whole batch of updates has been applied, the resulting frontier takes the place of the one
before by one assignment. So a reader, at whatever instant, sees a frontier that was true, and never one that is
beyond a later one. The mutable antichains behind it change one time after another; readers never see them.

Invariant: until its dataflow is complete and running it says that everything is still possible.

>>> from tidegauge.dataflow.order import INT
>>> view = FrontierView(INT)
>>> view.elements(), view.less_equal(0), view.is_empty()
((0,), True, False)
"""

from __future__ import annotations

from typing import Any

from tidegauge.dataflow.frontier.antichain import Antichain
from tidegauge.dataflow.order import Order
from tidegauge.dataflow.order.search import WIDE

__all__ = ["FrontierView"]


class FrontierView:
    """A frontier to look at, never to change: that of an operator's input, or of a probe. From any thread.

    Until its dataflow is complete and running it says that everything is still possible.

    >>> from tidegauge.dataflow.order import INT
    >>> view = FrontierView(INT)
    >>> view.elements(), view.less_equal(0), view.is_empty()
    ((0,), True, False)
    """

    __slots__ = ("_kept", "_order", "_shown")

    def __init__(self, order: Order[Any]) -> None:
        self._order = order
        self._shown: tuple[Any, ...] = (order.minimum,)
        self._kept: Antichain[Any] | None = None

    def show(self, frontier: tuple[Any, ...]) -> None:
        """Show these elements, none of which is at or before another, in sort order, from now on."""
        self._shown = frontier

    def less_equal(self, time: Any) -> bool:
        """Whether something at `time` may still come: completeness of `time` is `not less_equal(time)`."""
        less_equal, shown = self._order.less_equal, self._shown
        if len(shown) == 1:  # a generator would cost more than the comparison
            return less_equal(shown[0], time)
        return any(less_equal(x, time) for x in shown) if len(shown) < WIDE else self.antichain().less_equal(time)

    def less_than(self, time: Any) -> bool:
        """Whether something strictly before `time` may still come."""
        less_equal, shown = self._order.less_equal, self._shown
        if len(shown) >= WIDE:
            return self.antichain().less_than(time)
        return any(x != time and less_equal(x, time) for x in shown)

    def is_empty(self) -> bool:
        """Whether nothing more will ever come."""
        return not self._shown

    def elements(self) -> tuple[Any, ...]:
        """Return the frontier's elements in sort order."""
        return self._shown

    def antichain(self) -> Antichain[Any]:
        """Return the frontier as an immutable value; the same one while this is shown."""
        shown, kept = self._shown, self._kept
        if kept is None or kept.minimal is not shown:
            kept = self._kept = Antichain.of_minimal(shown, self._order)
        return kept

    def __repr__(self) -> str:
        return f"FrontierView({list(self._shown)!r})"
