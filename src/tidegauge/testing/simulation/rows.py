"""The rows of tables as checks compare them: as texts, by epoch, in no order.

Invariant: two rows have one text iff they are equal.

>>> rows = pa.table({"id": [7, 7, 8], "_epoch": [0, 0, 1]})
>>> by_epoch(rows) == {0: Counter({"(7,)": 2}), 1: Counter({"(8,)": 1})}
True
>>> listed("missing", Counter({"(7,)": 2}))
'2 rows missing: (7,)'
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pyarrow as pa

__all__ = ["by_epoch", "listed", "of_channel", "shown"]

_SHOWN: Final = 3


def by_epoch(rows: pa.Table) -> dict[int, Counter[str]]:
    """Return the rows of each epoch, without it."""
    found: dict[int, Counter[str]] = {}
    for row in rows.to_pylist():
        found.setdefault(row.pop("_epoch"), Counter())[shown(row)] += 1
    return found


def of_channel(rows: pa.RecordBatch, channel: str) -> pa.RecordBatch | None:
    """Return the rows of a channel, None for none: each row of several streams is in the column of its own.

    >>> both = pa.record_batch({"orders": [None, {"id": 7}], "users": [{"name": "ada"}, None]})
    >>> of_channel(both, "orders").to_pylist(), of_channel(both, "errors") is both
    ([{'id': 7}], True)
    """
    if channel in ("rows", "errors"):
        return rows
    mine = rows[channel].drop_null()
    return pa.RecordBatch.from_struct_array(mine) if len(mine) else None


def shown(row: dict[str, Any]) -> str:
    """Return a row as text: equal for equal rows, whether its table has its last columns yet or they are null.

    >>> shown({"id": 7, "note": None}), shown({"id": 7})
    ('(7,)', '(7,)')
    """
    values = [*row.values()]
    while values and values[-1] is None:
        values.pop()
    return repr(tuple(values))


def listed(what: str, rows: Counter[str]) -> str:
    """Say how many rows are something, and which, for people."""
    some = ", ".join(list(rows)[:_SHOWN])
    return f"{rows.total()} rows {what}{': ' if some else ''}{some}"
