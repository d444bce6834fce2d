"""A probe: the frontier of a stream, seen from outside.

It is no operator and costs nothing: it looks at what the tracker implies for the output. A time is complete on a
stream when everything upstream, batches that are still being worked on included, can no longer cause a batch at it.

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

from __future__ import annotations

from typing import Any

from tidegauge.dataflow.frontier import Antichain, FrontierView
from tidegauge.dataflow.order import Order, Time, require_time

__all__ = ["Probe"]


class Probe:
    """The frontier of one stream, or of several together. At the minimum until the dataflow is installed.

    It may be read from any thread; when its dataflow is dropped it stays where it was.
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
