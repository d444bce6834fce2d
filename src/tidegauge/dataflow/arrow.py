"""Arrow batches on the core: the pieces of a batch by the values of a column, without a look at single rows.

The operators know nothing of Arrow; this module does.

Law: where a row goes is a function of its key and the number of peers alone, the one of `records.worker_of`. Neither
the batch, nor its chunks, its encoding or the width of its integers matter; so what one stream holds as records and
another as columns meets at the same peer. Rows keep their sequence within a piece.

Text and bytes are hashed by columns of bytes: round `i` takes in the `i`-th byte of every value that has one, so
there are as many rounds as the longest value has bytes, and each is one pass over contiguous arrays. Values longer
than `LONG` bytes would cost a round for a few values; each of those is one call of zlib instead.

>>> batch = pa.record_batch({"port": ["Brest", "Hull", "Brest"], "metres": [7.1, 5.4, 6.9]})
>>> [(peer, piece.to_pydict()) for peer, piece in route("port")(batch, 2)]
[(0, {'port': ['Brest', 'Brest'], 'metres': [7.1, 6.9]}), (1, {'port': ['Hull'], 'metres': [5.4]})]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegauge.errors.dataflow import UnroutableKey

__all__ = ["FEW", "LONG", "route"]

Tabular = TypeVar("Tabular", pa.RecordBatch, pa.Table)

FEW: Final = 512
"""Up to how many values are hashed one by one, by zlib: a round for each byte costs more than they do."""
LONG: Final = 64
"""How many bytes a value may have to be hashed together with the others."""


def route(column: str) -> Callable[[Tabular, int], list[tuple[int, Tabular]]]:
    """Return what `Stream.exchange` takes: each row goes to the peer that its value in `column` belongs to.

    The column holds integers, truth values, text or bytes, dictionary-encoded or not. Rows without a value go to peer
    0. A batch whose rows all go to one peer is handed on uncopied, any other is copied once. Raises UnroutableKey
    when there is no such column, or it is of another type.
    """

    def pieces(batch: Tabular, peers: int) -> list[tuple[int, Tabular]]:
        if isinstance(batch, pa.Table):
            return _of_table(batch, column, peers)
        return _of_batch(batch, _keys(batch, column), peers)

    return pieces


def _of_table(table: pa.Table, column: str, peers: int) -> list[tuple[int, pa.Table]]:
    _keys(table.slice(0, 0), column)
    found: dict[int, list[pa.RecordBatch]] = {}
    for batch in table.to_batches():
        for peer, piece in _of_batch(batch, _keys(batch, column), peers):
            found.setdefault(peer, []).append(piece)
    return [(peer, pa.Table.from_batches(found[peer], table.schema)) for peer in sorted(found)]


def _keys(batch: Any, column: str) -> Any:
    """Return the column of keys. Raises UnroutableKey."""
    at = batch.schema.get_all_field_indices(column)
    if len(at) != 1:
        names = ", ".join(batch.schema.names) or "none"
        problem = f"{len(at)} columns have this name" if at else f"there is no such column; there are: {names}"
        raise UnroutableKey(key=f"the column {column!r}", problem=problem)
    kind = batch.schema.field(at[0]).type
    if not any(holds(kind.value_type if pa.types.is_dictionary(kind) else kind) for holds in _ROUTABLE):
        raise UnroutableKey(key=f"the column {column!r}", problem=f"it is of type {kind}")
    return batch.column(at[0])


_ROUTABLE: Final = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def _of_batch(batch: pa.RecordBatch, keys: pa.Array, peers: int) -> list[tuple[int, pa.RecordBatch]]:
    """Sort the rows by peer, stably, and cut: one copy, then slices of it."""
    to = _peers_of(keys, peers).astype(np.min_scalar_type(peers))
    counts = np.bincount(to, minlength=1)
    present = np.flatnonzero(counts).tolist()
    if len(present) < 2:
        return [(peer, batch) for peer in present]
    grouped = batch.take(pa.array(np.argsort(to, kind="stable")))
    starts = np.cumsum(counts) - counts
    return [(peer, grouped.slice(int(starts[peer]), int(counts[peer]))) for peer in present]


def _peers_of(keys: pa.Array, peers: int) -> npt.NDArray[np.int64]:
    """Return the peer of each key, as `records.worker_of` has it, 0 where there is none.

    In a longer column, text and bytes are hashed once for each different value.
    """
    kind = keys.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _remainders(keys, pa.uint64() if kind == pa.uint64() else pa.int64(), peers)
    if not pa.types.is_dictionary(kind):
        values = keys.cast(pa.large_binary())
        if len(values) <= FEW:
            return _crc32(values) % peers
        keys = values.dictionary_encode()
    values, indices = keys.dictionary, keys.indices
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        of_values = _peers_of(values, peers)
    else:
        of_values = _crc32(values.cast(pa.large_binary())) % peers
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(of_values))
        of_values = np.append(of_values, np.int64(0))
    found: npt.NDArray[np.int64] = of_values[indices.to_numpy()]
    return found


def _remainders(keys: pa.Array, kind: pa.DataType, peers: int) -> npt.NDArray[np.int64]:
    if keys.type != kind:
        keys = keys.cast(kind)
    if keys.null_count:
        keys = keys.fill_null(pa.scalar(0, kind))
    numbers: npt.NDArray[Any] = keys.to_numpy()
    remainders: npt.NDArray[Any] = numbers % numbers.dtype.type(peers)
    return remainders.astype(np.int64, copy=False)


def _steps() -> npt.NDArray[np.uint32]:
    """Return what one byte does to a CRC-32: eight divisions by the polynomial, bit by bit, for each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1)
    return table


_STEPS: Final = _steps()


def _crc32(values: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
    """Return the CRC-32 of each value, and 0, which is that of no bytes, for one that is missing."""
    if len(values) <= FEW:
        return np.array([crc32(value or b"") for value in values.to_pylist()], np.int64)
    _, bounds, content = values.buffers()
    offsets = np.frombuffer(bounds, np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(content or b"", np.uint8)
    lengths = np.diff(offsets)
    longest_first = np.argsort(LONG + 1 - np.minimum(lengths, LONG + 1).astype(np.uint8), kind="stable")
    at, ends = offsets[:-1][longest_first], np.minimum(lengths, LONG)[longest_first]
    crc = np.full(len(values), 0xFFFFFFFF, np.uint32)
    for byte in range(int(ends[0]) if len(ends) else 0):
        some = crc[: len(ends) - int(np.searchsorted(ends[::-1], byte, side="right"))]
        some[:] = _STEPS[(some ^ data[at[: len(some)] + byte]) & 0xFF] ^ (some >> 8)
    result = np.empty(len(values), np.int64)
    result[longest_first] = crc ^ 0xFFFFFFFF
    for row in np.flatnonzero(lengths > LONG).tolist():
        result[row] = crc32(data[offsets[row] + LONG : offsets[row + 1]].data, int(result[row]))
    if values.null_count:
        result[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return result
