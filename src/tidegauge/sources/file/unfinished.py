"""Compressed files that cannot be read to their end, and may yet be: they are waited for, and not bound.

A file that is being written, or copied, ends in the middle of its data or has zeros in it. So has one that was
damaged, and only time tells the two apart. Bound, it would fail its source, and what is bound stays bound; so it is
looked through before. That costs as much as decompressing it, which is why older files are not.

Invariant: a file is waited for while it has a flaw and was modified less than `PATIENCE` ago. One that is older is
bound as it is, and reading it says what is wrong with it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tidegauge.sources.file.identity import Seen
from tidegauge.sources.file.opening import opened
from tidegauge.sources.formats.gzip import flaw

__all__ = ["PATIENCE", "awaited"]

PATIENCE: Final = 3600 * 10**9
"""Nanoseconds."""


def awaited(seen: Seen, *, now: int) -> str:
    """Return why a compressed file is waited for; nothing when it is not."""
    return _flaw(seen) if now - seen.modified < PATIENCE else ""


@lru_cache(maxsize=1024)
def _flaw(seen: Seen) -> str:
    """Return the flaw of a file as it was seen: kept, so that one which does not change is looked through once."""
    try:
        with opened(seen.path) as stream:
            return flaw(stream) if Seen.of(seen.path, stream.fileno()) == seen else "it was replaced just now"
    except FileNotFoundError:
        return "it was moved just now"
