"""Letting the flow's history go, as somebody does with `tidegauge compact` while no driver runs.

An operator stops the drivers and compacts in two steps, each as far as may be. The command meets the world as a
driver does: it may die, be slow, or hear no answer; then it is given again. Readers who need an old epoch come in
that very moment, too. What compaction may not take, and what it has to leave as it was, the ledger looks at.

Invariant: it goes no further than it was told.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegauge.errors.command import FlowNeverRan
from tidegauge.errors.store import FlowAlreadyRunning, SinceHeld
from tidegauge.maintenance.compact import compact
from tidegauge.testing.simulation.ground import GivenFlow
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.life import Life

if TYPE_CHECKING:
    from tidegauge.testing.simulation.world import World

__all__ = ["let_go"]

_TRIES: Final = 3
_AGAIN: Final = 1.0
_SOMEBODY: Final = 0.6
"""How likely it is that a reader comes right before the command, and another one while it is under way."""
_MOMENT: Final = 0.01
"""Seconds that the latter has between the command's look at the holds and its transaction."""
_STAYS: Final = 5.0
"""Seconds that these hold an epoch."""
_PATIENCE: Final = 90.0
"""Seconds that the command is given again and again while a driver has the lease."""


def let_go(world: World) -> None:
    """Stop the drivers and compact, at most as far as epochs are published."""
    for _ in range(_TRIES):
        if world.healed or world.closing or world.down or not world.ledger.published:
            return
        if world.random.random() < _SOMEBODY:
            world.readers.come(_STAYS)
        for driver in world.living():
            driver.stop()
        command = world.live(partial(_compact, world=world))
        world.scheduler.wait(command.is_gone)
        if command.over and command.error is None:
            return
        world.scheduler.sleep(_AGAIN)


def _compact(life: Life, *, world: World) -> None:
    ledger, random = world.ledger, world.random
    flow, until = GivenFlow(world.spec(life)), world.clock.monotonic() + _PATIENCE
    steps = sorted(random.randrange(ledger.since, max(ledger.published, ledger.since) + 2) for _ in range(2))

    before = ledger.since

    def meet(place: str) -> None:
        nonlocal before
        life.meet(place)
        if place == "after acquire lease":
            before = ledger.since  # another operator may have been first
        if place == "before advance since" and random.random() < _SOMEBODY:
            world.readers.come(_STAYS)
            world.scheduler.sleep(_MOMENT)

    env = replace(life.env(), point=meet)
    while steps:
        try:
            done = compact(flow, before=steps[0], env=env)
        except FlowAlreadyRunning:
            if world.clock.monotonic() >= until:
                return
            world.scheduler.sleep(_AGAIN)
        except SinceHeld:
            continue  # somebody came first
        except FlowNeverRan:
            return
        else:
            if done.since > max(before, steps[0]) or (done.since < steps[0] and not done.kept):
                raise Broken("compaction goes as far as it was told, or says why not", str(done))
            steps.pop(0)
