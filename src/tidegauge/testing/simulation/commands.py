"""A command that somebody gives by hand, such as `resume` or `recover`, as a life of its own.

It meets the world as a driver does: it may die, be slow, or hear no answer. While another driver has the lease, it
is given again each second.

Invariant: a command that lost its patience has changed nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegauge.env import Env
from tidegauge.errors.store import FlowAlreadyRunning
from tidegauge.flow.spec import FlowSpec
from tidegauge.testing.simulation.life import Life

if TYPE_CHECKING:
    from tidegauge.testing.simulation.world import World

__all__ = ["SimulatedFlow", "given"]

_AGAIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class SimulatedFlow:
    """The flow that a command is given with: `Flow`, of one life."""

    spec: FlowSpec


def given(
    world: World, command: Callable[[SimulatedFlow, Env], object], *, patience: float = math.inf, whole: bool = False
) -> Life:
    """Give a command, for at most `patience` seconds while another driver has the lease, and return its life.

    whole: with all outputs, also with those that the flow is run without at present.
    """

    def work(life: Life) -> None:
        flow = SimulatedFlow(world.spec(life, whole=whole))
        until = world.clock.monotonic() + patience
        while world.clock.monotonic() < until:
            try:
                command(flow, life.env())
            except FlowAlreadyRunning:
                world.scheduler.sleep(_AGAIN)
            else:
                return

    return world.live(work)
