"""Which epochs the next job is for: a pure decision.

Outputs that follow live have one upper, and one job serves them all. After a crash between two commits, or when an
output is new, some are behind: they are served first, up to where the next ones stand, and then go on together. By
law 1 it makes no difference to any table how the epochs are cut into jobs.

>>> next_need({"a": 5, "b": 5}, limits={}, sealed=8)
Need(outputs=('a', 'b'), lower=5, upper=8)
>>> next_need({"a": 5, "b": 7}, limits={}, sealed=8)
Need(outputs=('a',), lower=5, upper=7)
>>> next_need({"a": 5, "b": 7}, limits={"a": 5}, sealed=8)
Need(outputs=('b',), lower=7, upper=8)
>>> next_need({"a": 8, "b": 8}, limits={}, sealed=8) is None
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Need", "next_need"]


@dataclass(frozen=True, slots=True)
class Need:
    """These outputs need the epochs `[lower, upper)`."""

    outputs: tuple[str, ...]
    lower: int
    upper: int


def next_need(uppers: Mapping[str, int], *, limits: Mapping[str, int], sealed: int) -> Need | None:
    """Return the next need, or None when no output is behind.

    uppers: the first epoch that each output lacks. limits: outputs that have failed, with the epoch at which they
    end. sealed: epochs before it are bound and complete.
    """
    behind = {o: u for o, u in uppers.items() if u < min(sealed, limits.get(o, sealed))}
    if not behind:
        return None
    lower = min(behind.values())
    group = tuple(o for o, u in behind.items() if u == lower)
    ends = [limits[o] for o in group if o in limits] + [u for u in behind.values() if u > lower]
    return Need(group, lower, min([sealed, *ends]))
