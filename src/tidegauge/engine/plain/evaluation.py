"""What expressions come to on the rows of a batch.

Invariant: on each row the value is Spark's, and an expression raises on the rows on which Spark raises: nothing does
of what `CASE`, `AND`, `OR`, `coalesce` and a null operand leave out. The first such row is told, as Spark says it.

>>> from tidegauge.engine.plain.parser import projected
>>> orders = pa.record_batch({"id": [1, 0, 3], "amount": [5.0, None, float("nan")]})
>>> def values(text: str) -> list:
...     return computed([projected(text, orders.schema)[0]], orders)[0].to_pylist()
>>> values("NOT amount <= 900"), values("CASE WHEN id <> 0 THEN 6 / id END")
([False, None, True], [6.0, None, 2.0])
>>> values("6 / id")
Traceback (most recent call last):
tidegauge.job.functions.RowRefused: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate ...
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from tidegauge.engine.plain.expressions import (
    All,
    Call,
    Case,
    Coalesce,
    Column,
    Either,
    Expression,
    Literal,
    every,
)
from tidegauge.engine.plain.functions import KERNELS
from tidegauge.engine.plain.kernels import Kernel, pc
from tidegauge.job.functions import RowRefused

__all__ = ["computed", "raises", "truth"]


def raises(expression: Expression) -> bool:
    """Whether there may be a row on which an expression raises."""
    return any(isinstance(one, Call) and KERNELS[one.function].wrong is not None for one in every(expression))


def computed(expressions: Sequence[Expression], batch: pa.RecordBatch, asked: Any = None) -> list[Any]:
    """Return the values of expressions on every row, as Arrow arrays.

    asked: a mask of the rows that Spark asks, if not all. Raises `RowRefused` for the first of them that cannot be.
    """
    rows = _Evaluation(batch)
    made = [rows.of(one, asked if raises(one) else None) for one in expressions]
    rows.check()
    return [pa.repeat(one, batch.num_rows) if isinstance(one, pa.Scalar) else one for one in made]


def truth(condition: Expression, batch: pa.RecordBatch, asked: Any = None) -> Any:
    """Return the value of a condition on every row, as an Arrow array of booleans."""
    return computed([condition], batch, asked)[0]


class _Evaluation:
    """Evaluates on one batch, and keeps the first row that raises."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch: Final = batch
        self._refused: tuple[int, str] | None = None

    def check(self) -> None:
        """Raise for the first row that raises."""
        if self._refused is not None:
            raise RowRefused(self._refused[1])

    def of(self, expression: Expression, asked: Any) -> Any:
        """Return the values, an array or a scalar. asked: a mask of the rows that Spark asks, None for all."""
        match expression:
            case Column(name):
                return self._batch[name]
            case Literal(value, kind):
                return pa.scalar(value, kind)
            case Call():
                return self._call(expression, asked)
            case All(parts):
                return self._joined(parts, asked, pc.and_kleene, ends=False)
            case Either(parts):
                return self._joined(parts, asked, pc.or_kleene, ends=True)
            case Case():
                return self._case(expression, asked)
            case Coalesce(parts):
                return self._coalesce(parts, asked)

    def _call(self, made: Call, asked: Any) -> Any:
        kernel = KERNELS[made.function]
        known: list[Any] = [None] * len(made.arguments)
        counted = range(len(known))
        lazy = kernel.order != "all" and raises(made)
        for at in reversed(counted) if kernel.order == "last until null" else counted:
            known[at] = self.of(made.arguments[at], asked)
            if lazy and isinstance(known[at], pa.Array) and known[at].null_count:
                asked = _narrowed(asked, pc.is_valid(known[at]))
        values = kernel.values(known, made.kind)
        if kernel.wrong is not None:
            self._refuse(kernel, known, made.kind, wrong=kernel.wrong(known, values), asked=asked)
        return values

    def _refuse(self, kernel: Kernel, known: Sequence[Any], kind: Any, *, wrong: Any, asked: Any) -> None:
        """Keep the first of the rows that are asked and wrong, if it is before that which is known."""
        if isinstance(wrong, pa.Scalar):
            wrong = pa.repeat(wrong, self._batch.num_rows)
        if asked is not None:
            wrong = pc.and_kleene(wrong, asked)
        if kernel.detail is None or not wrong.true_count:
            return
        at = pc.indices_nonzero(wrong)[0].as_py()
        if self._refused is None or at < self._refused[0]:
            row = [one.as_py() if isinstance(one, pa.Scalar) else one[at].as_py() for one in known]
            self._refused = at, kernel.detail(row, kind)

    def _joined(self, parts: Sequence[Expression], asked: Any, join: Any, *, ends: bool) -> Any:
        found = self.of(parts[0], asked)
        for part in parts[1:]:
            if raises(part):
                going = pc.fill_null(found, not ends)  # whether the rest is asked, for it may still decide
                asked = _narrowed(asked, pc.invert(going) if ends else going)
            found = join(found, self.of(part, asked))
        return found

    def _case(self, made: Case, asked: Any) -> Any:
        lazy = raises(made)
        found: list[tuple[Any, Any]] = []
        for condition, value in made.branches:
            holds = pc.fill_null(self.of(condition, asked), fill_value=False)
            found.append((holds, self.of(value, _narrowed(asked, holds) if lazy else None)))
            asked = _narrowed(asked, pc.invert(holds)) if lazy else None
        otherwise = self.of(made.otherwise, asked)
        return reduce(lambda rest, branch: pc.if_else(branch[0], branch[1], rest), reversed(found), otherwise)

    def _coalesce(self, parts: Sequence[Expression], asked: Any) -> Any:
        found = [self.of(parts[0], asked)]
        for part in parts[1:]:
            if raises(part):
                asked = _narrowed(asked, pc.is_null(found[-1]))
            found.append(self.of(part, asked))
        return pc.coalesce(*found)


def _narrowed(asked: Any, more: Any) -> Any:
    return more if asked is None else pc.and_(asked, more)
