"""Arithmetic of integers and of doubles.

Invariant: doubles are those of IEEE 754 on both sides. Integers have the wider type of the two; what does not fit in
it raises, as does a divisor that is zero, of doubles too. A remainder has the sign of the dividend.

>>> add, sides = KERNELS["add"], [pa.array([127, 1], pa.int8()), pa.scalar(1, pa.int8())]
>>> made = add.values(sides, pa.int8())
>>> made.to_pylist(), add.wrong(sides, made).to_pylist()
([-128, 2], [True, False])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.plain.kernels import Arrays, Kernel, pc

__all__ = ["KERNELS"]

_OVERFLOW: Final = "[ARITHMETIC_OVERFLOW] overflow."
_INSTEAD: Final = " Use '{}' to tolerate overflow and return NULL instead."
_SHORT: Final = (
    "[BINARY_ARITHMETIC_OVERFLOW] {}S {} {}S caused overflow. Use `{}` to ignore overflow problem and return NULL."
)
_PLAIN: Final = 32
"""Spark also tells the operands of integers with fewer bits."""
_ZERO: Final = "[{}_BY_ZERO] {} by zero. Use `{}` to tolerate divisor being 0 and return NULL instead."


def _negative(side: Any) -> Any:
    return pc.less(side, pa.scalar(0, side.type))


def _added_wrongly(arrays: Arrays, made: Any) -> Any:
    """Both operands have one sign, and the sum has another."""
    left, right = map(_negative, arrays)
    return pc.and_(pc.equal(left, right), pc.not_equal(left, _negative(made)))


def _subtracted_wrongly(arrays: Arrays, made: Any) -> Any:
    left, right = map(_negative, arrays)
    return pc.and_(pc.not_equal(left, right), pc.not_equal(left, _negative(made)))


def _multiplied_wrongly(arrays: Arrays, made: Any) -> Any:
    """Exact by division, which has to give the other operand again; of the smallest and -1 it gives the same."""
    left, right = arrays
    zero, one, smallest = (pa.scalar(n, made.type) for n in (0, 1, -(1 << (made.type.bit_width - 1))))
    nothing = pc.equal(left, zero)
    again = pc.divide(made, pc.if_else(nothing, one, left))
    turned = pc.and_(pc.equal(left, pa.scalar(-1, made.type)), pc.equal(right, smallest))
    return pc.and_not(pc.or_(pc.not_equal(again, right), turned), nothing)


def _whole(arrays: Arrays, kind: pa.DataType) -> Any:
    """Return the remainder of integers. By 0 it is whatever, by -1 it is 0: also of the smallest."""
    left, right = arrays
    zero, one = pa.scalar(0, kind), pa.scalar(1, kind)
    safe = pc.if_else(pc.or_(pc.equal(right, zero), pc.equal(right, pa.scalar(-1, kind))), one, right)
    return pc.subtract(left, pc.multiply(pc.divide(left, safe), safe))


def _remainder(arrays: Arrays, kind: pa.DataType) -> Any:
    if not pt.is_floating(kind):
        return _whole(arrays, kind)
    known = pc.and_(*map(pc.is_valid, arrays))
    left, right = (
        side.as_py() if isinstance(side, pa.Scalar) else pc.fill_null(side, 1.0).to_numpy(zero_copy_only=False)
        for side in arrays
    )
    with np.errstate(invalid="ignore"):
        made = pa.array(np.fmod(left, right), kind)
    return pc.if_else(known, made, pa.scalar(None, kind))


def _divided(arrays: Arrays, _kind: pa.DataType) -> Any:
    """Return the quotient of doubles, which is total."""
    return pc.divide(*arrays)


def _by_zero(arrays: Arrays, _made: Any) -> Any:
    return pc.equal(arrays[1], pa.scalar(0, arrays[1].type))


def _overflow(sign: str, instead: str) -> Callable[[Sequence[Any], pa.DataType], str]:
    def detail(values: Sequence[Any], kind: pa.DataType) -> str:
        if kind.bit_width < _PLAIN:
            return _SHORT.format(values[0], sign, values[1], instead)
        return _OVERFLOW + _INSTEAD.format(instead)

    return detail


def _zero(what: str, said: str, instead: str) -> Callable[[Sequence[Any], pa.DataType], str]:
    return lambda _values, _kind: _ZERO.format(what, said, instead)


def _smallest(arrays: Arrays, _made: Any) -> Any:
    return pc.equal(arrays[0], pa.scalar(-(1 << (arrays[0].type.bit_width - 1)), arrays[0].type))


KERNELS: Final = {
    "sum": Kernel(lambda arrays, _kind: pc.add(*arrays)),
    "difference": Kernel(lambda arrays, _kind: pc.subtract(*arrays)),
    "product": Kernel(lambda arrays, _kind: pc.multiply(*arrays)),
    "opposite": Kernel(lambda arrays, _kind: pc.negate(arrays[0])),
    "add": Kernel(lambda arrays, _kind: pc.add(*arrays), _added_wrongly, _overflow("+", "try_add")),
    "subtract": Kernel(
        lambda arrays, _kind: pc.subtract(*arrays), _subtracted_wrongly, _overflow("-", "try_subtract")
    ),
    "multiply": Kernel(
        lambda arrays, _kind: pc.multiply(*arrays), _multiplied_wrongly, _overflow("*", "try_multiply")
    ),
    "negate": Kernel(lambda arrays, _kind: pc.negate(arrays[0]), _smallest, lambda _values, _kind: _OVERFLOW),
    "divide": Kernel(_divided, _by_zero, _zero("DIVIDE", "Division", "try_divide"), "last until null"),
    "remainder": Kernel(_remainder, _by_zero, _zero("REMAINDER", "Remainder", "try_mod"), "last until null"),
}
"""Those of doubles are named for what they give, those of integers for what they do."""
