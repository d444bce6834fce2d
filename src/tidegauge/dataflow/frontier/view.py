"""A frontier to look at, never to change.

Invariant: until its dataflow is complete and running it says that everything is still possible.

>>> from tidegauge.dataflow.order import INT
>>> view = FrontierView(INT)
>>> view.elements(), view.less_equal(0), view.is_empty()
((0,), True, False)
"""

from __future__ import annotations

from typing import Any

from tidegauge.dataflow.frontier.antichain import Antichain
from tidegauge.dataflow.frontier.outstanding import Outstanding, mutable_antichain
from tidegauge.dataflow.order import Order

__all__ = ["FrontierView"]


class FrontierView:
    """A frontier to look at, never to change: that of an operator's input, or of a probe.

    Until its dataflow is complete and running it says that everything is still possible.

    >>> from tidegauge.dataflow.order import INT
    >>> view = FrontierView(INT)
    >>> view.elements(), view.less_equal(0), view.is_empty()
    ((0,), True, False)
    """

    __slots__ = ("_order", "_seen")

    def __init__(self, order: Order[Any]) -> None:
        self._order = order
        self._seen: Outstanding[Any] = mutable_antichain(order)
        self._seen.update([(order.minimum, 1)])

    def show(self, seen: Outstanding[Any]) -> None:
        """Look at `seen` from now on."""
        self._seen = seen

    def less_equal(self, time: Any) -> bool:
        """Whether something at `time` may still come: completeness of `time` is `not less_equal(time)`."""
        return self._seen.less_equal(time)

    def less_than(self, time: Any) -> bool:
        """Whether something strictly before `time` may still come."""
        return self._seen.less_than(time)

    def is_empty(self) -> bool:
        """Whether nothing more will ever come."""
        return self._seen.is_empty()

    def elements(self) -> tuple[Any, ...]:
        """Return the frontier's elements in sort order."""
        return self._seen.elements()

    def antichain(self) -> Antichain[Any]:
        """Return the frontier as a value that stays as it is."""
        return Antichain(self.elements(), self._order)

    def __repr__(self) -> str:
        return f"FrontierView({list(self.elements())!r})"
