"""What a writer's schema says becomes what the table's says: columns by name, each without loss.

Definition: a column fits iff its type widens to the one asked for (`lossless`); inside a struct members are found by
name, too. One that is missing is its default, or null. Invariant: a message whose schema does not fit is bad, as a
whole, and so is one with a null where there must be none; no value is changed.

>>> wanted = pa.schema([("n", pa.int64()), ("new", pa.string())])
>>> misfit(pa.schema([("n", pa.int32())]), wanted), misfit(pa.schema([("n", pa.string())]), wanted)
('', 'column n: string is what was written, int64 is what is declared')
>>> rows, wrong = fitted({"n": pa.array([1, 2], pa.int32())}, 2, wanted)
>>> rows.to_pylist(), wrong
([{'n': 1, 'new': None}, {'n': 2, 'new': None}], {})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidegauge.sources.formats.convert import cast_each, converted
from tidegauge.sources.formats.lossless import widens

__all__ = ["fitted", "misfit"]


def misfit(written: pa.Schema, wanted: pa.Schema) -> str:
    """Say which column of a writer's schema does not fit; nothing when all do."""
    for column in wanted:
        i = written.get_field_index(column.name)
        if i >= 0 and not widens(written.field(i).type, column.type):
            found = written.field(i).type
            return f"column {column.name}: {found} is what was written, {column.type} is what is declared"
    return ""


def fitted(
    found: Mapping[str, Any], count: int, wanted: pa.Schema, *, defaults: Mapping[str, Any] | None = None
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return arrays as rows of `wanted`, and the faults of those that are no such row.

    defaults: scalars for columns that are missing.
    """
    arrays: list[Any] = []
    wrong: dict[int, str] = {}
    for column in wanted:
        if column.name in found:
            array, bad = converted(found[column.name], column.type, cast_each)
        elif defaults and column.name in defaults:
            array, bad = converted(pa.repeat(defaults[column.name], count), column.type, cast_each)
        else:
            array, bad = pa.nulls(count, column.type), np.zeros(count, np.bool_)
        problem = f"column {column.name}: a value that is no {column.type}"
        if not column.nullable and array.null_count and not bad.any():
            bad, problem = array.is_null().to_numpy(zero_copy_only=False), f"column {column.name}: null, and NOT NULL"
        for i in np.flatnonzero(bad).tolist():
            wrong.setdefault(i, problem)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=wanted), wrong
