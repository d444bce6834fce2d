"""Expressions that are understood of SQL, as values, and what they come to on the rows of a batch.

Invariant: on each row an expression has the value that Spark gives it, and to evaluate it raises nothing. A
`Condition` is true, false or null there; `AND`, `OR` and `NOT` are those of three values. A `Value` is a column, or
arithmetic of doubles, which is that of IEEE 754 on both sides.

>>> orders = pa.record_batch({"id": [1, 2, 3], "amount": [5.0, None, float("nan")]})
>>> truth(Not(Compare("amount", "<=", 900.0)), orders).to_pylist()
[False, None, True]
>>> computed(Arithmetic(Column("amount"), "*", 1.5), orders).to_pylist()
[7.5, None, nan]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute

__all__ = [
    "All",
    "Among",
    "Arithmetic",
    "Begins",
    "Column",
    "Compare",
    "Condition",
    "Either",
    "Holds",
    "IsNull",
    "Not",
    "Value",
    "computed",
    "truth",
]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`."""

    column: str


@dataclass(frozen=True, slots=True)
class Holds:
    """The value of a column of booleans."""

    column: str


@dataclass(frozen=True, slots=True)
class Compare:
    """A column of numbers or texts compared with a literal that is not NaN.

    The other three comparisons are the negations of these. So they are right for NaN too, which Spark has above all
    numbers: of `=`, `<` and `<=`, none holds for it, as in Arrow.
    """

    column: str
    order: Literal["=", "<", "<="]
    value: int | float | str


@dataclass(frozen=True, slots=True)
class Among:
    """`column IN (values)`, for integers of the column's width, or for texts."""

    column: str
    values: tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Begins:
    """`column LIKE 'prefix%'`, for texts."""

    column: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Not:
    """The negation: null stays null."""

    inner: Condition


@dataclass(frozen=True, slots=True)
class All:
    """The conjunction: false where one is, else null where one is."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """The disjunction: true where one is, else null where one is."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """The value of a column, of any type."""

    name: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Arithmetic of two doubles, at least one of them a column; null where a column is."""

    left: Column | float
    sign: Literal["+", "-", "*"]
    right: Column | float


Condition: TypeAlias = IsNull | Holds | Compare | Among | Begins | Not | All | Either
Value: TypeAlias = Column | Arithmetic

_ARITHMETIC: Final = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_KERNELS: Final = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}


def truth(condition: Condition, batch: pa.RecordBatch) -> Any:
    """Return the value of a condition on every row, as an Arrow array of booleans."""
    match condition:
        case IsNull(column):
            return pc.is_null(batch[column])
        case Holds(column):
            return batch[column]
        case Compare(column, order, value):
            return _KERNELS[order](batch[column], pa.scalar(value))
        case Among(column, values):
            known = batch[column]
            found = pc.is_in(known, value_set=pa.array(values, known.type))
            return pc.if_else(pc.is_valid(known), found, pa.scalar(None, pa.bool_())) if known.null_count else found
        case Begins(column, prefix):
            return pc.starts_with(batch[column], prefix)
        case Not(inner):
            return pc.invert(truth(inner, batch))
        case All(parts):
            return reduce(pc.and_kleene, (truth(part, batch) for part in parts))
        case Either(parts):
            return reduce(pc.or_kleene, (truth(part, batch) for part in parts))


def computed(expression: Value, batch: pa.RecordBatch) -> Any:
    """Return the value of an expression on every row, as an Arrow array."""
    match expression:
        case Column(name):
            return batch[name]
        case Arithmetic(left, sign, right):
            return _ARITHMETIC[sign](_operand(left, batch), _operand(right, batch))


def _operand(side: Column | float, batch: pa.RecordBatch) -> Any:
    return batch[side.name] if isinstance(side, Column) else pa.scalar(side, pa.float64())
