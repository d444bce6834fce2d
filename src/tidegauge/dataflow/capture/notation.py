"""How times are written: as JSON values that mean the same in every process.

A time is made of `int`, `str`, None and tuples, which become numbers, strings, null and lists, exactly. An order
whose times are made of anything else has two more methods, `encode(time)` and `decode(value)`; then its own times are
written by them, also where the order is a part of a `Product` or `Lex`.

Invariant: `decode(encode(time)) == time`, or `encode` raises.

>>> from tidegauge.dataflow.order import INT, Product
>>> notation = Notation.of(Product(INT, Product(INT, INT)))
>>> notation.name, notation.encode((3, (0, 7))), notation.decode([3, [0, 7]])
('Product(Integers, Product(Integers, Integers))', [3, [0, 7]], (3, (0, 7)))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Protocol, runtime_checkable

from tidegauge.dataflow.order import Interval, Lex, Order, Partitioned, Product, Time, has

__all__ = ["Notation", "Written", "order_name"]


@runtime_checkable
class Written(Protocol):
    """An order that writes its times itself."""

    def encode(self, time: Any, /) -> Any:
        """Return the time as a JSON value."""
        ...

    def decode(self, value: Any, /) -> Any:
        """Return the time that `encode` made `value` of. Raises whatever it likes for any other value."""
        ...


@dataclass(frozen=True, slots=True)
class Notation:
    """The name of an order, and how its times become JSON values and come back. Both raise TypeError, ValueError."""

    name: str
    encode: Callable[[Time], Any]
    decode: Callable[[Any], Time]

    @staticmethod
    def of(order: Order[Any]) -> Notation:
        """Return the notation of an order. What it decodes is a time of that order."""
        bare, belongs = _notation(order), has(order)

        def decode(value: Any) -> Time:
            time = bare.decode(value)
            if not belongs(time):
                raise ValueError(f"{time!r} is no time of the order {bare.name}")
            return time

        return Notation(bare.name, bare.encode, decode)


def order_name(order: Order[Any]) -> str:
    """Return the name of an order: its class, and in brackets the fields that are not at their defaults.

    >>> from tidegauge.dataflow.order import INT, Bounded
    >>> order_name(INT), order_name(Product(INT, Bounded(7)))
    ('Integers', 'Product(Integers, Bounded(7))')
    """
    return _named(order)


def _notation(order: Order[Any]) -> Notation:
    name = order_name(order)
    if isinstance(order, Written):
        return Notation(name, order.encode, order.decode)
    if isinstance(order, Partitioned):
        return Notation(name, _encoded, lambda value: _partitioned(_decoded(value)))
    if isinstance(order, Product | Lex):
        outer, inner = _notation(order.outer), _notation(order.inner)
        return Notation(
            name,
            lambda time: [outer.encode(time[0]), inner.encode(time[1])],
            lambda value: _pair(outer, inner, value),
        )
    return Notation(name, _encoded, _decoded)


def _named(part: Any) -> str:
    if not is_dataclass(part) or isinstance(part, type):
        return repr(part) if type(part) in (int, str, bool, type(None)) else type(part).__name__
    inner = [
        _named(getattr(part, field.name))
        for field in fields(part)
        if field.default is MISSING or getattr(part, field.name) != field.default
    ]
    return type(part).__name__ + (f"({', '.join(inner)})" if inner else "")


def _pair(outer: Notation, inner: Notation, value: Any) -> Time:
    first, second = value
    return outer.decode(first), inner.decode(second)


def _partitioned(time: Time) -> Time:
    (lower, upper), position = time
    return Interval(lower, upper), position


def _encoded(time: Time) -> Any:
    if type(time) in (tuple, Interval):
        return [_encoded(part) for part in time]
    if time is None or type(time) in (int, str):
        return time
    raise TypeError(f"{type(time).__name__} {time!r} is no part of a time that can be written")


def _decoded(value: Any) -> Time:
    if type(value) is list:
        return tuple(map(_decoded, value))
    if value is None or type(value) in (int, str):
        return value
    raise TypeError(f"{type(value).__name__} {value!r} is no part of a time")
