"""All functions that are understood: what each comes to (`KERNELS`), and what it makes of arguments (`SIGNATURES`).

Invariant: a signature gives an expression of Spark's type, or raises `NotUnderstood`; it knows neither texts nor
columns.

>>> from tidegauge.engine.plain.expressions import Column, Literal
>>> n = Column("n", pa.int32())
>>> SIGNATURES["+"](n, Literal(1, pa.int32())).function, SIGNATURES["+"](n, Column("m", pa.int64())).kind
('add', DataType(int64))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.plain import arithmetic, casts, coercion, comparing, days, texts
from tidegauge.engine.plain.casts import cast
from tidegauge.engine.plain.coercion import common, widened
from tidegauge.engine.plain.expressions import Call, Coalesce, Expression, NotUnderstood, call, constant
from tidegauge.engine.plain.kernels import Kernel

__all__ = ["KERNELS", "SIGNATURES"]


_REORDERED: Final = frozenset({"add", "multiply"})
"""Spark computes these of integers in another order where one is a literal, so that others overflow."""


def _arithmetic(doubles: str, integers: str) -> Callable[..., Expression]:
    def made(left: Expression, right: Expression) -> Expression:
        kind = common((left, right))
        if not (pt.is_float64(kind) or pt.is_signed_integer(kind)):
            raise NotUnderstood
        sides = widened((left, right), kind)
        if pt.is_float64(kind):
            return call(doubles, *sides, kind=kind)
        if integers in _REORDERED and len(together := _flat(integers, sides)) > 2 and any(map(constant, together)):
            raise NotUnderstood
        return call(integers, *sides, kind=kind)

    return made


def _flat(function: str, sides: Sequence[Expression]) -> list[Expression]:
    """Return the operands of sums of sums, or of products of products."""
    return [
        one
        for side in sides
        for one in (
            _flat(function, side.arguments) if isinstance(side, Call) and side.function == function else [side]
        )
    ]


def _divide(left: Expression, right: Expression) -> Expression:
    """Return a quotient: Spark divides doubles alone, and decimals."""
    kind = common((left, right))
    if not (pt.is_float64(kind) or pt.is_signed_integer(kind)):
        raise NotUnderstood
    return call("divide", *widened((left, right), pa.float64()), kind=pa.float64())


def _negative(value: Expression) -> Expression:
    if not (pt.is_float64(value.kind) or pt.is_signed_integer(value.kind)):
        raise NotUnderstood
    return call("opposite" if pt.is_float64(value.kind) else "negate", value, kind=value.kind)


def _coalesce(*values: Expression) -> Expression:
    kind = common(values)
    return Coalesce(widened(values, kind), kind)


def _nvl(value: Expression, other: Expression) -> Expression:
    return _coalesce(value, other)


def _to_date(value: Expression) -> Expression:
    return cast(value, "DATE", trying=False)


_COMMON: Final[Mapping[str, Callable[..., Expression]]] = MappingProxyType(
    {
        "+": _arithmetic("sum", "add"),
        "-": _arithmetic("difference", "subtract"),
        "*": _arithmetic("product", "multiply"),
        "/": _divide,
        "%": _arithmetic("remainder", "remainder"),
        "MOD": _arithmetic("remainder", "remainder"),
        "NEGATIVE": _negative,
        "COALESCE": _coalesce,
        "NVL": _nvl,
        "IFNULL": _nvl,
        "TO_DATE": _to_date,
    }
)

KERNELS: Final[Mapping[str, Kernel]] = MappingProxyType(
    {**comparing.KERNELS, **arithmetic.KERNELS, **coercion.KERNELS, **texts.KERNELS, **casts.KERNELS, **days.KERNELS}
)
SIGNATURES: Final = MappingProxyType({**_COMMON, **texts.SIGNATURES, **days.SIGNATURES})
"""By the name of a function in capitals, or an operator. One that is given too few or too many raises `TypeError`."""
