"""What strikes a driver on its way: the faults of a plan, each the nth time that any driver comes to its place.

Invariant: a fault strikes once, and none does when nothing goes wrong any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidegauge.testing.simulation.life import Life
from tidegauge.testing.simulation.outside import no_room, outside
from tidegauge.testing.simulation.plan import Fault

if TYPE_CHECKING:
    from tidegauge.testing.simulation.world import World

__all__ = ["Strikes"]

_ALONE: Final = "store commit"
"""Between this place and what follows nobody else runs: they would wait for the transaction's lock."""


class Strikes:
    """The faults of a world. struck: those that have. met: how often drivers came to each place.

    full_until: until when the store and the tables have no room. littered: the tables with a staged file that could
    not be removed.
    """

    def __init__(self, world: World, faults: Sequence[Fault]) -> None:
        self.struck: Final[list[Fault]] = []
        self.met: Final[dict[str, int]] = {}
        self.littered: Final[set[str]] = set()
        self.full_until = 0.0
        self._world: Final = world
        self._armed: Final[dict[tuple[str, int], list[Fault]]] = {}
        for fault in faults:
            self._armed.setdefault((fault.place, fault.nth), []).append(fault)

    def at(self, life: Life, place: str) -> None:
        """Let a driver come to a place: the plan's faults strike, or time passes, or others go first."""
        world, alone = self._world, place == _ALONE
        if not world.healed:
            now = world.clock.monotonic()
            for fault in self._due(place):
                if not (alone and fault.kind in ("pause", "slow")):
                    self._befall(life, fault)
            if now < self.full_until and (error := no_room(place)) is not None:
                raise error
        if not (alone or life.dead):
            self._let_others()

    def between(self, life: Life, place: str) -> None:
        """Let a driver be between two things that it does. It is there so often that only faults are in the trace."""
        if not self._world.healed:
            for fault in self._due(place):
                self._world.note(place)
                self._befall(life, fault)

    def _due(self, place: str) -> Sequence[Fault]:
        """Count that a driver came to a place, and return the faults that strike now."""
        count = self.met[place] = self.met.get(place, 0) + 1
        return self._armed.get((place, count), ())

    def _let_others(self) -> None:
        """Let others go first, or let a moment pass, as the seed has it."""
        world = self._world
        drawn = 1.0 if world.plan.calm else world.random.random()
        if drawn < 0.02:
            world.scheduler.sleep(world.random.choice((0.001, 0.01, 0.1, 0.7)))
        elif drawn < 0.3:
            world.scheduler.pause()

    def _befall(self, life: Life, fault: Fault) -> None:
        """Let a fault strike. Raises the error that the driver gets."""
        world = self._world
        self.struck.append(fault)
        error = outside(fault.kind, fault.place) if fault.kind in ("error", "lost") else None
        if fault.kind not in ("error", "lost") or error is not None:
            world.note(f"!! {fault.kind}", f"{fault.seconds:g} s" if fault.seconds else "")
        if fault.kind == "crash":
            life.dead, life.gone = True, world.clock.monotonic()
        elif fault.kind == "pause":
            life.thaws = world.clock.monotonic() + fault.seconds
            world.scheduler.pause()
        elif fault.kind == "slow":
            world.scheduler.sleep(fault.seconds)
        elif fault.kind == "torn":
            world.lake.tear(fault.place.removesuffix(": closed"), lambda job: world.drew[job] is life)
        if error is not None:
            table, _, call = fault.place.rpartition(": ")
            if call in ("abort", "discard"):
                self.littered.add(table)
            raise error
