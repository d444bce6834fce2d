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
    named = zip(group.schema.names, group.columns, strict=True)
    return [name for name, column in named if _repeats(column, step)]


def _repeats(column: pa.ChunkedArray, step: int) -> bool:
    """Whether of every `step`th value half or more came before; True for a type that cannot be looked at so."""
    try:
        # By chunks: to take from all of them at once, Arrow copies their texts into one array first.
        some = [chunk.take(pa.array(range(0, len(chunk), step), pa.int64())) for chunk in column.chunks]
        sample = pa.chunked_array(some, column.type)
        return bool(2 * pc.count_distinct(sample).as_py() <= len(sample))
    except pa.ArrowNotImplementedError:
        return True
