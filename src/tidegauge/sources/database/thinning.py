"""Of a growing row of notes, enough to go by: all that are new, and of the old ones fewer and fewer.

>>> thinned(range(65))[-35:-30]
[28, 30, 32, 33, 34]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

__all__ = ["thinned"]

_MOST: Final = 64
T = TypeVar("T")


def thinned(notes: Sequence[T]) -> list[T]:
    """Return notes, at most `_MOST`: the first and the last ones stay, of the others every second one."""
    if len(notes) <= _MOST:
        return list(notes)
    half = _MOST // 2
    return [*notes[:half:2], *notes[half:]]
