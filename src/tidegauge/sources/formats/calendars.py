"""Dates and times of Parquet files in the old calendar: found and refused, as only Spark sees the difference.

Spark 2 counted days by the calendar that jumps from 1582-10-04 to 1582-10-15, and times before 1900 by clocks that
are not told apart any more; so does a newer Spark whose `datetimeRebaseModeInWrite` is LEGACY. The footer says so.
To read such a value unchanged gives another day: 1000-01-01 is 1000-01-06 then.

Invariant: a value that is the same in both calendars is never refused, and one that is not is never read.

>>> import io
>>> import pyarrow.parquet as pq
>>> old, file = {"org.apache.spark.version": "2.4.8"}, io.BytesIO()
>>> pq.write_table(pa.table({"day": pa.array([-354280, 0], pa.date32())}).replace_schema_metadata(old), file)
>>> of = OldCalendars.of(pq.ParquetFile(file))
>>> of.check("day", pa.array([0, None], pa.date32()))
>>> of.check("day", pa.array([-354280, 0], pa.date32()))
Traceback (most recent call last):
tidegauge.errors.sources.OldCalendar: TG-0979: the column 'day' has 1 values before 1582-10-15, 1000-01-06 first...
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa

from tidegauge.errors.sources import OldCalendar
from tidegauge.lazy import library

__all__ = ["OldCalendars"]

pc: Final[Any] = library("pyarrow.compute")

_WRITER: Final = b"org.apache.spark.version"
_DATES: Final = b"org.apache.spark.legacyDateTime"
_INT96: Final = b"org.apache.spark.legacyINT96"
_CORRECT: Final = 3
"""The first version of Spark that writes the calendar of today."""
_DAY: Final = date(1582, 10, 15)
_TIME: Final = datetime(1900, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OldCalendars:
    """What of a file is in the old calendar: dates and times, and times as INT96, of the columns that have such."""

    dates: bool
    int96: frozenset[str]

    @staticmethod
    def of(file: Any) -> OldCalendars:
        """Look at an open Parquet file's footer."""
        said = file.metadata.metadata or {}
        version = re.match(rb"\d+", said.get(_WRITER, b""))
        old = version is not None and int(version[0]) < _CORRECT
        dates, int96 = old or _DATES in said, old or _INT96 in said
        leaves = (file.schema.column(number) for number in range(len(file.schema))) if int96 else ()
        return OldCalendars(
            dates, frozenset(leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96")
        )

    def check(self, column: str, values: Any) -> None:
        """Raise `OldCalendar` for values of a column that mean others in the calendar of today."""
        if not self.dates and column not in self.int96:
            return
        for leaf in _leaves(values):
            if pa.types.is_date(leaf.type) and self.dates:
                _refuse(column, leaf, _DAY)
            elif pa.types.is_timestamp(leaf.type) and (self.dates if leaf.type.tz else column in self.int96):
                _refuse(column, leaf, _TIME if leaf.type.tz else _TIME.replace(tzinfo=None))


def _refuse(column: str, values: Any, since: date) -> None:
    old = values.filter(pc.less(values, pa.scalar(since, values.type)))
    if len(old):
        oldest = pc.min(old).cast(pa.string()).as_py()
        raise OldCalendar(column=column, count=len(old), since=since.isoformat()[:10], oldest=oldest)


def _leaves(values: Any) -> list[Any]:
    """Return the arrays that a column is made of."""
    kind = values.type
    if pa.types.is_struct(kind):
        return [leaf for part in values.flatten() for leaf in _leaves(part)]
    if pa.types.is_map(kind):
        return [*_leaves(values.keys), *_leaves(values.items)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _leaves(values.flatten())
    return [values]
