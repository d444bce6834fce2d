"""What rows are parted by: a column, or a transform of one. Values, without a format.

    day("at")          a date         at_day            2026-11-20
    month("at")        a text         at_month          2026-11
    hour("at")         a text         at_hour           2026-11-20-17
    bucket(16, "id")   an integer     id_bucket_16      0 to 15, by Murmur3 as Iceberg has it

Each has a name and a value that people and readers can filter by, in their order. `ordinals` has the same as the
number that Iceberg's specification gives it.

Invariants: a value is a function of the row's column alone, in UTC, whatever zone a session or a machine has; the
transform of a null is null. Of two names that are equal the transforms are, so a name says how it came about.

>>> rows = pa.table({"at": pa.array([1_795_194_000_000_000], pa.timestamp("us", "UTC")), "id": [34]})
>>> [(one.name, one.of(rows).to_pylist()) for one in (month("at"), hour("at"), bucket(16, "id"))]
[('at_month', ['2026-11']), ('at_hour', ['2026-11-20-17']), ('id_bucket_16', [3])]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.flow import InvalidArgument
from tidegauge.lazy import library
from tidegauge.sinks.layout.murmur import hashes

__all__ = ["PartitionBy", "PartitionField", "bucket", "day", "hour", "month"]

pc: Final[Any] = library("pyarrow.compute")

_SHOWN: Final = {"month": "%Y-%m", "hour": "%Y-%m-%d-%H"}
_MOST_BUCKETS: Final = 2**31 - 1
_HOUR: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class PartitionField:
    """What to make of a column. buckets: how many, for "bucket"."""

    kind: Literal["column", "day", "month", "hour", "bucket"]
    column: str
    buckets: int = 0

    @property
    def name(self) -> str:
        """The partition column."""
        if self.kind == "column":
            return self.column
        return f"{self.column}_{self.kind}" + (f"_{self.buckets}" if self.buckets else "")

    def __str__(self) -> str:
        if self.kind == "column":
            return self.column
        return f"{self.kind}({self.buckets}, {self.column})" if self.buckets else f"{self.kind}({self.column})"

    def problem(self, kind: Any) -> str:
        """Return why it cannot be taken of a column of this stored type, "" where it can."""
        match self.kind:
            case "column":
                if pt.is_timestamp(kind):
                    return "readers differ in how they take an instant as a partition: use day, hour or month of it"
                fits = pt.is_integer(kind) or pt.is_string(kind) or pt.is_boolean(kind) or pt.is_date(kind)
                return "" if fits else f"readers differ in how they take {kind} as a partition"
            case "bucket":
                fits = not (pt.is_floating(kind) or pt.is_boolean(kind) or pt.is_nested(kind))
                return "" if fits else f"Iceberg's specification has no hash of {kind}"
            case "hour":
                return "" if pt.is_timestamp(kind) else f"{kind} has no hours"
            case _:
                return "" if pt.is_timestamp(kind) or pt.is_date(kind) else f"{kind} has no days"

    def type(self, kind: Any) -> Any:
        """Return the type of the partition column, given the column's."""
        return {"column": kind, "day": pa.date32(), "bucket": pa.int32()}.get(self.kind, pa.string())

    def of(self, rows: pa.Table | pa.RecordBatch) -> Any:
        """Return the partition column of rows in stored form."""
        values = rows.column(self.column)
        match self.kind:
            case "column":
                return values
            case "day":
                return values if pt.is_date(values.type) else _floor(values, "day").cast(pa.date32())
            case "bucket":
                return self.ordinals(rows)
            case kind:
                return pc.strftime(_local(values), format=_SHOWN[kind])

    def ordinals(self, rows: pa.Table | pa.RecordBatch) -> Any:
        """Return what Iceberg's specification has for it: days, months and hours since 1970, a bucket, the value."""
        values = rows.column(self.column)
        match self.kind:
            case "column":
                return values
            case "bucket":
                chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
                found = [_bucket(chunk, self.buckets) for chunk in chunks]
                return pa.chunked_array(found, pa.int32()) if isinstance(values, pa.ChunkedArray) else found[0]
            case "day":
                return self.of(rows).cast(pa.int32())
            case "hour":
                return pc.divide(_floor(values, "hour").cast(pa.int64()), _HOUR).cast(pa.int32())
            case _:
                dates = _local(values)
                months = pc.add(pc.multiply(pc.subtract(pc.year(dates), 1970), 12), pc.subtract(pc.month(dates), 1))
                return months.cast(pa.int32())


PartitionBy: TypeAlias = str | PartitionField


def day(column: str) -> PartitionField:
    """Part rows by the day of an instant or a date, in UTC."""
    return _transform("day", column)


def month(column: str) -> PartitionField:
    """Part rows by the month of an instant or a date, in UTC."""
    return _transform("month", column)


def hour(column: str) -> PartitionField:
    """Part rows by the hour of an instant, in UTC."""
    return _transform("hour", column)


def bucket(buckets: int, column: str) -> PartitionField:
    """Part rows into this many buckets, by the hash of a column as Iceberg has it."""
    if type(buckets) is not int or not 0 < buckets <= _MOST_BUCKETS:
        raise InvalidArgument(parameter="bucket(buckets)", value=buckets, expected="how many, 1 or more")
    return _transform("bucket", column, buckets)


def _transform(kind: Any, column: str, buckets: int = 0) -> PartitionField:
    if not isinstance(column, str) or not column:
        raise InvalidArgument(parameter=f"{kind}(column)", value=column, expected="the name of a column")
    return PartitionField(kind, column, buckets)


def _local(values: Any) -> Any:
    """Return instants as local times in UTC, and dates unchanged."""
    return values.cast(pa.timestamp("us")) if pt.is_timestamp(values.type) else values


def _floor(values: Any, unit: str) -> Any:
    """Return where the unit begins; before 1970 too, where a cast would cut towards it."""
    return pc.floor_temporal(_local(values), unit=unit)


def _bucket(values: Any, buckets: int) -> Any:
    found = (hashes(values) & 0x7FFFFFFF) % buckets
    return pa.array(found.astype("int32"), pa.int32(), mask=values.is_null().to_numpy(zero_copy_only=False))
