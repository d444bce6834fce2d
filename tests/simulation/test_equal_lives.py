"""Two lives of an output that come to one table: whatever becomes of it, its twin with the same steps is its measure.

Both are of one world, so every row has its epoch in both. Faults are drawn with the seed. Others have tests of
their own: B1 and B2 (a scan is the table), S25 (any number of workers), PG and X1 (crashes).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.depth import deep

import tidegauge as tg
from tidegauge.testing.simulation.codes import thinned
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import AUTO, Act, FaultKind, planned
from tidegauge.testing.simulation.world import World

FAULTS: tuple[FaultKind, ...] = ("crash", "stop", "slow", "lost")
ENDS = 8
LATE = (Act(0.0, "outputs", "twin", 5),)


def make_flow(**how: Any) -> tg.Dataflow:
    """A table, and its twin."""
    flow = tg.Dataflow("twins", store="sqlite:///twins.db", tick=1.0)
    source = tg.KafkaSource("nowhere:9092", topic="orders", format=tg.Json("id long, amount double"))
    orders = flow.source("orders", source)
    flow.sink("first", orders.select("id"), tg.DeltaSink("lake/first"))
    flow.sink("twin", orders.select("id"), tg.DeltaSink("lake/twin"), **how)
    return flow


def lived(seed: int, *acts: Act, **how: Any) -> World:
    """A world of a seed in which something becomes of the twin."""
    ground = Ground.of(lambda: make_flow(**how))
    plan = planned(seed, ground.facts, kinds=FAULTS, epochs=ENDS)
    kept = (act for act in plan.acts if act.what != "compact")  # which takes what only the first has read
    world = World(ground, plan.with_acts(sorted((*kept, *acts), key=lambda act: act.at)))
    world.run()
    return world


def table(world: World, name: str, *, code: int = 0) -> Counter[Any]:
    """The rows of a table with their epochs; those that a code leaves, if one is given."""
    found = world.lake.rows(name)
    kept = [thinned(code, batch.select(["id"])) for batch in found.to_batches()] if code else None
    if kept is None:
        return Counter((row["_epoch"], row["id"]) for row in found.to_pylist())
    left = Counter(row["id"] for batch in kept for row in batch.to_pylist())
    return Counter({(e, i): n for (e, i), n in table(world, name).items() if i in left})


SEEDS = st.integers(0, 10**6)


@deep(10)
@given(SEEDS)
def test_x6_late_is_from_the_start(seed: int) -> None:
    world = lived(seed, *LATE)
    assert table(world, "twin") == table(world, "first")


@pytest.mark.parametrize("rate", [AUTO, 0, 1, 20])
@deep(4)
@given(seed=SEEDS)
def test_x7_limited_is_unlimited(rate: int, seed: int) -> None:
    world = lived(seed, *LATE, Act(4.0, "limit", "", rate))
    assert table(world, "twin") == table(world, "first")


@deep(10)
@given(SEEDS)
def test_x8_a_past_from_a_table_is_one_from_the_source(seed: int) -> None:
    world = lived(seed, *LATE, start=tg.From("first"))
    assert table(world, "twin") == table(world, "first")


@deep(10)
@given(SEEDS)
def test_x9_replaced_is_one_that_had_the_new_code_from_the_start(seed: int) -> None:
    world = lived(seed, Act(3.0, "remake", "twin", 2))
    assert table(world, "twin") == table(world, "first", code=world.codes.now["twin"])


@pytest.mark.parametrize("how", [1, 2])
@deep(10)
@given(seed=SEEDS)
def test_x10_dropped_and_made_anew_is_new(how: int, seed: int) -> None:
    world = lived(seed, Act(3.0, "anew", "twin", how))
    assert table(world, "twin") == table(world, "first")


@deep(10)
@given(SEEDS)
def test_x11_paused_or_added_is_always_there(seed: int) -> None:
    world = lived(seed, Act(0.0, "add", "twin", 2), Act(4.0, "put off", "twin", 2))
    assert table(world, "twin") == table(world, "first")
