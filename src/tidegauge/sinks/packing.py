"""Which small files of a table are packed together: a pure decision about the sizes of files in a row.

A pack is of neighbours, so what files say of their ends (`_epoch`, or a key) stays as narrow as it was. It is only
worth its work where it makes rows cheaper to find for good:

Law (growth): **a file is packed only into one of at least four times its rows.** So a row is written again at most
log4(n) times, where n is how often a table has the rows of the file that the row came in; and this whatever is packed
when. A table that gets a small file with every epoch keeps a few of each size, as the runs of an LSM tree.

Invariant: packs are of two files at least, in order, none of a file twice; and none is larger than the target, by
what its files have now.

>>> small = [FileSize(rows=3, bytes=2_000)] * 1_000
>>> packs(small, target=TARGET)
[range(0, 1000)]
>>> packs([FileSize(3_000, 50_000), *small[:500]], target=TARGET)
[range(1, 501)]
>>> packs([FileSize(3_000, 50_000), FileSize(9, 2_000), *small[:2]], target=TARGET)
[]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["GROWTH", "TARGET", "FileSize", "packs"]

TARGET: Final = 128 << 20
"""How large a file is made, in bytes: half of what a task of a flow writes into one."""
GROWTH: Final = 4


class FileSize(NamedTuple):
    """How much a file holds."""

    rows: int
    bytes: int


def packs(sizes: Sequence[FileSize], *, target: int) -> list[range]:
    """Return which files to pack together, by their places in a table's order.

    From each file on, the longest pack that obeys the law is taken.
    """
    found: list[range] = []
    start = 0
    while start < len(sizes):
        stop = _longest(sizes, start, target)
        if stop - start > 1:
            found.append(range(start, stop))
        start = stop
    return found


def _longest(sizes: Sequence[FileSize], start: int, target: int) -> int:
    """Return where the longest pack from a file on ends; the next place if there is none."""
    rows = stored = most = 0
    found = start + 1
    for place in range(start, len(sizes)):
        one = sizes[place]
        weight = max(one.rows, 1)
        rows, stored, most = rows + weight, stored + one.bytes, max(most, weight)
        if stored > target:
            break
        if rows >= GROWTH * most:
            found = place + 1
    return found
