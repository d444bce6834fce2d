"""One tick of the flow: every source is asked once how far it is, and answers once.

Invariant: a round ends when every source that was asked has answered, or at its deadline; a source that did not
answer keeps its frontier and the others go on. An answer costs the same, however many sources there are.

>>> tick = Round(number=1, deadline=10.0, awaited={"orders", "clicks"})
>>> tick.answered("orders")
>>> tick.over(now=3.0), tick.over(now=10.0)
(False, True)
>>> tick.answered("clicks")
>>> tick.over(now=3.0)
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Bound, Observation

__all__ = ["Answer", "Asking", "Failure", "Round"]


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks sources to probe, and tells them what is durably bound of each."""

    number: int
    bounds: Mapping[str, Bound]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a source answered to a tick: an observation, or the error that kept it from making one.

    attempt: how many of these there were in a row.
    """

    source: str
    tick: int
    observed: Observation | None = None
    error: TidegaugeError | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """An error at an epoch: of a source (`output` is None), or of one output of it only.

    Where it is definite, nothing of the epoch or later is given to the outputs that it concerns.
    """

    source: str
    output: str | None
    epoch: int
    error: TidegaugeError


@dataclass(slots=True)
class Round:
    """One tick and who has not answered to it yet; the set is the round's own."""

    number: int
    deadline: float
    awaited: set[str]

    def answered(self, source: str) -> None:
        """Wait for this source no more."""
        self.awaited.discard(source)

    def over(self, *, now: float) -> bool:
        """Whether there is nobody left to wait for."""
        return not self.awaited or now >= self.deadline
