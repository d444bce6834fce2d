"""A driver that slept past its lease wakes up in the middle of its work with a database, and binds nobody by it."""

from __future__ import annotations

from functools import cache

import pytest
from tests.simulation import joined, store
from tests.simulation.test_joined import same_as_the_database

from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, Plan
from tidegauge.testing.simulation.world import World

SLEEP = 45.0
"""Seconds: longer than a lease, and shorter than the server's patience with who is silent."""


@cache
def ground(of: str) -> Ground:
    return Ground.of({"joined": joined.make_flow, "mysql": store.of_mysql}[of])


def lived(of: str, place: str, nth: int) -> World:
    """Return a world in which a driver sleeps, its successor works meanwhile, and connects once more afterwards."""
    acts = [*(Act(0.05 + n / 2, "append", "db", 4) for n in range(10))]
    acts += [*(Act(34.0 + 2 * n, "append", "db", 4) for n in range(14)), Act(58.0, "cut", "db", 1)]
    if of == "joined":
        acts += [Act(1.0, "cut", "db", 1), *(Act(at, "gain", "db", 1) for at in (2.6, 4.4))]
    faults = (Fault("pause", place, nth, SLEEP),)
    plan = Plan(1, 62.0, tuple(sorted(acts, key=lambda act: act.at)), faults, calm=True)
    world = World(ground(of), plan)
    world.run()
    assert world.strikes.struck, "nobody slept"
    assert len(world.lives) > 1, "nobody came in between"
    return world


PLACES = [("db: connect", 2), ("db: looked", 5)]


@pytest.mark.parametrize(("place", "nth"), PLACES)
def test_a_driver_without_the_newer_tables_takes_none_of_them_out(place: str, nth: int) -> None:
    assert same_as_the_database(lived("joined", place, nth)).keys() == joined.KEYS.keys()


@pytest.mark.parametrize(("place", "nth"), [("db: rows are fetched", 1), ("db: asked", 3)])
def test_first_rows_that_a_driver_read_in_its_sleep_are_not_those_of_its_successor(place: str, nth: int) -> None:
    assert lived("mysql", place, nth).lake.rows("orders").num_rows
