"""One tick of the flow: every source is asked once how far it is, and answers once.

Invariant: a round ends when every source that was asked has answered, or at its deadline; a source that did not
answer keeps its frontier and the others go on.

>>> tick = Round(number=1, deadline=10.0, asked=frozenset({"orders", "clicks"}))
>>> tick = tick.answered("orders")
>>> tick.over(now=3.0), tick.over(now=10.0), tick.answered("clicks").over(now=3.0)
(False, True, True)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegauge.errors.base import TidegaugeError
from tidegauge.remap.binding import Bound, Probe

__all__ = ["Answer", "Failed", "Round", "Tick"]


@dataclass(frozen=True, slots=True)
class Tick:
    """Asks a source's reader to probe, and tells it what is durably bound."""

    number: int
    bound: Bound


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reader answered to a tick: a probe, or the error that kept it from probing (`attempt` counts them)."""

    source: str
    tick: int
    probe: Probe | None = None
    error: TidegaugeError | None = None
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """A source has failed for good: nothing of `epoch` or later is given to its outputs."""

    source: str
    epoch: int
    error: TidegaugeError


@dataclass(frozen=True, slots=True)
class Round:
    """Who was asked in a tick, and who has not answered yet."""

    number: int
    deadline: float
    asked: frozenset[str]

    def answered(self, source: str) -> Round:
        """Return the round without this source among those to wait for."""
        return replace(self, asked=self.asked - {source})

    def over(self, *, now: float) -> bool:
        """Whether there is nobody left to wait for."""
        return not self.asked or now >= self.deadline
