"""A frontier to look at, never to change, from any thread: that of an operator's input, or of a probed stream.

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
from tidegauge.dataflow.order import Order, Time, require_time
from tidegauge.dataflow.order.search import WIDE

__all__ = ["FrontierView", "Probe"]


class FrontierView:
    """The frontier of one input or output.

    shown: its elements in sort order, none at or before another. Its scope assigns them, nobody else does.
    """

    __slots__ = ("_kept", "_order", "shown")

    def __init__(self, order: Order[Any]) -> None:
        self._order = order
        self.shown: tuple[Any, ...] = (order.minimum,)
        self._kept: Antichain[Any] | None = None

    def less_equal(self, time: Any) -> bool:
        """Whether something at `time` may still come: completeness of `time` is `not less_equal(time)`."""
        less_equal, shown = self._order.less_equal, self.shown
        if len(shown) == 1:  # a generator would cost more than the comparison
            return less_equal(shown[0], time)
        return any(less_equal(x, time) for x in shown) if len(shown) < WIDE else self.antichain().less_equal(time)

    def less_than(self, time: Any) -> bool:
        """Whether something strictly before `time` may still come."""
        less_equal, shown = self._order.less_equal, self.shown
        if len(shown) >= WIDE:
            return self.antichain().less_than(time)
        return any(x != time and less_equal(x, time) for x in shown)

    def is_empty(self) -> bool:
        """Whether nothing more will ever come."""
        return not self.shown

    def elements(self) -> tuple[Any, ...]:
        """Return the frontier's elements in sort order."""
        return self.shown

    def antichain(self) -> Antichain[Any]:
        """Return the frontier as an immutable value; the same one while this is shown."""
        shown, kept = self.shown, self._kept
        if kept is None or kept.minimal is not shown:
            kept = self._kept = Antichain.of_minimal(shown, self._order)
        return kept

    def __repr__(self) -> str:
        return f"FrontierView({list(self.shown)!r})"


class Probe:
    """The frontier of one stream, or of several together, seen from outside.

    It is no operator and costs nothing: it looks at what the tracker implies for the output. A time is complete on a
    stream when everything upstream, batches that are still being worked on included, can no longer cause a batch at
    it. It may be read from any thread; when its dataflow is dropped it stays where it was.

    >>> from tidegauge.dataflow import INT, Worker
    >>> worker = Worker(monotonic=lambda: 0.0)
    >>> with worker.dataflow("shop", order=INT) as scope:
    ...     orders, stream = scope.input("orders")
    ...     probe = stream.probe()
    >>> orders.advance_to(3)
    >>> _ = worker.step(), worker.step()
    >>> probe.less_than(3), probe.less_equal(3), probe.done()
    (False, True, False)
    """

    __slots__ = ("_order", "_views")

    def __init__(self, order: Order[Any]) -> None:
        self._order = order
        self._views: list[FrontierView] = []

    def watch(self) -> FrontierView:
        """Return a view of one more stream, for the scope to fill."""
        self._views.append(FrontierView(self._order))
        return self._views[-1]

    def less_equal(self, time: Time) -> bool:
        """Whether a batch at `time` or before may still come. Raises ForeignTime."""
        require_time(self._order, time, "a probe")
        return any(view.less_equal(time) for view in self._views)

    def less_than(self, time: Time) -> bool:
        """Whether a batch strictly before `time` may still come. Raises ForeignTime."""
        require_time(self._order, time, "a probe")
        return any(view.less_than(time) for view in self._views)

    def done(self) -> bool:
        """Whether nothing will come any more."""
        return all(view.is_empty() for view in self._views)

    def frontier(self) -> Antichain[Any]:
        """Return the present frontier."""
        if len(self._views) == 1:
            return self._views[0].antichain()
        return Antichain((time for view in self._views for time in view.elements()), self._order)
