"""Records that wait for their epoch as chunks of a log: which of them are decoded together, and from which file.

A chunk is INLINE where it has its bytes with it, and in a file otherwise. Inline ones of one table's shape that stand
side by side are decoded at once; each other one is for itself.

Invariant: runs are the records in their order, each in one.

>>> shapes = pa.array(["a", "a", "b", "b"]).dictionary_encode()
>>> records = pa.record_batch({"_kind": pa.array([0, 0, 0, 1], pa.int8()), "_shape": shapes})
>>> [(kind, shape, run.num_rows) for kind, shape, run in runs(records)]
[(0, 'a', 2), (0, 'b', 1), (1, 'b', 1)]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from tidegauge.errors.push import PieceUnreadable
from tidegauge.lazy import library
from tidegauge.operations import OP
from tidegauge.sources.database.sequence import SEQUENCE

__all__ = ["INLINE", "OURS", "filed", "filed_bytes", "joined", "runs", "streamed", "together"]

pc: Final = library("pyarrow.compute")

INLINE: Final = 0
OURS: Final = frozenset({OP, SEQUENCE, "_partition", "_offset", "_timestamp"})
"""The columns that a table does not have itself."""


class Kinded(Protocol):
    """A chunk, as far as it matters here."""

    @property
    def kind(self) -> int:
        """INLINE, or where its bytes are."""
        ...


C = TypeVar("C", bound=Kinded)


def together(chunks: Sequence[C]) -> list[list[C]]:
    """Return the groups of chunks that travel together: those in files each for itself."""
    found: list[list[C]] = []
    for chunk in chunks:
        if chunk.kind == INLINE and found and found[-1][-1].kind == INLINE:
            found[-1].append(chunk)
        else:
            found.append([chunk])
    return found


def runs(records: pa.RecordBatch) -> Iterator[tuple[int, str, pa.RecordBatch]]:
    """Yield the neighbours that are decoded together, with their kind and the shape of their table."""
    kinds = records["_kind"].to_numpy(zero_copy_only=False)
    shapes = records["_shape"]
    codes = shapes.indices.to_numpy(zero_copy_only=False)
    cuts = np.flatnonzero((kinds[1:] != INLINE) | (kinds[:-1] != INLINE) | (codes[1:] != codes[:-1])) + 1
    for lower, upper in itertools.pairwise([0, *cuts.tolist(), len(kinds)]):
        if upper > lower:
            yield int(kinds[lower]), shapes.dictionary[int(codes[lower])].as_py(), records.slice(lower, upper - lower)


def joined(parts: Sequence[pa.RecordBatch], columns: pa.Schema) -> pa.RecordBatch:
    """Return the rows of all runs as one batch, in their order."""
    if not parts:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in columns], schema=columns)
    return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def streamed(batch: pa.RecordBatch) -> bytes:
    """Return a batch as a stream of Arrow: as such it waits in a file, or in a chunk that was kept."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def filed_bytes(records: pa.RecordBatch) -> int:
    """Return the bytes of records that are in files."""
    return int(pc.sum(records["_size"]).as_py() or 0)


def filed(record: pa.RecordBatch) -> bytes:
    """Return the bytes of a record that are in a file. Raises `PieceUnreadable`."""
    path, start, size = (record[name][0].as_py() for name in ("_file", "_from", "_size"))
    try:
        with Path(path).open("rb") as file:
            file.seek(start)
            found = file.read(size)
    except OSError as error:
        raise PieceUnreadable(path=path, detail=str(error)) from error
    if len(found) != size:
        raise PieceUnreadable(path=path, detail=f"it ends at {start + len(found)}, and {start + size} were written")
    return found
