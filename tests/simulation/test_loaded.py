"""Flows into which files are loaded, in simulated worlds: loads come beside drivers, again, corrupt and killed."""

from __future__ import annotations

import pytest
from tests.simulation.lived import lived_through
from tests.simulation.loaded import FAULTS, make_flow

from tidegauge.errors.simulation import SimulationFailed
from tidegauge.sources.batches import loading, source
from tidegauge.testing.simulation import simulate
from tidegauge.testing.simulation.ground import Ground
from tidegauge.testing.simulation.plan import Act, Fault
from tidegauge.testing.simulation.world import World
from tidegauge.testing.simulation.writers.loads import LoadsUpstream

GROUND = Ground.of(make_flow)
STEPS = ("history: probe", "before append bindings", "history: plan", "history: read", "orders: commit")


def lived(*acts: Act, faults: tuple[Fault, ...] = (), ends: float = 6.0) -> World:
    return lived_through(GROUND, acts, faults, ends=ends)


def epochs_of_loads(world: World) -> list[int]:
    """In how many epochs the rows of each load are."""
    upstream, table = world.upstreams["history"], world.lake.rows("orders")
    assert isinstance(upstream, LoadsUpstream)
    mine = table.filter([name == "history" for name in table["_source"].to_pylist()])
    epoch = dict(zip(mine["id"].to_pylist(), mine["_epoch"].to_pylist(), strict=True))
    rows = [
        [row for batch in upstream.rows(load, 0, 1) for row in batch["id"].to_pylist()] for load in upstream.there()
    ]
    assert mine.num_rows == sum(map(len, rows))
    return [len({epoch[number] for number in load}) for load in rows]


def test_every_law_holds_of_a_flow_that_takes_loads() -> None:
    assert simulate(make_flow, seeds=range(3), faults=FAULTS, epochs=10).rows > 0


@pytest.mark.long
def test_every_law_holds_of_many_flows_that_take_loads() -> None:
    assert simulate(make_flow, seeds=range(100, 130)).rows > 0


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("place", STEPS)
def test_a_death_at_any_step_leaves_each_load_in_one_epoch(place: str, nth: int) -> None:
    acts = [Act(0.3 + 0.9 * n, "append", "history", 4) for n in range(4)]
    world = lived(*acts, faults=(Fault("crash", place, nth),))
    assert len(world.strikes.struck) == 1
    assert epochs_of_loads(world) == [1] * 4


@pytest.mark.parametrize("place", ["history: plan", "history: read"])
def test_a_place_that_is_away_while_a_load_is_read_is_waited_for(place: str) -> None:
    acts = (Act(0.3, "append", "history", 4), Act(2.5, "away", "history", 60))
    world = lived(*acts, faults=(Fault("slow", place, 1, 3.0),), ends=70.0)
    assert epochs_of_loads(world) == [1]


def test_of_loads_that_are_killed_corrupt_again_or_at_one_time_each_row_is_there_once() -> None:
    whats = ("append", "transact", "compact", "spoil", "append", "grow", "compact", "append")
    world = lived(*[Act(0.3 + 0.6 * n, what, "history", 3) for n, what in enumerate(whats)], ends=7.0)
    assert epochs_of_loads(world) == [1] * 4
    upstream = world.upstreams["history"]
    assert isinstance(upstream, LoadsUpstream)
    left = [path.name for path in (upstream.place / "_loads").iterdir()]
    assert left == ["lock"], "the next load has removed what the killed one had staged"


@pytest.mark.parametrize("what", ["compact", "grow"])
def test_a_file_that_is_loaded_twice_breaks_a_law(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(loading, "check_among", lambda _known, _files: None)
    with pytest.raises(SimulationFailed, match="each file is in one load"):
        lived(Act(0.3, "append", "history", 2), Act(1.3, what, "history", 2))


def test_a_load_whose_rows_are_not_read_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "staged_rows", lambda *_given, **_named: iter(()))
    with pytest.raises(SimulationFailed):
        lived(Act(0.3, "append", "history", 2))
