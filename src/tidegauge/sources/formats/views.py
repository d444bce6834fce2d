r"""Many pieces of one text become an array at once, without a step for each.

An Arrow view is sixteen bytes: the length, and then either up to twelve bytes, or the first four, the number of a
buffer and the offset in it. So nothing of a long piece is touched here, and Arrow copies it once.

Invariant: piece `i` is `data[starts[i] : starts[i] + lengths[i]]`. `data` ends with `PADDING`, which is in no piece.

>>> text = b"tide gauge" + PADDING
>>> sliced(text, np.array([0, 5]), np.array([4, 5])).to_pylist()
[b'tide', b'gauge']
>>> array, bad = as_text(pa.array([b"tide", b"\xff"]))
>>> array.to_pylist(), bad.tolist()
(['tide', None], [False, True])
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegauge.sources.formats.boundaries import Ints
from tidegauge.sources.formats.gather import Refused, in_pieces
from tidegauge.sources.formats.records import Mask

__all__ = ["PADDING", "as_text", "sliced"]

PADDING: Final = b"\0" * 16
_INLINE: Final = 12


def sliced(data: bytes, starts: Ints, lengths: Ints) -> Any:
    """Return pieces of `data`, which is less than 2 GiB, as an array of bytes."""
    views = np.zeros((len(starts), 4), "<i4")
    views[:, 0] = lengths
    head = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), _INLINE)[starts]
    head[np.arange(_INLINE) >= lengths[:, None]] = 0
    views[:, 1:] = head.view("<i4")
    long = np.flatnonzero(lengths > _INLINE)
    views[long, 2] = 0
    views[long, 3] = starts[long]
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers).cast(pa.binary())


def as_text(array: Any) -> tuple[Any, Mask]:
    """Return bytes as strings, and which of them are no UTF-8; those are null."""
    bad = np.zeros(len(array), np.bool_)
    found: list[Any] = []

    def take(i: int, j: int) -> None:
        try:
            found.append(array.slice(i, j - i).cast(pa.string()))
        except pa.ArrowInvalid as error:
            raise Refused("") from error

    def refuse(i: int, _refusal: Refused) -> None:
        bad[i] = True
        found.append(pa.nulls(1, pa.string()))

    in_pieces(len(array), take, refuse)
    return found[0] if len(found) == 1 else pa.concat_arrays([pa.array([], pa.string()), *found]), bad
