"""How long a call takes, for calls too short to be timed one by one."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["per", "seconds"]


def per(function: Callable[[], object], *, times: int, turns: int) -> tuple[float, ...]:
    """Return the seconds a call takes, in several turns of `times` calls."""
    samples = []
    for _ in range(turns):
        begun = time.perf_counter()
        for _ in range(times):
            function()
        samples.append((time.perf_counter() - begun) / times)
    return tuple(samples)


def seconds(function: Callable[[], object]) -> float:
    """Return the seconds one call takes."""
    return per(function, times=1, turns=1)[0]
