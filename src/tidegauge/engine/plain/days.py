"""Functions of dates and of instants, which are those of UTC.

Invariant: the calendar is the Gregorian one at all times, in Spark as in Arrow. The unit of a `date_trunc` is a
literal.

>>> KERNELS["days between"].values([pa.array([20458], pa.date32()), pa.array([20457], pa.date32())], None).to_pylist()
[1]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.engine.plain.expressions import Expression, Literal, NotUnderstood, call
from tidegauge.engine.plain.kernels import Arrays, Kernel, pc

__all__ = ["INSTANT", "KERNELS", "SIGNATURES"]

INSTANT: Final = pa.timestamp("us", "UTC")
_UNITS: Final = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
}


def _days(side: Any) -> Any:
    return side.cast(pa.int32()) if isinstance(side, pa.Scalar) else side.view(pa.int32())


def _zoneless(side: Any) -> Any:
    """Return instants without their zone, which Arrow looks up for each of them; it is UTC."""
    return side.cast(pa.timestamp("us")) if pt.is_timestamp(side.type) else side


def _part(name: str) -> Kernel:
    take = getattr(pc, name)
    return Kernel(lambda arrays, kind: take(_zoneless(arrays[0])).cast(kind))


def _moved(arrays: Arrays, _kind: pa.DataType) -> Any:
    return pc.add(_days(arrays[0]), arrays[1]).view(pa.date32())


def _between(arrays: Arrays, _kind: pa.DataType) -> Any:
    return pc.subtract(_days(arrays[0]), _days(arrays[1]))


def _floor(arrays: Arrays, kind: pa.DataType) -> Any:
    return pc.floor_temporal(_zoneless(arrays[0]), unit=_UNITS[arrays[1].as_py().upper()]).cast(kind)


def _day(arrays: Arrays, kind: pa.DataType) -> Any:
    """Return the day of instants, also before 1970."""
    return pc.floor_temporal(_zoneless(arrays[0]), unit="day").cast(kind)


_PARTS: Final = ("year", "quarter", "month", "day", "day_of_year")
_TIMES: Final = ("hour", "minute", "second")
KERNELS: Final = {
    **{name: _part(name) for name in (*_PARTS, *_TIMES)},
    "days after": Kernel(_moved),
    "days between": Kernel(_between),
    "floor": Kernel(_floor),
    "day of instant": Kernel(_day),
}


def _date_part(name: str) -> Callable[..., Expression]:
    def made(value: Expression) -> Expression:
        if not (pt.is_date32(value.kind) or value.kind.equals(INSTANT)):
            raise NotUnderstood
        return call(name, value, kind=pa.int32())

    return made


def _time_part(name: str) -> Callable[..., Expression]:
    def made(value: Expression) -> Expression:
        if not value.kind.equals(INSTANT):
            raise NotUnderstood
        return call(name, value, kind=pa.int32())

    return made


def _moving(value: Expression, count: Expression) -> Expression:
    if not pt.is_date32(value.kind) or not pt.is_int32(count.kind):
        raise NotUnderstood
    return call("days after", value, count, kind=pa.date32())


def _apart(end: Expression, start: Expression) -> Expression:
    if not pt.is_date32(end.kind) or not pt.is_date32(start.kind):
        raise NotUnderstood
    return call("days between", end, start, kind=pa.int32())


def _truncated(unit: Expression, value: Expression) -> Expression:
    known = isinstance(unit, Literal) and isinstance(unit.value, str) and unit.value.upper() in _UNITS
    if not known or not value.kind.equals(INSTANT):
        raise NotUnderstood
    return call("floor", value, unit, kind=INSTANT)


SIGNATURES: Final[Mapping[str, Callable[..., Expression]]] = MappingProxyType(
    {
        **{name.upper(): _date_part(name) for name in ("year", "quarter", "month", "day")},
        "DAYOFMONTH": _date_part("day"),
        "DAYOFYEAR": _date_part("day_of_year"),
        **{name.upper(): _time_part(name) for name in _TIMES},
        **dict.fromkeys(("DATE_ADD", "DATEADD"), _moving),
        **dict.fromkeys(("DATEDIFF", "DATE_DIFF"), _apart),
        "DATE_TRUNC": _truncated,
    }
)
