"""Large values that changes leave out are in tables by key nevertheless, whoever dies."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.large import FAULTS, KEYS, make_flow
from tests.simulation.test_shop import in_order

from tidegauge.leftout import COMING, Mark, taken
from tidegauge.remap.fromtime.lsn import WAL
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault, Plan, planned
from tidegauge.testing.simulation.tables import stager
from tidegauge.testing.simulation.tables.lake import applied
from tidegauge.testing.simulation.world import World

ACTS = tuple(Act(0.05 + n / 2, "append", "db", 60) for n in range(8))
SEED = 3
"""Of a world in which the log has no old rows of posts, and values stay out."""


@cache
def ground() -> Ground:
    return Ground.of(make_flow)


def lived(*faults: Fault) -> World:
    world = World(ground(), Plan(SEED, 5.0, ACTS, faults, calm=True))
    assert world.upstreams["db"].log.large == KEYS.keys()
    world.run()
    return world


def same_as_the_database(world: World) -> None:
    """See that each table is that of the database at each epoch, with all values."""
    database = world.upstreams["db"].log.database
    for epoch in range(world.ledger.upper):
        place = world.ledger.until("db", epoch + 1).get(WAL, 0)
        if not place:
            continue
        for name, key in KEYS.items():
            columns, there = database.tables[name].columns.names, database.rows_at(name, place)
            held = applied(world.lake.rows(name, as_of=epoch), [key]).values()
            assert in_order(held, columns) == in_order(there, columns), (name, epoch)


def test_values_that_changes_leave_out_are_in_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = Counter[str]()

    def counted(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        rows, left = taken(batch)
        marks.update(Mark.decode(one).moves for one in (left.to_pylist() if left is not None else ()) if one)
        return rows, left

    monkeypatch.setattr(stager, "taken", counted)
    same_as_the_database(lived())
    assert marks[""] > 10
    assert marks[COMING] > 10


@pytest.mark.parametrize(
    "place", ["posts: written", pytest.param("posts: commit", marks=pytest.mark.long), "texts: committed"]
)
def test_a_death_loses_no_value(place: str) -> None:
    world = lived(Fault("crash", place, 2))
    assert world.strikes.struck
    same_as_the_database(world)


@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 120))])
def test_worlds_of_all_kinds_of_faults_hold(seed: int) -> None:
    world = World(ground(), planned(seed, ground().facts, kinds=FAULTS, epochs=10))
    world.run()
