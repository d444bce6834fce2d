r"""Rows as the text that COPY takes: one line for each row, its columns parted by tabs, null as `\N`.

Invariant: the server reads each value as it was, whatever its settings. Values that it could not read so are refused
by `check_values`, in the task that stages them.

Not CSV, though Arrow writes that: servers before version 18 take a line `\.` within a quoted text for the end of the
data, and drop all that follows. Here each backslash of a text is doubled.

>>> bytes(lines(pa.record_batch({"user": ["a\tb", None], "raw": [b"\x00\xff", b""], "n": [1, None]})))
b'a\\tb\t\\\\x00ff\t1\n\\N\t\\\\x\t\\N\n'
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tidegauge.errors.postgressink import ServerValueUnfit
from tidegauge.lazy import library
from tidegauge.sinks.columns import EPOCH

__all__ = ["check_values", "lines"]

pc: Final[Any] = library("pyarrow.compute")

_TEXT: Final = pa.large_string()
_ESCAPED: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_HEX: Final = np.array([list(f"{value:02x}".encode()) for value in range(256)], dtype=np.uint8)
_FIRST: Final = datetime(1, 1, 1)  # noqa: DTZ001 - local times too
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001


def lines(rows: pa.RecordBatch) -> memoryview:
    """Return rows, in stored form, as lines of text."""
    columns = [_texts(column) for column in rows.columns]
    columns[-1] = pc.binary_join_element_wise(columns[-1], _scalar(""), _scalar("\n"))
    joined = pc.binary_join_element_wise(*columns, _scalar("\t"))
    _, offsets, data = joined.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])] if data is not None else memoryview(b"")


def check_values(rows: pa.RecordBatch) -> None:
    """Raise `ServerValueUnfit` for a value that the server cannot hold. Rows are in stored form."""
    for name, bad, problem in _faults(rows):
        if pc.any(bad).as_py():
            epoch = rows.column(EPOCH).filter(pc.fill_null(bad, fill_value=False))[0].as_py()
            raise ServerValueUnfit(column=name, epoch=epoch, problem=problem)


def _faults(rows: pa.RecordBatch) -> Iterator[tuple[str, Any, str]]:
    """Yield of columns which rows have a bad value, and why."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pt.is_string(field.type):
            yield field.name, pc.match_substring(column, "\0"), "a text with a zero byte"
        elif pt.is_date(field.type):
            yield field.name, _outside(column, _FIRST.date(), _LAST.date()), "a year before 1 or after 9999"
        elif pt.is_timestamp(field.type):
            plain = column.cast(pa.timestamp("us"))
            yield field.name, _outside(plain, _FIRST, _LAST), "a year before 1 or after 9999"


def _outside(column: Any, first: date, last: date) -> Any:
    return pc.or_(pc.less(column, pa.scalar(first, column.type)), pc.greater(column, pa.scalar(last, column.type)))


def _texts(column: Any) -> Any:
    """Return the values of a column as texts of COPY."""
    kind = column.type
    if pt.is_string(kind):
        found = column.cast(_TEXT)
        for sign, escaped in _ESCAPED:
            if pc.any(pc.match_substring(found, sign)).as_py():
                found = pc.replace_substring(found, sign, escaped)
    elif pt.is_binary(kind):
        found = pc.binary_join_element_wise(_scalar("\\\\x"), _hex(column), _scalar(""))
    elif pt.is_timestamp(kind):
        plain = column.cast(pa.timestamp("us")).cast(_TEXT)
        found = plain if kind.tz is None else pc.binary_join_element_wise(plain, _scalar("+00"), _scalar(""))
    else:
        found = column.cast(_TEXT)
    return pc.fill_null(found, _scalar("\\N"))


def _hex(column: Any) -> Any:
    """Return bytes as hex digits, nulls as nulls."""
    given = pc.fill_null(column.cast(pa.large_binary()), pa.scalar(b"", pa.large_binary()))
    _, offsets, data = given.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[given.offset : given.offset + len(given) + 1]
    found = np.frombuffer(data or b"", dtype=np.uint8)[ends[0] : ends[-1]]
    digits = pa.py_buffer(np.ascontiguousarray(_HEX[found]))
    texts = pa.Array.from_buffers(_TEXT, len(given), [None, pa.py_buffer(2 * (ends - ends[0])), digits])
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, _TEXT))


def _scalar(text: str) -> Any:
    return pa.scalar(text, _TEXT)
