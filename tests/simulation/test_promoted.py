"""A standby takes the place of a simulated server: no table has rows of a lost timeline beside newer ones."""

from __future__ import annotations

from functools import cache

import pytest
from tests.simulation.lived import lived_through
from tests.simulation.promoted import FAULTS, make_flow
from tests.simulation.test_shop import same_as_the_database

from tidegauge.errors.running import UpstreamRecreated
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, planned
from tidegauge.testing.simulation.world import World

PARTED = 2.3
"""When the standby gets nothing more: two seconds later it takes the server's place."""
ACTS = (
    *(Act(at, "append", "db", 4) for at in (0.1, 1.2, 1.6)),
    Act(PARTED, "promote", "db", 2),
    *(Act(PARTED + 2.2 + n / 4, "append", "db", 4) for n in range(8)),
)
BOUND = Act(PARTED + 0.1, "append", "db", 4)
"""Is in an epoch before the standby takes over, which lacks it."""
RECEIVED = Act(PARTED + 1.9, "append", "db", 4)
"""Has come by then, and is in none."""
GROWN = Act(PARTED + 2.01, "grow", "db", 5000)
"""Has the new log go beyond the old one before anybody connects."""


@cache
def ground() -> Ground:
    return Ground.of(make_flow)


def lived(*more: Act, seed: int) -> World:
    return lived_through(ground(), (*ACTS, *more), ends=7.0, seed=seed)


@pytest.mark.parametrize(
    "more",
    [(), (BOUND,), (RECEIVED,), (RECEIVED, GROWN)],
    ids=["all is there", "lacks what is bound", "lacks what was received", "and has grown"],
)
def test_the_flow_goes_on_where_all_that_is_bound_is_there_and_nowhere_else(more: tuple[Act, ...]) -> None:
    over = set()
    for seed in range(5):
        world = lived(*more, seed=seed)
        assert same_as_the_database(world) > 0
        went_over = world.upstreams["db"].log.begun
        assert world.ledger.failed() == ({} if went_over else {"db": UpstreamRecreated.code})
        over.add(went_over)
    assert over == ({False} if more == (BOUND,) else {True, False})  # some standbys lack the slot


def test_a_slot_that_came_over_before_anything_was_bound_is_made_anew() -> None:
    acts = (Act(0.05, "append", "db", 4), Act(0.3, "promote", "db", 1), Act(3.0, "append", "db", 4))
    came_over = 0
    for seed in range(4):
        world = lived_through(ground(), acts, (Fault("crash", "db: rows are copied", 1),), ends=4.0, seed=seed)
        assert len(world.opened) == 2
        assert world.ledger.failed() == {}
        assert same_as_the_database(world) > 0
        came_over += world.trace.text().count("db: make slot") == 2
    assert came_over > 0


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 130))])
def test_worlds_of_all_kinds_of_faults_hold(seed: int) -> None:
    World(ground(), planned(seed, ground().facts, kinds=FAULTS, epochs=10)).run()
