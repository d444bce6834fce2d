"""Keys as plain values that Python compares as Arrow, Parquet and Delta's readers do: numbers and bytes.

A key is a tuple with a value for each key column. Numbers, dates, instants and decimals are whole numbers, text is
its bytes. Keys are compared column by column, as tuples are.

Invariant: `plain` keeps the order, and `within` takes the rows whose keys lie between two plain keys. A file's or row
group's ends may lie outside of its keys, never inside: the ends of several columns, each of its own, are such ends of
the tuples.

>>> rows = pa.table({"user": ["ada", "bob", "eve"], "n": pa.array([1, 2, 3], pa.int32())})
>>> plain(rows, ("user", "n"))[0]
(b'ada', 1)
>>> within(rows, ("user", "n"), (b"ada", 2), (b"eve", 3)).to_pylist()
[False, True, False]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.lazy import library

__all__ = ["Ends", "Key", "RowGroup", "ends_of", "pieces_of", "plain", "within"]

pc: Final[Any] = library("pyarrow.compute")

Key: TypeAlias = tuple[Any, ...]
"""A whole number or bytes for each key column."""

_EXACT: Final = Context(prec=100)
"""Decimals have up to 38 digits, and Python's usual context rounds to 28."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Between which keys all keys of some rows lie, both included; None where that is not known."""

    low: Key | None = None
    high: Key | None = None

    def meets(self, low: Key | None, high: Key | None) -> bool:
        """Whether there may be keys in `[low, high)`; None for without end."""
        before = low is not None and self.high is not None and self.high < low
        behind = high is not None and self.low is not None and self.low >= high
        return not (before or behind)

    def inside(self, low: Key | None, high: Key | None) -> bool:
        """Whether all keys are in `[low, high)`."""
        begins = low is None or (self.low is not None and self.low >= low)
        return begins and (high is None or (self.high is not None and self.high < high))


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group of a file: its ends, its rows, and its size, stored and in memory at least."""

    number: int
    ends: Ends
    rows: int
    stored: int
    loaded: int


def plain(rows: pa.Table | pa.RecordBatch, names: Sequence[str]) -> list[Key]:
    """Return the keys of rows."""
    return list(zip(*(_values(rows.column(name)) for name in names), strict=True))


def within(rows: pa.Table | pa.RecordBatch, names: Sequence[str], low: Key | None, high: Key | None) -> Any:
    """Return for each row whether its key is in `[low, high)`; None where all are, as both are without end."""
    found = None if low is None else pc.invert(_below(rows, names, low))
    if high is None:
        return found
    below = _below(rows, names, high)
    return below if found is None else pc.and_(found, below)


def ends_of(file: Any, names: Sequence[str]) -> Ends:
    """Return the ends of an open Parquet file."""
    found = [piece.ends for piece in pieces_of(file, names)]
    lows, highs = [one.low for one in found], [one.high for one in found]
    low = None if not lows or None in lows else min(one for one in lows if one is not None)
    high = None if not highs or None in highs else max(one for one in highs if one is not None)
    return Ends(low, high)


def pieces_of(file: Any, names: Sequence[str]) -> list[RowGroup]:
    """Return the row groups of an open Parquet file."""
    about, schema = file.metadata, file.schema_arrow
    places = {about.schema.column(number).path: number for number in range(about.num_columns)}
    kinds = [schema.field(name).type if name in places and name in schema.names else None for name in names]
    found = []
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        columns = [group.column(places[name]) if name in places else None for name in names]
        said = [_ends(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        low, high = tuple(one[0] for one in said), tuple(one[1] for one in said)
        ends = Ends() if None in low or None in high else Ends(low, high)
        stored = sum(group.column(at).total_compressed_size for at in range(group.num_columns))
        found.append(RowGroup(number, ends, group.num_rows, stored, group.total_byte_size))
    return found


def _ends(column: Any, kind: Any) -> tuple[Any, Any]:
    """Return the ends of one column of a row group, None twice where they are not known."""
    if column is None or kind is None:
        return None, None
    said = column.statistics
    if said is None or not said.has_min_max or said.null_count:
        return None, None
    if pt.is_decimal(kind) and isinstance(said.min_raw, bytes):
        low, high = (int.from_bytes(end, "big", signed=True) for end in (said.min_raw, said.max_raw))
        return low, high
    if pt.is_timestamp(kind) and kind.unit != "us":
        return None, None
    return said.min_raw, said.max_raw


def _values(column: Any) -> list[Any]:
    if pt.is_decimal(column.type):
        scale = column.type.scale
        return [int(_EXACT.scaleb(value, scale)) for value in column.to_pylist()]
    return [int(value) if isinstance(value, bool) else value for value in _comparable(column).to_pylist()]


def _comparable(column: Any) -> Any:
    kind = column.type
    if pt.is_string(kind) or pt.is_large_string(kind):
        return column.cast(pa.binary() if pt.is_string(kind) else pa.large_binary())
    if pt.is_date(kind):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pt.is_timestamp(kind) else column


def _below(rows: pa.Table | pa.RecordBatch, names: Sequence[str], key: Key) -> Any:
    """Return for each row whether its key is less than this one."""
    found: Any = None
    for name, value in reversed(list(zip(names, key, strict=True))):
        column = _comparable(rows.column(name))
        end = _scalar(value, column.type)
        less = pc.less(column, end)
        found = less if found is None else pc.or_(less, pc.and_(pc.equal(column, end), found))
    return found


def _scalar(value: Any, kind: Any) -> Any:
    if pt.is_decimal(kind):
        return pa.scalar(_EXACT.scaleb(Decimal(value), -kind.scale), kind)
    if pt.is_boolean(kind):
        return pa.scalar(bool(value), kind)
    return pa.scalar(value, kind)
