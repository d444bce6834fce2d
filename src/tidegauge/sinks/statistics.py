"""Statistics of a data file, as a Delta table's log carries them: rows, and of each column nulls, least and greatest.

Readers skip files by them, and some take a column that has no least value, beside one that has, for nulls alone. So
the values left out matter for right answers as much as those that are there.

Invariant: every value of a column lies between its two recorded ends, in every order that a reader may use: -0.0 is
below 0.0, or equal to it. NaN lies between no two values for all readers, so a file with one has no ends at all, for
any column; the counts of nulls remain.

>>> rows = FileStatistics(pa.schema([("user", pa.string()), ("_epoch", pa.int64())]))
>>> rows.add(pa.table({"user": ["bob", None], "_epoch": [3, 4]}))
>>> for name, value in json.loads(rows.text()).items():
...     print(name, value)
numRecords 2
nullCount {'user': 1, '_epoch': 0}
minValues {'user': 'bob', '_epoch': 3}
maxValues {'user': 'bob', '_epoch': 4}
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.lazy import library
from tidegauge.sinks.columns import EPOCH

__all__ = ["FileStatistics", "footed", "loosened", "suited"]

pc: Final = library("pyarrow.compute")

_COLUMNS: Final = 32
"""Delta's own default (`delta.dataSkippingNumIndexedCols`). Writers count different columns; we count those with a
least value, so that no reader misses one. The epoch comes in addition."""
_CHARACTERS: Final = 32
_AFTER_ASCII: Final = "\x7f"
_LAST: Final = chr(sys.maxunicode)
_START: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a count of microseconds has no zone
_DAY: Final = date(1970, 1, 1)
_Path: TypeAlias = tuple[str, ...]


class FileStatistics:
    """Of the rows that one file holds, taken in one table of them after the other."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns: Final = {path: _Column(kind) for path, kind in _chosen(schema)}
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        """Take in rows of the schema."""
        self._rows += rows.num_rows
        for path, column in self._columns.items():
            column.add(_values(rows, path))

    def text(self) -> str:
        """Return the JSON text for the log."""
        said: dict[str, Any] = {"numRecords": self._rows, "nullCount": {}}
        ordered = all(column.ordered for column in self._columns.values())
        if ordered:
            said |= {"minValues": {}, "maxValues": {}}
        for path, column in self._columns.items():
            _put(said["nullCount"], path, column.nulls)
            if ordered and column.compared is not None:
                low, high = column.ends()
                _put(said["minValues"], path, low)
                _put(said["maxValues"], path, high)
        return _json(said)


@dataclass(slots=True)
class _Column:
    """One column's nulls and ends. compared: see `_compared`. nan, minus: whether it holds a NaN, and a -0.0."""

    kind: Any
    compared: Any = field(init=False)
    nulls: int = 0
    low: Any = None
    high: Any = None
    nan: bool = False
    minus: bool = False

    def __post_init__(self) -> None:
        self.compared = _compared(self.kind)

    def add(self, values: Any) -> None:
        self.nulls += values.null_count
        if self.compared is None or values.null_count == len(values):
            return
        values = values if self.compared == self.kind else values.cast(self.compared)
        ends = pc.min_max(values).as_py()
        low, high = ends["min"], ends["max"]
        if pt.is_floating(self.kind):
            self.nan = self.nan or pc.any(pc.is_nan(values)).as_py()
            if low == 0 or high == 0:  # Arrow takes the two zeros for one
                self.minus = self.minus or pc.any(pc.equal(pc.divide(1.0, values), -math.inf)).as_py()
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    @property
    def ordered(self) -> bool:
        """Whether all readers agree that the values lie between the ends.

        Where all are zeros and one is -0.0, they are one value to `=` and two to a set that is asked for.
        """
        return not self.nan and not (self.minus and self.low == self.high)

    def ends(self) -> tuple[Any, Any]:
        """Return the two ends, None twice if there are none."""
        if self.low is None:
            return None, None
        low, high = self.low, self.high
        if pt.is_floating(self.kind) and low != high:
            low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
        low, high = _said(self.kind, low), _said(self.kind, high, greatest=True)
        return (None, None) if low is None or high is None else (low, high)


def footed(schema: pa.Schema) -> list[str]:
    """Return the columns for which a Parquet file's own statistics are right for all readers, as Parquet names them.

    Those of floating point numbers say nothing of NaN, and of the two zeros what sets of values are misread by.
    """
    return [".".join(path) for path, kind in _leaves(schema) if not pt.is_floating(kind) and not pt.is_nested(kind)]


