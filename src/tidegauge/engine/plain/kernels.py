"""What a function comes to on a batch, and on which rows it raises.

Invariant: a kernel is total. On rows on which Spark raises, and on rows that Spark does not ask, it gives any value;
`wrong` says which of the rows are such that Spark raises, and `detail` what Spark says of one.

>>> twice = Kernel(lambda arrays, kind: pc.add(arrays[0], arrays[0]))
>>> twice.values([pa.array([1, 2])], pa.int64()).to_pylist(), twice.wrong
([2, 4], None)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute

__all__ = ["Arrays", "Asked", "Kernel", "pc"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see

Arrays: TypeAlias = Sequence[Any]
"""The arguments: arrays, or scalars where they are literals."""

Asked: TypeAlias = Literal["until null", "last until null", "all"]
"""Which arguments Spark asks: from the first (or the last) up to one that is null, or all."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of arrays and of the type that it gives.

    values: an array of that type. wrong: the rows without a null argument on which Spark raises, given the values;
    None where there are never any. detail: what Spark says of the arguments of such a row.
    """

    values: Callable[[Arrays, pa.DataType], Any]
    wrong: Callable[[Arrays, Any], Any] | None = None
    detail: Callable[[Sequence[Any], pa.DataType], str] | None = None
    order: Asked = "until null"
