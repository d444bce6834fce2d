"""Rows as the texts that the server writes: as such the first rows wait in files.

Invariant: each value is read as it was written, byte by byte, and null stays null.

>>> columns = pa.schema([("id", pa.int64()), ("who", pa.string())])
>>> rows_of(encoded([(b"1", b"ada"), (b"2", None)], columns)).to_pylist()
[{'id': b'1', 'who': b'ada'}, {'id': b'2', 'who': None}]
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegauge.sources.database.records import streamed

__all__ = ["encoded", "rows_of"]


def encoded(rows: Sequence[tuple[bytes | None, ...]], columns: pa.Schema) -> bytes:
    """Return rows, one at least, as a piece of a file. columns: for their names."""
    schema = pa.schema([(name, pa.binary()) for name in columns.names])
    arrays = [pa.array(column, pa.binary()) for column in zip(*rows, strict=True)]
    return streamed(pa.RecordBatch.from_arrays(arrays, schema=schema))


def rows_of(data: bytes) -> pa.RecordBatch:
    """Return the texts of rows that are in a piece."""
    with pa.ipc.open_stream(data) as piece:
        return piece.read_all().combine_chunks().to_batches()[0]
