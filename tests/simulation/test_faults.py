"""Each kind of fault strikes where a plan says, and a world recovers from it."""

from __future__ import annotations

import pytest
from tests.simulation.reference import make_flow

from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import BETWEEN, Act, Fault, Plan, planned
from tidegauge.testing.simulation.world import World

APPENDS = tuple(Act(0.3 + tick, "append", source, 3) for tick in range(4) for source in ("orders", "clicks"))


def lived(*faults: Fault, acts: tuple[Act, ...] = ()) -> World:
    """A calm world with a few appends in each source."""
    both = tuple(sorted((*APPENDS, *acts), key=lambda act: act.at))
    world = World(Ground.of(make_flow), Plan(1, 5.0, both, faults, calm=True))
    world.run()
    return world


@pytest.mark.parametrize("place", BETWEEN)
def test_a_driver_dies_between_two_things_that_it_does(place: str) -> None:
    world = lived(Fault("crash", place, 7))
    assert [life.name for life in world.lives if life.dead] == ["A"]
    events = [(who, what) for _at, who, what in world.trace.events]
    [struck] = [number for number, (_who, what) in enumerate(events) if what == "!! crash"]
    who, where = events[struck - 1]
    assert where == place
    assert (who == "A") == (place == "worker step"), "the worker itself, or something beside it"


def test_faults_between_two_steps_are_spread_over_a_life() -> None:
    ground = Ground.of(make_flow)
    plans = [planned(seed, ground.facts, kinds=("crash",)) for seed in range(200)]
    counts = [fault.nth for plan in plans for fault in plan.faults if fault.place == "worker step"]
    assert min(counts) < 20
    assert max(counts) > 200


def missed(world: World) -> int:
    """How many records the flow says that it goes on without."""
    return int(world.memory.connection.execute("SELECT coalesce(sum(upper - lower), 0) FROM losses").fetchone()[0])


@pytest.mark.parametrize("beyond", [0, 1])
def test_retention_that_comes_exactly_to_what_is_bound_is_no_loss_and_one_record_more_is_a_loss_of_one(
    beyond: int,
) -> None:
    acts = [Act(0.3 + tick / 5, "append", "orders", 3) for tick in range(8)]
    acts += [Act(4.1 + tick / 100, "append", "orders", 3) for tick in range(8)]  # seen by the look at 5.0
    acts.append(Act(4.3, "retention", "orders", 1 + beyond))
    world = World(Ground.of(make_flow), Plan(1, 6.0, tuple(acts), (), calm=True))
    world.run()
    assert not world.ledger.failed()
    assert (missed(world), world.lake.rows("orders").num_rows) == (beyond, 48 - beyond)


def test_an_end_that_goes_back_for_a_while_is_no_loss() -> None:
    world = lived(acts=tuple(Act(2.2 + tick / 3, "stale", "clicks", 1) for tick in range(6)))
    assert not world.ledger.failed()
    assert (missed(world), world.lake.rows("clicks").num_rows) == (0, 24)
