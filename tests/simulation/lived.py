"""A world that is lived through with these acts and these faults, and with nothing that a seed draws."""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, Plan
from tidegauge.testing.simulation.world import World

__all__ = ["lived_through"]


def lived_through(
    ground: Ground, acts: Iterable[Act], faults: Iterable[Fault] = (), *, ends: float, seed: int = 1, unit: int = 0
) -> World:
    """Return the world in the end. acts: in any order, each comes at its time. unit: see `Plan`."""
    inorder = tuple(sorted(acts, key=lambda act: act.at))
    world = World(ground, Plan(seed, ends, inorder, tuple(faults), calm=True, unit=unit))
    world.run()
    return world
