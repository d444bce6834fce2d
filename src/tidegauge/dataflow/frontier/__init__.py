"""A frontier is an antichain: the minimal times that may still come. The empty one means that nothing will.

- `ChangeBatch`: times with counts, from which zeros vanish.
- `Antichain`: an immutable set of times, none of them at or before another.
- `MutableAntichain`: a multiset of times and, kept current, the minimal ones among those with a positive count.
- `TotalMutableAntichain`: the same for total orders, where one time at most is minimal.
- `FrontierView`: a frontier as an operator or a `Probe` sees it.

Invariant: nothing here uses Python's `<` to decide completeness, except for an order that promises to be `total`.

>>> from tidegauge.dataflow.order import INT
>>> outstanding = mutable_antichain(INT)
>>> outstanding.update([(1, 1), (1, 1), (4, 1)])
[(1, 1)]
>>> outstanding.update([(1, -2)]), outstanding.elements()
([(1, -1), (4, 1)], (4,))
"""

from tidegauge.dataflow.frontier.antichain import Antichain, advance_by, antichain_join, antichain_meet
from tidegauge.dataflow.frontier.outstanding import (
    ChangeBatch,
    MutableAntichain,
    Outstanding,
    TotalMutableAntichain,
    mutable_antichain,
)
from tidegauge.dataflow.frontier.view import FrontierView

__all__ = [
    "Antichain",
    "ChangeBatch",
    "FrontierView",
    "MutableAntichain",
    "Outstanding",
    "TotalMutableAntichain",
    "advance_by",
    "antichain_join",
    "antichain_meet",
    "mutable_antichain",
]
