"""Which values are times of an order at all.

Python compares a number with a fraction, and tuples with longer ones, so a time of another scope might do harm long
before anybody sees it. An order may have a fifth member, `has(value)`, that knows its times from anything else.

Invariant: an accepted time compares with the minimum, and is at or beyond it.

>>> from tidegauge.dataflow.order import INT, Product
>>> has(INT)(3), has(INT)(1.5), has(INT)((0, 0)), has(Product(INT, INT))((0, 0))
(True, False, False, True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge.dataflow.order.protocol import Order
from tidegauge.errors.dataflow import ForeignTime

__all__ = ["has", "require_time"]


def has(order: Order[Any]) -> Callable[[object], bool]:
    """Return what tells whether a value is a time of the order: its own `has`, or else the comparison with the
    minimum.
    """
    own: Callable[[object], bool] | None = getattr(order, "has", None)
    if own is not None:
        return own

    def compares(value: object) -> bool:
        try:
            return bool(order.less_equal(order.minimum, value))
        except Exception:  # noqa: BLE001 - a user's comparison of what it was never meant for may raise anything
            return False

    return compares


def require_time(order: Order[Any], value: object, path: str) -> None:
    """Raise ForeignTime unless `value` is a time of the order. path: whose time it would be."""
    if not has(order)(value):
        raise ForeignTime(path=path, time=repr(value), order=repr(order))
