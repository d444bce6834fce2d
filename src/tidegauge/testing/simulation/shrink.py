"""The shortest life that still fails: acts and faults are left out of a plan as long as the same law breaks.

The algorithm is delta debugging (Zeller and Hildebrandt, 2002): leave out halves, then quarters, down to single
things, and begin again with the rest. A thing that is left out changes the course of events. So a plan that fails for
another reason, or not at all, is no step, and the result is the shortest that was found, not the shortest there is.

Invariant: the returned plan fails as the given one did.

>>> smallest([1, 2, 3, 4, 5, 6, 7, 8], lambda kept: 3 in kept and 8 in kept, most=100)
[3, 8]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from tidegauge.testing.simulation.plan import Plan

__all__ = ["TRIES", "shortest", "smallest"]

TRIES: Final = 300
"""How many lives are tried at most, for one that failed."""

_T = TypeVar("_T")


def smallest(things: Sequence[_T], fails: Callable[[list[_T]], bool], *, most: int) -> list[_T]:
    """Return things that still fail together, after at most `most` questions. All of them do."""
    kept, size, asked = list(things), max(1, len(things) // 2), 0
    while kept and asked < most:
        begin, shorter = 0, False
        while begin < len(kept) and asked < most:
            left = kept[:begin] + kept[begin + size :]
            asked += 1
            if fails(left):
                kept, shorter = left, True
            else:
                begin += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return kept


def shortest(plan: Plan, fails: Callable[[Plan], bool], *, most: int = TRIES) -> Plan:
    """Return a plan that fails as this one does, with as few acts and faults as were found to be enough."""
    calm = replace(plan, calm=True)
    if fails(calm):
        plan = calm
    plan = plan.with_faults(smallest(plan.faults, lambda kept: fails(plan.with_faults(kept)), most=most // 3))
    plan = plan.with_acts(smallest(plan.acts, lambda kept: fails(plan.with_acts(kept)), most=most))
    last = max((act.at for act in plan.acts), default=0.0)
    sooner = replace(plan, ends=round(last + 1.0, 3))
    return sooner if sooner.ends < plan.ends and fails(sooner) else plan
