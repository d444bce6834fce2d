"""Dealing splits to tasks: the longest first, each to the task that has least (LPT).

Graham's bound (R. L. Graham, 1969): the heaviest task has at most 4/3 of the least possible. A small job is one task,
because a task's fixed cost is more than a megabyte's.

>>> from tidegauge.engine.packing import deal
>>> deal([8_000_000, 1_000_000, 5_000_000, 6_000_000], tasks=2)
[[0, 1], [3, 2]]
>>> deal([10, 20, 30], tasks=8)
[[2, 1, 0]]
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

__all__ = ["TINY", "deal"]

TINY: Final = 1 << 20
"""Bytes for which a further task is not worth its start."""


def deal(weights: Sequence[int], *, tasks: int) -> list[list[int]]:
    """Return the indices of `weights` as at least one and at most `tasks` groups; none is empty unless all are."""
    wanted = min(tasks, len(weights), sum(weights) // TINY + 1)
    groups: list[list[int]] = [[] for _ in range(max(1, wanted))]
    loads = [(0, group) for group in range(len(groups))]
    for index in sorted(range(len(weights)), key=lambda i: -weights[i]):
        load, group = heapq.heappop(loads)
        groups[group].append(index)
        heapq.heappush(loads, (load + max(1, weights[index]), group))
    return groups
