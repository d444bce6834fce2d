"""Each life of an output, with a death before and after each durable write of it, and with two of them.

What a death may leave is looked at by the laws of the world, while it goes on and in the end; and the tables come to
the rows of a life in which nobody dies, whatever epochs these are in.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from tests.simulation.lived import lived_through

import tidegauge as tg
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault
from tidegauge.testing.simulation.world import World

APPENDS = tuple(Act(0.3 + n, "append", "orders", 2) for n in range(5))
ENDS = 5.5
LEASES = 80.0
"""Seconds in which two drivers have begun after others that died with their leases."""
DURABLE = ("commit", "committed", "remove", "removed", "relabel", "relabelled", "acknowledge", "acknowledged")
STORE = ("store commit", "store committed")


@dataclass(frozen=True)
class Scenario:
    """What somebody does with the output `b` beside the table `a`, from an instant on. how: options of its sink."""

    acts: tuple[Act, ...]
    since: float
    how: dict[str, Any] = field(default_factory=dict)
    last: bool = False
    """Whether there is a third output, which comes after `b`."""
    instant: bool = False
    """Whether the rows of `b` follow from when something is decided, which a death puts off."""

    def make(self) -> tg.Dataflow:
        """Return the flow."""
        flow = tg.Dataflow("small", store="sqlite:///small.db", tick=1.0)
        source = tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long, amount double"))
        orders = flow.source("orders", source)
        flow.sink("a", orders, tg.DeltaSink("lake/a"))
        flow.sink("b", orders.select("id"), tg.DeltaSink("lake/b"), **self.how)
        if self.last:
            flow.sink("c", orders.filter("amount > 0.5"), tg.DeltaSink("lake/c"), after="b")
        return flow


LATE = (Act(0.0, "outputs", "b", 3),)
SCENARIOS = {
    "late": Scenario(LATE, 3.0),
    "late, in an order": Scenario((*LATE, Act(0.0, "outputs", "c", 3)), 3.0, last=True),
    "late, all of its past in one epoch": Scenario(LATE, 3.0, {"timestamps": "collapse"}),
    "late, from now on": Scenario(LATE, 3.0, {"start": "now"}, instant=True),
    "late, from another table": Scenario(LATE, 3.0, {"start": tg.From("a")}),
    "added": Scenario((Act(0.0, "add", "b", 3),), 3.0),
    "paused": Scenario((Act(2.1, "put off", "b", 2),), 2.1),
    "rebuilt": Scenario((Act(3.1, "remake", "b", 1),), 3.1),
    "replaced": Scenario((Act(3.1, "remake", "b", 2),), 3.1),
    "replaced while nobody runs": Scenario((Act(3.1, "remake", "b", 5),), 3.1),
    "replaced, and that taken back": Scenario((Act(3.1, "remake", "b", 40),), 3.1, instant=True),
    "dropped with its table, and made anew": Scenario((Act(3.1, "anew", "b", 2),), 3.1),
    "dropped, and added again": Scenario((Act(3.1, "anew", "b", 1),), 3.1),
    "dropped while nobody runs": Scenario((Act(3.1, "drop", "b", 2),), 3.1),
}


@cache
def ground(name: str) -> Ground:
    return Ground.of(SCENARIOS[name].make)


def lived(name: str, *faults: Fault, more: tuple[Act, ...] = (), ends: float = ENDS) -> World:
    """The world of a scenario. ends: from when on nobody dies any more."""
    return lived_through(ground(name), (*APPENDS, *SCENARIOS[name].acts, *more), faults, ends=ends, unit=2)


def writes(name: str) -> Iterator[Fault]:
    """Yield a death before and after each durable write from an instant on, in a world where nobody dies."""
    met = Counter[str]()
    for at, _who, place in lived(name).trace.events:
        if place in STORE or place.rpartition(": ")[2] in DURABLE:
            met[place] += 1
            if SCENARIOS[name].since <= at < ENDS:
                yield Fault("crash", place, met[place])


@cache
def undisturbed(name: str) -> dict[str, list[Any]]:
    """The rows of the tables where nobody dies."""
    return rows(lived(name))


def rows(world: World) -> dict[str, list[Any]]:
    """The rows of each table, whatever their epochs: another driver may bind others."""
    found = {}
    for name in world.ground.spec.outputs:
        table = world.lake.rows(name).to_pylist()
        found[name] = sorted(tuple(value for column, value in row.items() if column != "_epoch") for row in table)
    return found


def same(name: str, *faults: Fault) -> bool:
    """Whether all faults have struck. The tables come to what they hold where nobody dies."""
    world, clean = lived(name, *faults, ends=ENDS if len(faults) == 1 else LEASES), undisturbed(name)
    struck = len(world.strikes.struck) == len(faults)
    if not SCENARIOS[name].instant:
        assert rows(world) == clean, faults
    return struck


@pytest.mark.parametrize("some", [3, pytest.param(0, marks=pytest.mark.long, id="all")])
@pytest.mark.parametrize("name", SCENARIOS)
def test_x1_a_death_around_any_durable_write_leaves_what_a_life_without_one_does(name: str, some: int) -> None:
    every = [*writes(name)]
    assert len(every) >= 30
    chosen = every[len(name) % 7 :: len(every) // some] if some else every
    assert all(same(name, fault) for fault in chosen), "each has struck"


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_x5_two_deaths_around_any_durable_writes_leave_what_a_life_without_one_does(name: str) -> None:
    """The second one is of the driver that comes after the first, so it may not come to its place."""
    pairs = [*combinations(writes(name), 2)]
    chosen = pairs if os.environ.get("TIDEGAUGE_PAIRS") == "all" else pairs[:: len(pairs) // 12]
    assert sum(same(name, *both) for both in chosen) > len(chosen) // 2
