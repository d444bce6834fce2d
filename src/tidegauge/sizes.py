"""Sizes as people write them: a number with a unit, as Spark and Delta read theirs.

A kB is 2^10 bytes, an MB 2^20, a GB 2^30, a TB 2^40; so are k, m, g and t, and KiB, MiB, GiB and TiB. Upper and lower
case are the same.

Invariant: a text has one meaning, whichever option it is given to.

>>> bytes_of("64MB"), bytes_of("64m"), bytes_of("1.5 KiB"), bytes_of("7B")
(67108864, 67108864, 1536, 7)
>>> bytes_of("64"), bytes_of("64 parsecs")
(None, None)
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["bytes_of"]

_SIZE: Final = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*(?:([kmgt])(?:i?b)?|b)\s*", re.IGNORECASE | re.ASCII)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def bytes_of(text: str) -> int | None:
    """Return how many bytes a size is, None where the text is none."""
    found = _SIZE.fullmatch(text)
    return None if found is None else int(float(found[1]) * _UNITS[(found[2] or "").lower()])
