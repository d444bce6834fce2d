"""Ranges of pages: a table cut into parts that are read side by side, each by its own connection.

A server keeps a table in pages, and a row has a place in one of them, its `ctid`. The condition `ctid >= '(8192,0)'
AND ctid < '(16384,0)'` makes the server read these pages and no others, without an index and whatever the key is.

Invariant: each page is in exactly one range, also one that is added while ranges are read: the last has no end.

>>> page_ranges(20_000, 8192)
(PageRange(lower=0, upper=8192), PageRange(lower=8192, upper=16384), PageRange(lower=16384, upper=None))
>>> page_ranges(0, 8192)
(PageRange(lower=0, upper=None),)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["RANGE_BYTES", "PageRange", "page_ranges"]

RANGE_BYTES: Final = 64 << 20
"""Bytes of a table's pages in a range: about a second's work."""


@dataclass(frozen=True, slots=True)
class PageRange:
    """Pages of a table, from `lower` up to `upper`, which is exclusive; None for all that follow."""

    lower: int
    upper: int | None

    @property
    def conditions(self) -> tuple[str, ...]:
        """What the `ctid` of its rows fulfils, as SQL.

        >>> PageRange(8, None).conditions, PageRange(0, None).conditions
        (("ctid >= '(8,0)'",), ())
        """
        lower = (f"ctid >= '({self.lower},0)'",) if self.lower else ()
        return lower if self.upper is None else (*lower, f"ctid < '({self.upper},0)'")


def page_ranges(pages: int, most: int) -> tuple[PageRange, ...]:
    """Return the ranges of a table that has this number of pages now. most: pages of a range."""
    starts = range(0, max(pages, 1), most)
    return tuple(PageRange(one, one + most if one + most < pages else None) for one in starts)
