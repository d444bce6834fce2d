"""Tables that are declared while a flow runs join the others, whoever dies; then they are the database's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from tests.simulation.joined import FAULTS, KEYS, make_flow
from tests.simulation.test_shop import in_order

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.remap.fromtime.lsn import WAL
from tidegauge.sources.postgres.gathering import Gathering
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, Plan, planned
from tidegauge.testing.simulation.tables.lake import applied
from tidegauge.testing.simulation.world import World

ENDS = 7.0
ACTS = (
    *(Act(0.05 + n / 4, "append", "db", 4) for n in range(26)),
    Act(1.0, "gain", "db", 1),
    Act(0.9, "transact", "db", 3),
    Act(3.7, "transact", "db", 3),
    Act(4.4, "gain", "db", 1),
)


@cache
def ground() -> Ground:
    return Ground.of(make_flow)


def lived(*faults: Fault) -> World:
    acts = sorted(ACTS, key=lambda act: act.at)
    world = World(ground(), Plan(1, ENDS, tuple(acts), faults, calm=True))
    world.run()
    return world


def joins(world: World, table: str) -> int:
    """The place at which a table is there for the first time."""
    upstream = world.upstreams["db"]
    return int(upstream.server.begins(upstream.log.database.tables[table]).place)


def same_as_the_database(world: World) -> Counter[str]:
    """See that each table is that of the database, at each epoch from the one at which it joined, and empty before.

    Return of how many epochs each had rows.
    """
    database, several = world.upstreams["db"].log.database, Counter[str]()
    for epoch in range(world.ledger.upper):
        place = world.ledger.until("db", epoch + 1).get(WAL, 0)
        for name, key in KEYS.items():
            rows = world.lake.rows(name, as_of=epoch)
            added = [one.column.name for one in database.added if one.stream == name]
            columns = database.tables[name].columns.names + [one for one in added if one in rows.schema.names]
            held = applied(rows, [key]).values()
            there = database.rows_at(name, place) if place >= joins(world, name) else []
            assert in_order(held, columns) == in_order(there, columns), (name, epoch)
            several += Counter([name] if there else [])
    return several


def test_tables_join_with_their_first_rows_and_what_changed_meanwhile() -> None:
    world = lived()
    assert joins(world, "orders") < joins(world, "items") < joins(world, "users")
    assert same_as_the_database(world).keys() == KEYS.keys()
    begun = [world.upstreams["db"].server.begins(table) for table in world.upstreams["db"].tables[1:]]
    meanwhile = [world.upstreams["db"].log.database.between(one.since, one.place) for one in begun]
    assert any(meanwhile), "nothing committed while the first rows were read"


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 130))])
def test_worlds_of_all_kinds_of_faults_hold(seed: int) -> None:
    world = World(ground(), planned(seed, ground().facts, kinds=FAULTS, epochs=10))
    world.run()


@pytest.mark.parametrize("kinds", [("gain", "cut", "away"), ("gain", "crash", "error", "lost")])
def test_t53_tables_that_join_are_those_of_the_database_at_each_epoch(kinds: Any) -> None:
    acts = [act for act in ACTS if act.what == "gain"]
    plan = planned(1, ground().facts, kinds=kinds, epochs=5)
    world = World(ground(), plan.with_acts(sorted((*plan.acts, *acts), key=lambda act: act.at)))
    world.run()
    assert same_as_the_database(world).keys() == KEYS.keys()


def steps() -> Iterator[Fault]:
    """Yield a death at each thing that a driver does with its server once a table is to join."""
    met = Counter[str]()
    for at, _who, place in lived().trace.events:
        met[place] += 1
        if 1.0 < at < ENDS - 1 and place.startswith("db: ") and met[place] < 40:
            yield Fault("crash", place, met[place])


@pytest.mark.parametrize("some", [2, pytest.param(0, marks=pytest.mark.long, id="all")])
def test_a_death_at_any_step_loses_no_row_and_doubles_none(some: int) -> None:
    every = [*steps()]
    assert {fault.place.rpartition(": ")[2] for fault in every} >= {"make slot", "copy rows", "rows are copied"}
    for fault in every[5 :: len(every) // some] if some else every:
        world = lived(fault)
        assert world.strikes.struck, fault
        assert same_as_the_database(world)["users"] > 0


def test_changes_that_come_while_first_rows_are_read_and_are_lost_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gathering, "set_aside", lambda self: self.aside.clear() or {})
    with pytest.raises(SimulationFailed, match="an epoch has the rows that its bindings say"):
        lived()
