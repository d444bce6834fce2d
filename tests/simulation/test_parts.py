"""Tables of a simulated database whose rows are in partitions: they are the database's, or end by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Final

import pytest
from tests.simulation import leaves, parts
from tests.simulation.lived import lived_through
from tests.simulation.test_shop import in_order

from tidegauge.errors.postgressource import TableChanged
from tidegauge.remap.fromtime.lsn import WAL
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import KINDS, Act, Fault, planned
from tidegauge.testing.simulation.tables.lake import applied
from tidegauge.testing.simulation.upstream.database.partitioned import PARTS, quarter
from tidegauge.testing.simulation.world import World

ACTS = (
    *(Act(0.05 + n / 4, "append", "db", 5) for n in range(16)),
    *(Act(at, "alter", "db", 1) for at in (1.3, 1.6, 2.4)),
)


FLOWS: Final[Mapping[str, Any]] = {"root": parts, "leaves": leaves}
"""Flows that follow a table through its root, or its partitions by themselves."""


SEEDS: Final = (1, 2, 3)
"""Of worlds in which there are partitions."""


@cache
def ground(flow: str) -> Ground:
    return Ground.of(FLOWS[flow].make_flow)


def lived(flow: str, *faults: Fault, more: tuple[Act, ...] = (), seed: int) -> World:
    acts = [act for act in (*ACTS, *more) if act.what in FLOWS[flow].FAULTS or act.what not in KINDS]
    return lived_through(ground(flow), acts, faults, ends=6.0, seed=seed)


def ended(world: World) -> set[str]:
    """The outputs that have failed; each because its table has ended."""
    over = world.ledger.ask("SELECT failure FROM outputs WHERE failed_at IS NOT NULL")
    assert {json.loads(failure)["code"] for (failure,) in over} <= {TableChanged.code}
    return {*world.ledger.failed_outputs()}


def same_as_the_database(world: World) -> None:
    """See that each table that goes on is that of the database, at each epoch."""
    keys = FLOWS[world.ground.spec.name.replace("parts", "root")].KEYS
    database = world.upstreams["db"].server.followed
    for epoch in range(world.ledger.upper):
        place = world.ledger.until("db", epoch + 1).get(WAL, 0)
        for name in keys.keys() - ended(world) if place else ():
            columns = database.tables[name].columns.names
            held = applied(world.lake.rows(name, as_of=epoch), [keys[name]]).values()
            assert in_order(held, columns) == in_order(database.rows_at(name, place), columns), (name, epoch)


@pytest.mark.parametrize("flow", FLOWS)
def test_rows_that_move_and_partitions_that_come_empty_are_in_the_tables(flow: str) -> None:
    moved = filled = 0
    for seed in SEEDS:
        world = lived(flow, Fault("crash", "db: received", 5), seed=seed)
        assert ended(world) == set()
        same_as_the_database(world)
        database = world.upstreams["db"].log.database
        for name in world.upstreams["db"].log.parted:
            filled += PARTS - 1 in {quarter(key) for key in database.rows[name]}
        for went, came in pairwise(change for one in database.log for change in one.changes):
            apart = (went.stream, went.part) != (came.stream, came.part)
            moved += apart and went.new is None and came.old is None and "id" in {*went.old} & {*came.new}
    assert moved > 0
    assert filled > 0 or flow == "leaves"


@pytest.mark.parametrize(("flow", "how"), [("root", "cut"), ("root", "stop"), ("leaves", "stop")])
def test_a_table_ends_whose_partitions_bring_or_take_rows_and_no_other_one_does(flow: str, how: str) -> None:
    ends = set()
    for seed in SEEDS:
        on = "db" if how == "cut" else ""  # who connects anew looks at the partitions at once
        world = lived(flow, more=(Act(3.2, "bereave", "db", 1), Act(3.3, how, on)), seed=seed)
        same_as_the_database(world)
        bereft = world.upstreams["db"].server.bereft
        assert ended(world) & FLOWS[flow].KEYS.keys() == bereft
        ends |= bereft
    assert ends


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 115))])
def test_worlds_of_all_kinds_of_faults_hold(flow: str, seed: int) -> None:
    World(ground(flow), planned(seed, ground(flow).facts, kinds=FLOWS[flow].FAULTS, epochs=10)).run()
