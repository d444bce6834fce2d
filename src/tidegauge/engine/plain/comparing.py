"""Comparisons, negation and nulls.

Invariant: they are Spark's. It has NaN equal to itself and above all numbers, and one zero; texts are in the order of
their bytes in UTF-8.

>>> KERNELS["less"].values([pa.array([1.0, float("nan")]), pa.array([float("nan")] * 2)], pa.bool_()).to_pylist()
[True, False]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.plain.kernels import Arrays, Kernel, pc

__all__ = ["KERNELS"]


def _number(side: Any) -> bool:
    """Whether NaN may be among floats: of a literal it never is."""
    return pt.is_floating(side.type) and not isinstance(side, pa.Scalar)


def _nan(side: Any) -> Any:
    return pc.is_nan(side)


def _equal(arrays: Arrays, _kind: pa.DataType) -> Any:
    left, right = arrays
    if _number(left) and _number(right):
        return pc.or_(pc.equal(left, right), pc.and_(_nan(left), _nan(right)))
    return pc.equal(left, right)


def _below(compare: Callable[[Any, Any], Any], *, itself: bool) -> Callable[[Arrays, pa.DataType], Any]:
    """Return `<`, or `<=` where NaN is to be below itself. The left one is no literal."""

    def below(arrays: Arrays, _kind: pa.DataType) -> Any:
        left, right = arrays
        if not _number(right):
            return compare(left, right)
        above = _nan(right) if itself else pc.and_not(_nan(right), _nan(left))
        return pc.or_(compare(left, right), above)

    return below


def _among(arrays: Arrays, _kind: pa.DataType) -> Any:
    known, values = arrays
    found = pc.is_in(known, value_set=pa.array(values.as_py(), known.type))
    return pc.if_else(pc.is_valid(known), found, pa.scalar(None, pa.bool_())) if known.null_count else found


KERNELS: Final = {
    "equal": Kernel(_equal),
    "less": Kernel(_below(pc.less, itself=False)),
    "at most": Kernel(_below(pc.less_equal, itself=True)),
    "among": Kernel(_among),
    "not": Kernel(lambda arrays, _kind: pc.invert(arrays[0])),
    "is null": Kernel(lambda arrays, _kind: pc.is_null(arrays[0])),
    "field": Kernel(lambda arrays, _kind: pc.struct_field(arrays[0], arrays[1].as_py())),
}
