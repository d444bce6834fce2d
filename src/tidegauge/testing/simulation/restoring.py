"""Putting the store back from an older backup and recovering it, as somebody does; drivers may run meanwhile.

The tables and upstream are ahead by then: they hold epochs, and have been told of epochs, that the backup lacks. The
command `recover` brings these back. It meets the world as a driver does: it may die, be slow, or hear no answer. It
is given again until it has succeeded.

    restore    somebody stops the flow first, and keeps it stopped until the store is recovered
    rewind     the store goes back under drivers that run, as when a server is put back. They go on for a while, and
               others start. Then somebody stops them and recovers the store

A driver that finds another store than it had, or than its tables were written with, ends and says so (`UNLIKE`). If
a table that is ahead cannot be opened, nothing tells it: it binds other epochs and writes them to the other tables.
Then `recover` refuses two histories, and the world ends: a person has to say which of them is right.

Invariant: while the store is recovered no driver runs, and none begins before the world knows what came of it.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidegauge.env import Env
from tidegauge.errors.history import (
    HistoriesDiffer,
    NothingToRecoverFrom,
    StoreBehindCompaction,
    StoreBehindTable,
    TablesDisagree,
)
from tidegauge.errors.store import StoreReplaced, UpperMismatch
from tidegauge.maintenance.recover import recover
from tidegauge.testing.simulation.commands import SimulatedFlow, given
from tidegauge.testing.simulation.life import Life
from tidegauge.testing.simulation.outside import ANSWERS

if TYPE_CHECKING:
    from tidegauge.testing.simulation.world import World

__all__ = ["UNLIKE", "keep_stopped", "misled", "restore", "rewind", "wait_for_others"]

UNLIKE: Final = (StoreBehindTable, StoreBehindCompaction, HistoriesDiffer, UpperMismatch, StoreReplaced)
"""What a driver ends with that finds another store than it had, or than its tables were written with."""

_UNTIL: Final = (0.0, 1.0, 7.0, 40.0)
"""Seconds for which drivers go on with the older store."""

_AGAIN: Final = 1.0
"""Seconds until somebody gives a command again that failed."""


def restore(world: World, *, after: float) -> None:
    """Take a backup; after some seconds stop the flow, put the backup back and recover it."""
    if (backup := _backup(world, after, leases=False)) is not None:
        keep_stopped(world)
        if _put_back(world, backup):
            _recover(world)
        else:
            world.down = False


def rewind(world: World, *, after: float) -> None:
    """Take a backup, with or without the leases; after some seconds put it back, and recover it some time later."""
    if (backup := _backup(world, after, leases=world.random.random() < 0.5)) is not None:
        if not _put_back(world, backup):
            return
        world.scheduler.sleep(world.random.choice(_UNTIL))
        keep_stopped(world)
        _recover(world)


def misled(world: World, life: Life) -> bool:
    """Whether a life ended because the store went back, or was recovered, under it or before it began."""
    if isinstance(life.error, TablesDisagree):
        unopened = (fault for fault in world.strikes.struck if fault.place.endswith((": open", ": sweep")))
        missed = world.checks.late.names or any(fault.kind in ANSWERS for fault in unopened)
        return world.checks.older and bool(missed)
    return isinstance(life.error, UNLIKE) and (world.checks.older or world.checks.era != life.era)


@dataclass(frozen=True, slots=True)
class _Backup:
    """A copy of the store. held: the outputs whose tables held something when it was taken."""

    store: sqlite3.Connection
    held: frozenset[str]


def _backup(world: World, after: float, *, leases: bool) -> _Backup | None:
    """Take a backup and wait; return None where it is not to be put back.

    That is where there is no store yet, where nothing goes wrong any more, or where another backup was put back
    meanwhile: this one is of the history before that. It has epochs that may be bound anew by now.
    """
    if not world.memory.ask("SELECT upper FROM flows"):
        return None
    wait_for_others(world)
    backup, era = _Backup(world.memory.backup(leases=leases), _held(world)), world.checks.era
    world.scheduler.sleep(after)
    wait_for_others(world)
    return None if world.healed or world.closing or world.checks.era != era else backup


def wait_for_others(world: World) -> None:
    """Wait until no transaction is under way, and nobody else puts the store back."""
    while _is_busy(world):  # somebody else does the same, and a third may be first after them
        world.scheduler.wait(lambda: not _is_busy(world))


def _is_busy(world: World) -> bool:
    return world.down or world.checks.older or world.memory.connection.in_transaction


def keep_stopped(world: World) -> None:
    """Keep the flow stopped from now on."""
    world.down = True
    for life in world.living():
        life.stop()
    world.scheduler.wait(lambda: not any(map(world.scheduler.count, world.lives)))


def _held(world: World) -> frozenset[str]:
    """The outputs whose tables hold something."""
    return frozenset(name for name in world.ground.spec.outputs if world.lake.upper(name))


def _put_back(world: World, backup: _Backup) -> bool:
    """Put the store back, and say so; not where a table was removed since, and holds nothing yet: the flow would wait
    for it until somebody has it repaired."""
    if backup.held - _held(world):
        return False
    world.memory.put_back(backup.store)
    world.checks.put_back(lambda source, place: world.upstreams[source].forget(place))
    world.codes.put_back()
    world.steering.follow(back=True)
    world.trace.note(world.clock.monotonic(), world.scheduler.running, "put back")
    return True


def _recover(world: World) -> None:
    """Recover the store, which nobody drives, and let drivers begin again."""
    world.checks.recovering()
    done, lacking = False, set[str]()
    while not done:
        command = given(world, _recovered, whole=True)
        world.scheduler.wait(command.is_gone)
        lacking |= command.without
        if isinstance(command.error, TablesDisagree):
            world.checks.parted()
            world.parted = True
            return
        done = command.over and command.error is None
        if not done:
            world.scheduler.sleep(_AGAIN)
    world.checks.recovered(lambda source, place: world.upstreams[source].forget(place), without=lacking)
    world.file_laws.forget()
    world.steering.follow()
    world.down = False


def _recovered(flow: SimulatedFlow, env: Env) -> None:
    """Recover the store; where no table holds anything, nothing is missing."""
    with suppress(NothingToRecoverFrom):
        recover(flow, env=env)