def suited(text: str, schema: pa.Schema, configuration: Mapping[str, str]) -> str:
    """Return what may be said of a file in a table of this configuration.

    A table may want statistics of other columns than its first ones. Where a file has not got them, it says none.

    >>> said = '{"numRecords":1,"nullCount":{"id":0},"minValues":{"id":7},"maxValues":{"id":7}}'
    >>> suited(said, pa.schema([("id", pa.int64())]), {"delta.dataSkippingNumIndexedCols": "-1"}) == said
    True
    """
    asked = configuration.get("delta.dataSkippingNumIndexedCols", str(_COLUMNS))
    usual = asked.isdecimal() and int(asked) <= _COLUMNS and "delta.dataSkippingStatsColumns" not in configuration
    if usual or dict(_chosen(schema)) == dict(_leaves(schema)):
        return text
    said = json.loads(text)
    return _json({name: said[name] for name in ("numRecords", "nullCount")})


def loosened(text: str, rows: int) -> str:
    """Return what may be said of a file with deleted rows: its ends may be those of rows that are gone.

    rows: how many the file itself has.

    >>> loosened('{"minValues":{"n":0.50}}', 3)
    '{"numRecords":3,"minValues":{"n":0.50},"tightBounds":false}'
    """
    said = json.loads(text, parse_float=Decimal) if text else {}
    return _json({"numRecords": rows, **said, "tightBounds": False})


def _chosen(schema: pa.Schema) -> Iterator[tuple[_Path, Any]]:
    counted = 0
    for path, kind in _leaves(schema):
        if counted < _COLUMNS or path == (EPOCH,):
            yield path, kind
        counted += _compared(kind) is not None and not pt.is_boolean(kind)


def _leaves(fields: Iterable[Any], within: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    for one in fields:
        path = (*within, one.name)
        if pt.is_struct(one.type):
            yield from _leaves((one.type.field(i) for i in range(one.type.num_fields)), path)
        else:
            yield path, one.type


def _values(rows: pa.Table, path: _Path) -> Any:
    """Return a column; within a struct, null where the struct is."""
    column = rows.column(path[0])
    return column if len(path) == 1 else pc.struct_field(column, list(path[1:]))


def _compared(kind: Any) -> Any:
    """Return as what the values of a stored type are compared; None for a type that has no least value in Delta.

    As numbers where Python's own values do not reach as far as Arrow's.
    """
    if pt.is_date(kind):
        return pa.int32()
    if pt.is_timestamp(kind):
        return pa.int64()
    return None if pt.is_binary(kind) or pt.is_nested(kind) else kind


def _said(kind: Any, end: Any, *, greatest: bool = False) -> Any:
    """Return an end as the log has it, None when it has no form for it."""
    if pt.is_string(kind):
        return _beyond(end) if greatest else end[:_CHARACTERS]
    if pt.is_floating(kind) and not math.isfinite(end):
        return "-Infinity" if end < 0 else "Infinity"
    try:
        if pt.is_date(kind):
            return (_DAY + timedelta(days=end)).isoformat()
        if pt.is_timestamp(kind):
            instant = (_START + timedelta(microseconds=end)).isoformat(timespec="microseconds")
            return instant if kind.tz is None else f"{instant}Z"
    except OverflowError:
        return None
    return end


def _beyond(text: str) -> str | None:
    """Return a text of few characters that is not less than this one, as Delta does it; None when there is none.

    >>> _beyond("a" * 32) == "a" * 32, _beyond("a" * 33) == "a" * 32 + "\\x7f", _beyond(_LAST * 99)
    (True, True, None)
    """
    if len(text) <= _CHARACTERS:
        return text
    for end in range(_CHARACTERS, min(len(text), 2 * _CHARACTERS)):
        if text[end] < _LAST:
            return text[:end] + (_AFTER_ASCII if text[end] < _AFTER_ASCII else _LAST)
    return None


def _put(into: dict[str, Any], path: _Path, value: Any) -> None:
    """Put a value where it belongs. A struct is there also with nothing in it: without, it would be null itself."""
    for name in path[:-1]:
        into = into.setdefault(name, {})
    if value is not None:
        into[path[-1]] = value


def _json(value: Any) -> str:
    """Return JSON, decimals as numbers with all their digits. Nothing is escaped: delta-rs misreads some escapes."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(name)}:{_json(inner)}" for name, inner in value.items()) + "}"
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
