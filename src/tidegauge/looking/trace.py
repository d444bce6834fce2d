"""Finding rows of an output by the values of its columns, each with where it comes from.

Invariant: a condition is a column and a value of that column's type, compared for equality by Arrow; nothing that is
asked for is evaluated. Only published rows are found, as in `read_arrow`.

>>> typed(pa.field("amount", pa.decimal128(10, 2)), "1.5").as_py()
Decimal('1.50')
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.types as pt

from tidegauge.errors.base import TidegaugeError
from tidegauge.errors.command import IncomparableValue
from tidegauge.errors.flow import UnknownColumn
from tidegauge.flow.spec import Flow
from tidegauge.looking.locate import Origin, looking
from tidegauge.looking.read import reading, view_of
from tidegauge.remap.fromtime.protocol import excerpt
from tidegauge.sinks.columns import EPOCH

__all__ = ["Trace", "TracedRow", "trace", "typed"]

pc: Final[Any] = pyarrow.compute  # its functions are made at run time, which type checkers cannot see


@dataclass(frozen=True, slots=True)
class TracedRow:
    """A row by its columns, with its origin; or with the error that says why it has none in this flow."""

    row: Mapping[str, Any]
    origin: Origin | None
    error: TidegaugeError | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Rows of an output that have the values asked for; `more` when there are others besides.

    epoch: the newest one that was looked at.
    """

    output: str
    epoch: int
    rows: tuple[TracedRow, ...]
    more: bool


def trace(flow: Flow, output: str, values: Mapping[str, str], *, limit: int) -> Trace:
    """Return at most `limit` rows that have these values, given as text, in these columns.

    A row that the flow does not know is returned with the error that says so.

    Raises `UnknownColumn`, `IncomparableValue`, `RowsUnreadable`, and what `read_arrow` raises.
    """
    spec = flow.spec
    view = view_of(spec, output, None)
    for column in values:
        if column not in view.schema.names:
            raise UnknownColumn(column=excerpt(column), where=f"the trace of {output}", known=view.schema.names)
    equal = [pc.field(column) == typed(view.schema.field(column), text) for column, text in values.items()]
    condition = reduce(and_, equal, pc.field(EPOCH) <= view.epoch)
    with reading(output):
        rows = view.dataset().head(limit + 1, filter=condition).to_pylist()
    found: list[TracedRow] = []
    with looking(spec) as look:
        for row in rows[:limit]:
            try:
                found.append(TracedRow(row, look.origin(output, row)))
            except TidegaugeError as refused:
                found.append(TracedRow(row, None, refused))
    return Trace(output, view.epoch, tuple(found), len(rows) > limit)


def typed(column: pa.Field, text: str) -> pa.Scalar[Any]:
    """Return the value that a text is in a column's type; an instant without a zone is UTC, bytes are UTF-8.

    Raises `IncomparableValue`.
    """
    try:
        value = _parsed(column.type, text)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise _incomparable(column, text, " ".join(str(error).split())) from error
    if value is None:
        raise _incomparable(column, text, "values of this type are not compared")
    if pt.is_floating(column.type) and not math.isfinite(value.as_py()):
        raise _incomparable(column, text, "it is no finite number")
    return value


def _parsed(kind: Any, text: str) -> Any:
    """Return a text as a value of a type, None for types whose values have parts. The text may be any."""
    if pt.is_timestamp(kind):
        time = datetime.fromisoformat(text)
        if kind.tz is None and time.tzinfo is not None:
            raise ValueError("the column's times have no zone")
        return pa.scalar(time, kind)  # one without a zone is UTC to Arrow
    if pt.is_nested(kind):
        return None
    return pa.scalar(text, pa.string()).cast(kind)


def _incomparable(column: pa.Field, text: str, detail: str) -> IncomparableValue:
    said = {"column": column.name, "type": str(column.type), "value": excerpt(text), "detail": excerpt(detail)}
    return IncomparableValue(**said)
