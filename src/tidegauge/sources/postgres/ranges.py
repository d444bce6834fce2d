"""Ranges of pages: a table cut into parts that are read side by side, each by its own connection.

A server keeps a table in pages, and a row has a place in one of them, its `ctid`. The condition `ctid >= '(8192,0)'
AND ctid < '(16384,0)'` makes the server read these pages and no others, without an index and whatever the key is.

A server before 14 reads the whole table for that. Where this would be often, its rows are asked for place by place:
`ctid = ANY (...)` with every place that a row can have in these pages reads them alone. It takes about as long as
to read 2 GB, so smaller tables are not read so.

Invariant: each page is in exactly one range, also one that is added while ranges are read: the last has no end.

>>> page_ranges(20_000, 8192)
(PageRange(lower=0, upper=8192), PageRange(lower=8192, upper=16384), PageRange(lower=16384, upper=None))
>>> page_ranges(0, 8192)
(PageRange(lower=0, upper=None),)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["RANGE_BYTES", "PageRange", "conditions", "page_ranges", "places_of"]

RANGE_BYTES: Final = 64 << 20
"""Bytes of a table's pages in a range: about a second's work."""
_SCANS_RANGES: Final = 140000
"""The version from which on a server reads a range of pages alone."""
_FEW: Final = 32
"""Ranges of a table up to which the whole of it is read for each, by a server that knows no better."""
_MOST: Final = 16384
"""Pages that are asked for place by place at once: 29 MB of memory at the server."""
_PLACES: Final = (
    "ctid = ANY (ARRAY(SELECT ('(' || p || ',' || o || ')')::tid "
    "FROM generate_series({}, {}) p, generate_series(1, {}) o))"
)
_HEAD: Final = 24
_ROW: Final = 28
"""Bytes of the head of a page, and of the smallest row with its entry there."""


@dataclass(frozen=True, slots=True)
class PageRange:
    """Pages of a table, from `lower` up to `upper`, which is exclusive; None for all that follow."""

    lower: int
    upper: int | None


def page_ranges(pages: int, most: int) -> tuple[PageRange, ...]:
    """Return the ranges of a table that has this number of pages now. most: pages of a range."""
    starts = range(0, max(pages, 1), most)
    return tuple(PageRange(one, one + most if one + most < pages else None) for one in starts)


def places_of(ranges: int, block: int, version: int) -> int:
    """Return how many rows have a place in a page, if they are to be asked for place by place; else 0.

    ranges: of the table. block: bytes of a page. version: `server_version_num`.

    >>> places_of(33, 8192, 130022), places_of(32, 8192, 130022), places_of(33, 8192, 140000)
    (291, 0, 0)
    """
    return (block - _HEAD) // _ROW if version < _SCANS_RANGES and ranges > _FEW else 0


def conditions(part: PageRange, pages: int, places: int = 0) -> tuple[str, ...]:
    """Return what the `ctid` of a range's rows fulfils, as SQL. pages: that the table has. places: see `places_of`.

    >>> conditions(PageRange(8, None), 9), conditions(PageRange(0, None), 9)
    (("ctid >= '(8,0)'",), ())
    >>> conditions(PageRange(0, 8), 9, 291)[0][:60]
    "ctid = ANY (ARRAY(SELECT ('(' || p || ',' || o || ')')::tid "
    """
    upper = max(pages, part.lower + 1) if part.upper is None else part.upper
    if places and upper - part.lower <= _MOST:
        return (_PLACES.format(part.lower, upper - 1, places),)
    lower = (f"ctid >= '({part.lower},0)'",) if part.lower else ()
    return lower if part.upper is None else (*lower, f"ctid < '({part.upper},0)'")
