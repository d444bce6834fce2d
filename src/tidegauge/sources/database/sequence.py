"""The column that orders the changes of a database's log, for the `order` of tables by key.

Invariant: of two changes the later one has the greater number, also within a transaction, whatever the database.

>>> sequence(np.array([1, 2**40]), np.array([3, 0]), bits=40).to_pylist() == [2**40 + 3, 2**80]
True
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = ["SEQUENCE", "SEQUENCE_TYPE", "first_rows", "sequence"]

SEQUENCE: Final = "_sequence"
SEQUENCE_TYPE: Final = pa.decimal128(38, 0)


def sequence(places: Any, within: Any, *, bits: int) -> Any:
    """Return the values of `_sequence`: the place of the transaction times 2**bits, plus where in it the change is.

    places: below 2**63. within: below 2**bits.
    """
    halves = np.empty((len(places), 2), np.uint64)
    unsigned = np.asarray(places).astype(np.uint64)
    halves[:, 0] = (unsigned << np.uint64(bits)) | np.asarray(within).astype(np.uint64)
    halves[:, 1] = unsigned >> np.uint64(64 - bits)
    return pa.Array.from_buffers(SEQUENCE_TYPE, len(places), [None, pa.py_buffer(halves.tobytes())])


def first_rows(place: int, numbers: Any, *, bits: int) -> Any:
    """Return `_sequence` of first rows by their numbers: distinct values, all below those of later changes.

    Where one place has no more numbers the rows go on at the place before: no change there is one of this table.

    >>> first_rows(7, np.array([2, 255, 256]), bits=8).to_pylist() == [7 * 256 + 2, 7 * 256 + 255, 6 * 256]
    True
    """
    counted = np.asarray(numbers).astype(np.int64)
    return sequence(place - (counted >> bits), counted & ((1 << bits) - 1), bits=bits)
