"""Rows in the order of their partitions, and within each of them as the sort says: one pass, and cuts between them.

Laws. What comes out has the rows that went in, each as often. Rows of one partition are one piece, and no two pieces
are of one. Within a piece rows are in the order of the sorted columns, nulls last; and where these are equal, or none
is given, as they came.

>>> rows = pa.table({"country": ["DE", "FR", "DE"], "n": [3, 2, 1]})
>>> [(values, piece["n"].to_pylist()) for values, piece in split(rows, ["country"], ["n"])]
[((('country', 'DE'),), [1, 3]), ((('country', 'FR'),), [2])]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.lazy import library
from tidegauge.sinks.layout.values import PartitionValues, texts_of

__all__ = ["arranged", "split"]

pc: Final[Any] = library("pyarrow.compute")

_CODE: Final = "code="
"""No column of rows has such a name."""


def split(
    rows: pa.Table, partition: Sequence[str], sort: Sequence[str] = ()
) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Yield the rows of each partition, with its values as text. Partitions come in the order of their first rows."""
    if not rows.num_rows:
        return
    if not partition:
        yield (), arranged(rows, sort)
        return
    codes = _codes(rows, partition)
    ordered = arranged(rows.append_column(_CODE, codes), [_CODE, *sort])
    runs = pc.run_end_encode(ordered.column(_CODE).combine_chunks())
    ends = runs.run_ends.to_pylist()
    starts = [0, *ends[:-1]]
    firsts = ordered.select(list(partition)).take(pa.array(starts))
    texts = [texts_of(firsts.column(name).combine_chunks()) for name in partition]
    plain = ordered.drop_columns([_CODE])
    for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
        values = tuple((name, column[at]) for name, column in zip(partition, texts, strict=True))
        yield values, plain.slice(start, end - start)


def arranged(rows: pa.Table, sort: Sequence[str]) -> pa.Table:
    """Return rows in the order of columns, nulls last; the same rows where they are in it already."""
    if not sort or rows.num_rows < 2:
        return rows
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in sort])
    if order.equals(pa.array(np.arange(rows.num_rows, dtype="uint64"))):
        return rows
    return rows.take(order)


def _codes(rows: pa.Table, partition: Sequence[str]) -> Any:
    """Return a number for each row, which two rows have in common if they are of one partition."""
    found: Any = None
    for name in partition:
        encoded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        codes, count = encoded.indices.cast(pa.int64()), len(encoded.dictionary)
        if found is None:
            found = codes
            continue
        both = pc.add(pc.multiply(found, count), codes)  # dense anew, so that it never grows past the rows
        found = both.dictionary_encode().indices.cast(pa.int64())
    return found
