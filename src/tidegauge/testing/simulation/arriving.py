"""The end of a world: nothing goes wrong any more, everything arrives before long, and the drivers stop.

    first     all commands have come to their end, and no limit stands: all but paused outputs arrive
    then      no output is paused: all arrive
    last      the drivers are told to stop, and do; readers let go

Invariant: what does not come to pass within `PATIENCE` breaks a law.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from tidegauge.testing.simulation.clock import RIGHT
from tidegauge.testing.simulation.lateness import held_back
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.resuming import resumable
from tidegauge.testing.simulation.steering import have_heard, let_all_go_on, lift_limit

if TYPE_CHECKING:
    from tidegauge.testing.simulation.world import World

__all__ = ["PATIENCE", "cease"]

PATIENCE: Final = 240.0
"""Virtual seconds after the last fault, within which everything is in every table: a pause of a minute, a lease that
has to run out, and the longest delay before something is tried again, each twice."""


def cease(world: World) -> None:
    """Let nothing go wrong from now on, and end when everything has arrived and the drivers have stopped."""
    world.note("from here on nothing goes wrong")
    world.healed, world.strikes.full_until = True, 0.0
    for upstream in world.upstreams.values():
        upstream.set_away(False)
    for life in world.lives:
        life.skew = RIGHT
    world.missing.clear()
    world.take_in()  # now, and again whenever somebody looks after the drivers
    _end(world)


def _end(world: World) -> None:
    """Wait until everything has arrived, and then for the drivers, which are told to stop."""
    if world.steering.watched:
        _expect(world, lambda: not world.steering.under_way, "a command of somebody's comes to its end")
        lift_limit(world)
        _expect(world, lambda: _has_arrived(world, but=world.steering.paused), "a paused output holds nobody")
        let_all_go_on(world)
    law = "everything arrives once nothing goes wrong any more"
    _expect(world, lambda: have_heard(world.living()) and _has_arrived(world), law)
    world.closing = True
    world.lingering = {life.name for life in world.lives if life.is_gone() and world.scheduler.count(life)}
    for life in world.lives:
        life.stop()
    _expect(world, lambda: not world.living(), "a driver that is told to stop does")
    world.readers.clear()
    _expect(world, lambda: not world.readers.here, "a reader lets go of what it holds")
    _expect(
        world,
        lambda: not any(map(world.scheduler.count, world.lives)),
        "nothing of a driver goes on after its end",
    )
    world.over = True


def _has_arrived(world: World, *, but: Collection[str] = ()) -> bool:
    waits = (
        resumable(world)
        or world.left_behind
        or world.codes.waiting(but=held_back(world.ground.spec, world.ledger, but))
    )
    looking = any(life.binding for life in world.living()) or any(world.file_laws.untold())
    settled = not (waits or looking)
    return settled and world.checks.caught_up(but=but) and _is_driven(world)


def _is_driven(world: World) -> bool:
    """Whether a driver has opened the flow, and so can end it in order; or nothing is left to do.

    The last one may have stopped while it could not give its lease back.
    """
    return world.closing or any(
        life.runner is not None and life.without <= world.checks.late.shut_out for life in world.living()
    )


def _expect(world: World, so: Callable[[], bool], law: str) -> None:
    until = world.clock.monotonic() + PATIENCE
    while not so():
        if world.clock.monotonic() > until:
            raise Broken(law, world.checks.state())
        world.scheduler.sleep(0.5)
