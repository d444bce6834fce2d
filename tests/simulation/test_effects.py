"""Simulated worlds come to every durable effect that a flow can have in them."""

from __future__ import annotations

from typing import Final

from tests.simulation.reference import make_flow

from tidegauge.env import EFFECTS, Effect
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Plan
from tidegauge.testing.simulation.world import World

_NO_LATER_OUTPUT: Final = "each driver of a world has the same outputs; tests/flow/test_late_outputs.py dies there"
NEVER: Final[dict[Effect, str]] = {
    "record schema": "columns are declared: the seed has to know what rows to write",
    "record output failure": "no simulated step raises, and no simulated table refuses rows for good",
    "record start": "every simulated output begins with its source",
    "record columns": "each driver of a world has the same sources; tests/flow/test_changed_columns.py dies there",
    "begin backfill": _NO_LATER_OUTPUT,
    "record unit": _NO_LATER_OUTPUT,
    "end backfill": _NO_LATER_OUTPUT,
    "stage poll": "no simulated source polls; tests/flow/test_polled_sources.py dies there",
}
"""The effects that no driver comes to, each with the reason."""

WORLDS: Final = (
    (  # a topic is made anew
        *(Act(0.5 + tick, "append", "orders", 2) for tick in range(8)),
        Act(2.2, "recreate", "orders", 1),
    ),
    (  # retention takes one record that was not read, and history is compacted
        *(Act(0.3 + tick / 5, "append", "orders", 3) for tick in range(8)),
        *(Act(4.1 + tick / 100, "append", "orders", 3) for tick in range(8)),
        Act(4.3, "retention", "orders", 2),
        *(Act(6.5 + tick, "append", "clicks", 3) for tick in range(4)),
        Act(8.2, "let go"),
    ),
)


def came_to(world: World) -> set[str]:
    """The points that drivers and commands came to."""
    return {what for _at, _who, what in world.trace.events}


def test_every_durable_effect_is_come_to_or_there_is_a_reason_why_not() -> None:
    ground, points = Ground.of(make_flow), set[str]()
    for seed, acts in enumerate(WORLDS):
        world = World(ground, Plan(seed, 12.0, tuple(sorted(acts, key=lambda act: act.at)), (), calm=True))
        world.run()
        points |= came_to(world)
    assert [effect for effect in EFFECTS if f"after {effect}" not in points] == [*NEVER]
