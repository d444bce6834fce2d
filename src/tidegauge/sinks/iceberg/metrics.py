"""The statistics of a data file as manifests of Iceberg have them: counts and ends by column number, ends as bytes.

Readers skip files by them. They are made of those that a Delta log would have (`statistics`), which keep apart what
readers disagree on: a file with a NaN has no ends at all. So have columns of bytes, lists and maps; a column that has
ends has no NaN, and says so.

Invariant: every value of a column lies between its two ends, as Iceberg compares them; the ends of `_epoch` are
always there.

>>> schema = pa.schema([("user", pa.string()), ("_epoch", pa.int64())])
>>> text = '{"numRecords":2,"nullCount":{"user":1,"_epoch":0},"minValues":{"user":"bob"},"maxValues":{"user":"bob"}}'
>>> found = metrics(text, schema, {"user": 1, "_epoch": 2}, epochs=(3, 4))
>>> found["lower_bounds"], found["null_value_counts"]
({2: b'\\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x00', 1: b'bob'}, {1: 1, 2: 0})
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.sinks.columns import EPOCH
from tidegauge.sinks.iceberg.fields import leaves

__all__ = ["first_and_last", "metrics"]

_EXACTLY: Final = Context(prec=76)
"""More digits than a decimal has: with the usual 28, an end would be rounded to the wrong side of its values."""
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def metrics(text: str, schema: pa.Schema, ids: Mapping[str, int], *, epochs: tuple[int, int]) -> dict[str, Any]:
    """Return the parts of a data file's entry that are statistics.

    text: as `FileStatistics.text`. ids: the numbers of the columns. epochs: the first and the last that it holds.
    """
    told = json.loads(text, parse_float=Decimal)
    first, last = (struct.pack("<q", epoch) for epoch in epochs)
    lower, upper = {ids[EPOCH]: first}, {ids[EPOCH]: last}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    nans: dict[int, int] = {}
    for path, kind in leaves(schema):
        if (number := ids.get(".".join(path))) is None:
            continue  # a column that the file lacks
        values[number] = told["numRecords"]
        if (count := _found(told["nullCount"], path)) is not None:
            nulls[number] = count
        ends = [_found(told.get(name, {}), path) for name in ("minValues", "maxValues")]
        if path == (EPOCH,) or None in ends:
            continue
        lower[number], upper[number] = (_bytes(kind, end) for end in ends)
        if pt.is_floating(kind):
            nans[number] = 0
    return {
        "value_counts": values,
        "null_value_counts": nulls,
        "nan_value_counts": nans,
        "lower_bounds": lower,
        "upper_bounds": upper,
    }


def first_and_last(
    lower: Mapping[int, bytes] | None, upper: Mapping[int, bytes] | None, epoch: int
) -> tuple[int, int] | None:
    """Return the first and the last epoch of a file by its ends, None where they do not tell. epoch: its number.

    >>> first_and_last({2: b"\\x03" + bytes(7)}, {2: b"\\x04" + bytes(7)}, 2), first_and_last({}, None, 2)
    ((3, 4), None)
    """
    ends = [(found or {}).get(epoch) for found in (lower, upper)]
    if any(end is None or len(end) != 8 for end in ends):
        return None
    first, last = (struct.unpack("<q", end)[0] for end in ends if end is not None)
    return first, last


def _found(told: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        told = told.get(name) if isinstance(told, Mapping) else None
    return told


def _bytes(kind: Any, value: Any) -> bytes:
    """Return one value in Iceberg's binary form.

    >>> _bytes(pa.decimal128(9, 2), Decimal("-1.28")), _bytes(pa.bool_(), True)
    (b'\\x80', b'\\x01')
    >>> int.from_bytes(_bytes(pa.decimal128(38, 0), Decimal("9" * 38)), "big") == 10**38 - 1
    True
    """
    if pt.is_boolean(kind):
        return b"\x01" if value else b"\x00"
    if pt.is_string(kind):
        return str(value).encode()
    if pt.is_floating(kind):
        return struct.pack("<f" if kind == pa.float32() else "<d", float(value))
    if pt.is_decimal(kind):
        unscaled = int(_EXACTLY.scaleb(Decimal(value), kind.scale))
        return unscaled.to_bytes((8 + (unscaled + (unscaled < 0)).bit_length()) // 8, "big", signed=True)
    if pt.is_date(kind):
        return struct.pack("<i", date.fromisoformat(value).toordinal() - _START.date().toordinal())
    if pt.is_timestamp(kind):
        instant = datetime.fromisoformat(value)
        instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        return struct.pack("<q", (instant - _START) // _MICROSECOND)
    return struct.pack("<i" if kind == pa.int32() else "<q", int(value))
