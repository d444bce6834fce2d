"""Which columns of a Parquet file are worth a dictionary of their values.

To build one of values that hardly repeat, only to abandon it, takes half of the writing time, and the file is larger.

Invariant: it is a matter of size and time alone. A reader gets the same rows either way.

>>> worth_a_dictionary(pa.table({"id": range(9000), "country": ["SE", "NO", "DK"] * 3000}))
['country']
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from tidegauge.lazy import library

__all__ = ["worth_a_dictionary"]

pc: Final = library("pyarrow.compute")

_SAMPLE: Final = 4096


def worth_a_dictionary(group: pa.Table) -> Any:
    """Return the columns worth it (or True for all), judged by a sample of the file's first row group."""
    if any(pt.is_nested(field.type) for field in group.schema):
        return True  # the writer takes a list of leaves only, and says nothing when it misses one
    step = max(1, group.num_rows // _SAMPLE)
    # By batches: to take from all of a table at once, Arrow copies its texts into one array first.
    some = [rows.take(pa.array(range(0, rows.num_rows, step), pa.int64())) for rows in group.to_batches()]
    sample = pa.Table.from_batches(some, group.schema)
    return [name for name in group.schema.names if 2 * pc.count_distinct(sample.column(name)).as_py() <= len(sample)]
