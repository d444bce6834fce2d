"""Which columns each record of a source is read by, and rows of earlier ones as rows of the present ones.

A source whose columns were changed has earlier ones (`EarlierColumns`), each for the records before some positions.
Records are read by the columns that were in force when they were bound, and the rows then get those of now: a column
that is new is null in them, whatever the record may hold under that name.

Law: the row of a record follows from its position, and from the columns of now. So a late output gets of the past
what one has that was there, however epochs were cut, compacted or read again since.

>>> from tidegauge.remap.binding import EarlierColumns
>>> old = EarlierColumns(7, pa.schema([("n", pa.int64())]), 0, {"p0": 5})
>>> bound = Bound(schema=pa.schema([("n", pa.int64()), ("note", pa.string())]), earlier=(old,))
>>> found = by_columns([Slice("orders", 6, "p0", 3, 5), Slice("orders", 8, "p0", 5, 9)], bound)
>>> [(schema.names, [(one.lower, one.upper) for one in slices]) for schema, slices in found]
[(['n'], [(3, 5)]), (['n', 'note'], [(5, 9)])]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidegauge.evolution import filled
from tidegauge.job.functions import channel_of, columns_of
from tidegauge.leftout import LEFT
from tidegauge.remap.binding import Bound, Slice
from tidegauge.sources.protocol import OnBadRecord, RangeReader

__all__ = ["Columned", "by_columns", "read_as"]


@dataclass(frozen=True, slots=True)
class Columned:
    """Reads splits of a source, some of them by earlier columns, as rows with the columns of now."""

    source: RangeReader
    schema: pa.Schema

    def read(self, split: Any, bad: OnBadRecord) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""
        columns = columns_of(self.schema, channel_of(split))
        for batch in self.source.read(split, bad):
            marked = LEFT in batch.schema.names
            yield filled(batch, columns.append(batch.schema.field(LEFT)) if marked else columns)


def by_columns(slices: Sequence[Slice], bound: Bound) -> list[tuple[pa.Schema | None, list[Slice]]]:
    """Return slices with the columns that their records have, those of the earliest first; none without a slice."""
    earlier = [one for one in bound.earlier if one.incarnation == bound.incarnation]
    if not earlier:
        return [(bound.schema, list(slices))] if slices else []
    found: list[tuple[pa.Schema | None, list[Slice]]] = [(one.schema, []) for one in earlier]
    now: list[Slice] = []
    for piece in slices:
        at = piece.lower
        for one, (_, mine) in zip(earlier, found, strict=True):
            end = min(piece.upper, one.positions.get(piece.partition, 0))
            if at < end:
                mine.append(replace(piece, lower=at, upper=end))
                at = end
        if at < piece.upper:
            now.append(replace(piece, lower=at))
    return [(schema, mine) for schema, mine in [*found, (bound.schema, now)] if mine]


def read_as(source: RangeReader, parts: Sequence[tuple[pa.Schema | None, object]], bound: Bound) -> RangeReader:
    """Return what reads the splits of slices with these columns as rows with those of now; the source if it does."""
    if bound.schema is None or all(schema is bound.schema for schema, _ in parts):
        return source
    return Columned(source, bound.schema)
