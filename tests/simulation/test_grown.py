"""Tables of a simulated database get columns, and those that outputs take on are the database's at each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from tests.simulation.grown import FAULTS, make_flow
from tests.simulation.lived import lived_through
from tests.simulation.test_joined import same_as_the_database

from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, planned
from tidegauge.testing.simulation.world import World

ENDS = 5.0
ACTS = (
    *(Act(0.1 + n / 4, "append", "db", 4) for n in range(19)),
    *(Act(at, "alter", "db", 1) for at in (1.3, 2.4, 3.6)),
)


@cache
def ground() -> Ground:
    return Ground.of(make_flow)


def lived(*faults: Fault) -> World:
    return lived_through(ground(), ACTS, faults, ends=ENDS)


def taken(world: World) -> set[str]:
    """The columns that came and that a table has."""
    found = set[str]()
    for name in ("orders", "items", "users"):
        found |= {f"{name} {one}" for one in world.lake.rows(name).schema.names if one.startswith("more_")}
    return found


def may_be(world: World) -> set[str]:
    """The columns that came and that a table should have: those without values in the rows of before, and not of
    `users`, which is strict."""
    added = world.upstreams["db"].log.database.added
    return {f"{one.stream} {one.column.name}" for one in added if not one.valued and one.stream != "users"}


def test_tables_have_the_columns_that_came_from_their_first_change_on() -> None:
    world = lived()
    added = world.upstreams["db"].log.database.added
    assert {"users", "orders"} <= {one.stream for one in added}
    assert any(one.valued for one in added)
    assert taken(world) == may_be(world) != set()
    assert world.lake.rows("changes").schema.names[-1].startswith("more_")
    assert len(same_as_the_database(world)) == 3


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 130))])
def test_worlds_of_all_kinds_of_faults_hold(seed: int) -> None:
    world = World(ground(), planned(seed, ground().facts, kinds=FAULTS, epochs=10))
    world.run()


@pytest.mark.parametrize("kinds", [("alter", "cut", "away"), ("alter", "crash", "error", "lost")])
def test_t53_tables_with_columns_that_came_are_those_of_the_database_at_each_epoch(kinds: Any) -> None:
    acts = [act for act in ACTS if act.what == "alter"]
    plan = planned(1, ground().facts, kinds=kinds, epochs=4)
    world = World(ground(), plan.with_acts(sorted((*plan.acts, *acts), key=lambda act: act.at)))
    world.run()
    assert taken(world) <= may_be(world)
    assert same_as_the_database(world)


def steps() -> Iterator[Fault]:
    """Yield a death at each thing that a driver does about columns."""
    met: dict[str, int] = {}
    for at, _who, place in lived().trace.events:
        met[place] = met.get(place, 0) + 1
        if 1.3 < at < ENDS and (place.startswith("db: look") or "columns" in place or place.endswith("bindings")):
            yield Fault("crash", place, met[place])


@pytest.mark.parametrize("some", [True, pytest.param(False, marks=pytest.mark.long, id="all")])
def test_a_death_at_any_step_loses_no_column_and_no_value(some: bool) -> None:
    every = [*steps()]
    assert {fault.place for fault in every} >= {"db: looked", "after record columns", "after append bindings"}
    for fault in [one for one in every if one.place == "after record columns"][-1:] if some else every:
        world = lived(fault)
        assert world.strikes.struck, fault
        assert taken(world) == may_be(world)
        assert len(same_as_the_database(world)) == 3
