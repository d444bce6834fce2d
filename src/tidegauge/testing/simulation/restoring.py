"""Putting the store back from an older backup and recovering it, as somebody does while no driver runs.

The tables and upstream are ahead by then: they hold epochs, and have been told of epochs, that the backup lacks. So
the flow is kept stopped until `recover` has brought these back. The command meets the world as a driver does: it may
die, be slow, or hear no answer. It is given again until it has succeeded.

Invariant: from the instant at which the store goes back, no driver runs until the store has what the tables hold.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tidegauge.env import Env
from tidegauge.errors.history import NothingToRecoverFrom
from tidegauge.maintenance.recover import recover
from tidegauge.testing.simulation.commands import SimulatedFlow, given

if TYPE_CHECKING:
    from tidegauge.testing.simulation.world import World

__all__ = ["restore"]

_AGAIN: Final = 1.0
"""Seconds until somebody gives a command again that failed."""


def restore(world: World, *, after: float) -> None:
    """Take a backup; after some seconds stop the flow, put the backup back and recover it.

    Nothing is done where there is no store yet, where nothing goes wrong any more, or where another backup was put
    back meanwhile: this one is of the history before that. It has epochs that may be bound anew by now.
    """
    scheduler = world.scheduler
    if not world.memory.ask("SELECT upper FROM flows"):
        return
    scheduler.wait(lambda: not world.memory.connection.in_transaction)
    backup, lives = world.memory.backup(), world.memory.lives
    scheduler.sleep(after)
    while world.down:  # somebody else does the same, and a third may be first after them
        scheduler.wait(lambda: not world.down)
    if world.healed or world.closing or world.memory.lives != lives:
        return
    world.down = True
    for life in world.living():
        life.stop()
    scheduler.wait(lambda: not any(map(scheduler.count, world.lives)))
    world.checks.put_back()
    world.memory.put_back(backup)
    world.trace.note(world.clock.monotonic(), scheduler.running, "put back")
    done = False
    while not done:
        command = given(world, _recover)
        scheduler.wait(command.is_gone)
        done = command.over and command.error is None
        if not done:
            scheduler.sleep(_AGAIN)
    for source, place in world.checks.recovered():
        world.upstreams[source].forget(place)
    world.file_laws.forget()
    world.down = False


def _recover(flow: SimulatedFlow, env: Env) -> None:
    """Recover the store; where no table holds anything, nothing is missing."""
    with suppress(NothingToRecoverFrom):
        recover(flow, env=env)
