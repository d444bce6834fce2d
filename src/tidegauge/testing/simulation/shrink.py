"""The shortest life that still fails: acts and faults are left out of a plan as long as the same law breaks.

What cannot matter goes first, all at once: faults that never struck, and what others did after the law broke. The
rest is delta debugging (Zeller and Hildebrandt, 2002): leave out halves, then quarters, down to single things, and
begin again with the rest. A thing that is left out changes the course of events. So a plan that fails for another
reason, or not at all, is no step, and the result is the shortest that was found, not the shortest there is.

Invariant: the returned plan fails as the given one did.

>>> smallest([1, 2, 3, 4, 5, 6, 7, 8], lambda kept: 3 in kept and 8 in kept, most=100)
[3, 8]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tidegauge.testing.simulation.plan import Fault, Plan

__all__ = ["TRIES", "FailedPlan", "shortest", "smallest"]

TRIES: Final = 300
"""How many lives are tried at most, for one that failed."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FailedPlan:
    """A plan that was carried out until a law broke. at: when that was. struck: the faults that came to pass."""

    plan: Plan
    at: float
    struck: tuple[Fault, ...]

    def needed(self) -> Plan:
        """Return the plan without faults that did not strike, and without acts that came later."""
        acts = tuple(act for act in self.plan.acts if act.at <= self.at)
        return replace(
            self.plan, acts=acts, faults=tuple(fault for fault in self.plan.faults if fault in self.struck)
        )


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


def shortest(
    failed: FailedPlan,
    tried: Callable[[Plan], FailedPlan | None],
    *,
    most: int = TRIES,
    after: Callable[[FailedPlan], None] = lambda _shorter: None,
) -> Plan:
    """Return a plan that fails as this one does, with as few acts and faults as were found to be enough.

    tried: how a plan fails; None where it does not, or otherwise. after: is told each plan that is shorter.
    """
    best = failed

    def fails(plan: Plan) -> bool:
        nonlocal best
        found = None if plan == best.plan else tried(plan)
        if found is not None:
            best = found
            after(found)
        return found is not None

    def trim() -> None:
        fails(best.needed())
        last = max((act.at for act in best.plan.acts), default=0.0)
        for ends in (last + 1.0, best.at):
            if ends < best.plan.ends and fails(replace(best.plan, ends=round(ends, 3))):
                break

    fails(replace(best.plan, calm=True))
    trim()
    smallest(best.plan.faults, lambda kept: fails(best.plan.with_faults(kept)), most=most // 3)
    trim()
    smallest(best.plan.acts, lambda kept: fails(best.plan.with_acts(kept)), most=most)
    trim()
    return best.plan
