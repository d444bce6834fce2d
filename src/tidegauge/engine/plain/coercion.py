"""The type that expressions of several types have together, and how each comes to it.

Invariant: where Spark would bring them to another type, or in another way, they are not understood. Spark's rules are
those of ANSI:

    integers                        the wider one
    a double and an integer         double
    a double and a decimal literal  double
    `NULL` and any                  that one

>>> from tidegauge.engine.plain.expressions import Column
>>> common((Column("n", pa.int32()), Column("big", pa.int64()))), common((Column("x", pa.float64()), number("1.5")))
(DataType(int64), DataType(double))
>>> number("3"), number("3000000000").kind
(Literal(value=3, kind=DataType(int32)), DataType(int64))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.plain.expressions import Expression, Literal, NotUnderstood, call
from tidegauge.engine.plain.kernels import Kernel

__all__ = ["KERNELS", "common", "number", "typed", "widened"]

_DIGITS: Final = 18
"""As many as a double's decimal text may have here, and an integer's but for the largest."""
_DECIMAL: Final = pa.decimal128(_DIGITS, 0)
"""The type of all literals that are decimals: they are none when anybody asks for their digits."""


def number(text: str) -> Literal:
    """Return the literal that a number is: an integer of 32 or 64 bits, or a decimal."""
    whole, dot, _ = text.partition(".")
    if len(text.lstrip("-")) - len(dot) > _DIGITS + (not dot):
        raise NotUnderstood
    if dot:
        return Literal(float(text) + 0.0, _DECIMAL)  # a decimal has no zero but 0.0
    value = int(whole)
    for kind in (pa.int32(), pa.int64()):
        if -(1 << (kind.bit_width - 1)) <= value < 1 << (kind.bit_width - 1):
            return Literal(value, kind)
    raise NotUnderstood


def typed(expression: Expression) -> bool:
    """Whether an expression has a type that rows can have: `NULL` and decimal literals have none."""
    return not (pt.is_null(expression.kind) or (isinstance(expression, Literal) and pt.is_decimal(expression.kind)))


def common(expressions: Sequence[Expression]) -> Any:
    """Return the type that expressions have together, which is one of rows."""
    if any(pt.is_decimal(one.kind) and typed(one) for one in expressions):
        raise NotUnderstood
    kind = reduce(_wider, (one.kind for one in expressions))
    if pt.is_null(kind) or pt.is_decimal(kind) or pt.is_nested(kind):
        raise NotUnderstood
    return kind


def _wider(one: Any, other: Any) -> Any:
    if one.equals(other) or pt.is_null(other):
        return one
    if pt.is_null(one):
        return other
    if pt.is_signed_integer(one) and pt.is_signed_integer(other):
        return max(one, other, key=lambda kind: int(kind.bit_width))
    if pt.is_float64(one) and _number(other):
        return one
    if pt.is_float64(other) and _number(one):
        return other
    raise NotUnderstood


def _number(kind: Any) -> bool:
    return bool(pt.is_signed_integer(kind) or pt.is_decimal(kind))


def widened(expressions: Sequence[Expression], kind: Any) -> tuple[Expression, ...]:
    """Return expressions as those of a type that they have together."""
    return tuple(_widened(one, kind) for one in expressions)


def _widened(expression: Expression, kind: Any) -> Expression:
    if expression.kind.equals(kind):
        return expression
    if isinstance(expression, Literal):
        value = expression.value
        return Literal(float(value) if pt.is_floating(kind) and isinstance(value, int) else value, kind)
    return call("widen", expression, kind=kind)


def _wide(arrays: Sequence[Any], kind: pa.DataType) -> Any:
    """Large integers go to the nearest double, as in Java."""
    return arrays[0].cast(kind, safe=False)


KERNELS: Final = {"widen": Kernel(_wide)}
