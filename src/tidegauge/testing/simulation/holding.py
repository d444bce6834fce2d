"""Readers who hold an epoch while they read all tables, beside drivers that come and go.

A reader holds an epoch, reads every table as of it and of later ones, again and again, and lets go. Its calls meet
the world as a driver's do: it may die, or not hear that it holds. Somebody releases a hold whose
owner is gone.

    while it is held       every table can be read as of the epoch and of later ones, and is the same each time
    when it is refused     the epoch was compacted away

Invariant: when all readers are gone, none of them holds anything.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tidegauge.errors.base import TidegaugeError, Transient
from tidegauge.errors.flow import UnknownName
from tidegauge.errors.store import HoldNotBound, HoldTooEarly
from tidegauge.looking.view import view_of
from tidegauge.maintenance.compact import hold, release
from tidegauge.testing.simulation.ground import GivenFlow
from tidegauge.testing.simulation.ledger import Broken
from tidegauge.testing.simulation.life import Life

if TYPE_CHECKING:
    from tidegauge.testing.simulation.world import World

__all__ = ["Readers"]

_BEFORE: Final = 2
"""How many epochs that are compacted away readers ask for, too."""
_LOOKS: Final = (0.3, 1.0, 4.0)
_FOUND: Final = (0.0, 1.0, 8.0)
"""Seconds until somebody finds a hold without its owner."""


class Readers:
    """The readers of a world. here: how many there are, and those who release what others left."""

    def __init__(self, world: World) -> None:
        self.here = 0
        self.lives: Final[list[Life]] = []
        self._world: Final = world
        self._owners: Final[list[str]] = []

    def come(self, seconds: float) -> None:
        """Let a reader come who holds an epoch for a while.

        Nobody does before one is published, nor while the store that was put back knows less than is.
        """
        world = self._world
        if not world.ledger.published or world.down:
            return
        self._owners.append(owner := f"reader {len(self._owners)}")
        epoch = world.random.randrange(max(0, world.ledger.since - _BEFORE), world.ledger.published)
        work = partial(_read, world=world, owner=owner, epoch=epoch, era=world.checks.era, seconds=seconds)
        world.scheduler.begin("reader", lambda: self._stay(owner, work))
        self.here += 1

    def clear(self) -> None:
        """Release what readers hold that are gone: a store that was put back has holds of its time."""
        self.here += 1
        for owner in self._owners:
            self._let_go(owner)
        self.here -= 1

    def _stay(self, owner: str, work: partial[None]) -> None:
        world = self._world
        life = self._begin(work)
        world.scheduler.wait(life.is_gone)
        if self._holds(owner):
            world.scheduler.sleep(world.random.choice(_FOUND))
        self._let_go(owner)
        self.here -= 1

    def _let_go(self, owner: str) -> None:
        while self._holds(owner):
            life = self._begin(partial(_release, world=self._world, owner=owner))
            self._world.scheduler.wait(life.is_gone)

    def _holds(self, owner: str) -> bool:
        return bool(self._world.memory.ask("SELECT epoch FROM holds WHERE owner = ?", owner))

    def _begin(self, work: partial[None]) -> Life:
        self.lives.append(life := Life(self._world, f"R{len(self.lives)}", work))
        return life


def _release(life: Life, *, world: World, owner: str) -> None:
    try:
        release(GivenFlow(world.spec(life)), owner, env=life.env())
    except UnknownName:
        return  # another did it, and did not hear of it
    except Transient:
        world.scheduler.sleep(min(_LOOKS))


def _read(life: Life, *, world: World, owner: str, epoch: int, era: int, seconds: float) -> None:
    """Hold an epoch and read all tables for some seconds. era: of the store when the epoch was chosen."""
    flow, until = GivenFlow(world.spec(life)), world.clock.monotonic() + seconds
    try:
        hold(flow, owner, epoch, env=life.env())
    except (HoldTooEarly, HoldNotBound) as refused:
        if era == world.checks.era and epoch >= world.ledger.since:
            raise Broken("an epoch that can be told apart can be held", str(refused)) from refused
        return
    while era == world.checks.era:  # a store that was put back may not know of the hold
        _look(life, flow, world, owner, epoch, era)
        if world.healed or world.clock.monotonic() >= until:
            break
        world.scheduler.sleep(world.random.choice(_LOOKS))
    _release(life, world=world, owner=owner)


def _look(life: Life, flow: GivenFlow, world: World, owner: str, epoch: int, era: int) -> None:
    """Read all tables as of the epoch that is held, or of a later one. Raises `Broken`."""
    published = world.ledger.published
    as_of = world.random.choice((epoch, world.random.randrange(epoch, max(published, epoch + 1))))
    for name in flow.spec.outputs:
        before = world.checks.holds(name, as_of, era=era)  # a reader may sleep over its answer
        remade = world.codes.remade
        try:
            view = view_of(flow.spec, name, as_of, env=life.env())
        except (Transient, OSError):
            continue  # it looks again
        except TidegaugeError as error:
            if before and world.checks.holds(name, as_of, era=era):
                said = f"{name} as of {as_of}, {owner} holds {epoch}: {error}"
                raise Broken("a held epoch can be read", said) from error
            continue
        world.scheduler.pause()  # the files are read after it was told which
        if (era, remade) == (world.checks.era, world.codes.remade):
            world.checks.saw(name, as_of, world.lake.read(view))
